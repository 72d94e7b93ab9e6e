#include "api/fewer_tiles.hpp"

#include <gtest/gtest.h>

#include "api/engine.hpp"
#include "redblue/machine/sizing.hpp"
#include "redblue/plan/planner.hpp"

/// A cap is held against what a smaller problem with the same tiles takes: is that what the whole takes?
namespace redblue::test {
namespace {

struct Walked {
  machine::ArenaWords words;
  index_t calls;
};

/// The arena of a run on inputs and outputs of this type.
Walked walked(const plan::Row& row, const plan::Instances& x, DType dtype) {
  machine::SlowMemory slow;
  for (machine::Storage& s : slow) {
    s.dtype = DType::f32;
    s.row_stride = 64;
  }
  const Operation op = row.algorithm->operation;
  for (const auto& arrays : {plan::inputs_of(op), plan::outputs_of(op)})
    for (const SlowArray a : arrays) slow[index_of(a)].dtype = dtype;
  const kernel::Bodies<float>& bodies = bodies_for<float>(false);
  const machine::CallerMemory<float> memory(slow, bodies);
  constexpr index_t kMost = 100'000'000;
  machine::Sizing sizing(row.footprint.to_index(), sizeof(float), memory, bodies, kMost);
  machine::Any any(sizing);
  row.algorithm->run(any, x, row.tiling);
  return {sizing.words(), kMost - sizing.calls_left()};
}

std::vector<Problem> long_problems() {
  std::vector<Problem> list;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::forward_x, Operation::gradient_x,
                             Operation::backward_x, Operation::backward_w})
    for (const auto& [n_q, n_k] : {std::pair<index_t, index_t>{411, 507}, {5, 997}, {640, 512}}) {
      Problem p;
      p.op = op;
      p.n_q = n_q;
      p.n_k = n_k;
      p.d = 3;
      p.d_v = 2;
      p.d_in = op == Operation::backward_w ? 4 : 0;
      list.push_back(p);
      if (op == Operation::forward || op == Operation::backward) {
        list.push_back(p);
        list.back().heads = 3;
        list.back().kv_heads = 1;
        list.push_back(p);
        list.back().causal = true;
      }
    }
  return list;
}

TEST(FewerTiles, TakeWhatTheWholeTakes) {
  int rows = 0, shorter = 0;
  for (const Problem& p : long_problems())
    for (const Words M : {60, 200, 1500})
      for (const DType dtype : {DType::f32, DType::f16}) {
        plan::Options o;
        o.M = M;
        const plan::Plan plan = plan::make_plan(p, o);
        for (const plan::Row& row : plan.rows) {
          plan::Instances x = plan.instances();
          x.count = 1;
          const Walked whole = walked(row, x, dtype);
          x.sizes = fewer_tiles(*row.algorithm, x.sizes, row.tiling);
          const Walked some = walked(row, x, dtype);
          SCOPED_TRACE(testing::Message() << name_of(p.op) << ' ' << row.schedule << ' ' << p.n_q << " x " << p.n_k
                                          << " -> " << x.sizes.n_q << " x " << x.sizes.n_k << " M " << M.str());
          EXPECT_EQ(some.words.tiles, whole.words.tiles);
          EXPECT_EQ(some.words.staging, whole.words.staging);
          ++rows;
          shorter += some.calls * 2 < whole.calls;
        }
      }
  EXPECT_GT(shorter * 2, rows) << "of " << rows;
}

}  // namespace
}  // namespace redblue::test
