#include "redblue/runtime/fewer_tiles.hpp"

#include <gtest/gtest.h>

#include "redblue/machines/any.hpp"
#include "redblue/machines/passing.hpp"
#include "redblue/machines/ram/sizing.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/ram/resources.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"

/// A cap is held against what a smaller problem with the same tiles takes: is that what the whole takes?
namespace redblue::test {
namespace {

/// Counts kernel calls.
template <class Base>
struct Calls : machine::Passing<Calls<Base>, Base> {
  using Passing = machine::Passing<Calls, Base>;
  explicit Calls(Base& base) : Passing(base) {}
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    ++calls;
    Passing::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    ++calls;
    Passing::modify(k, args);
  }
  index_t calls = 0;
};

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
  const kernel::Implementations<float>& implementations = implementations_for<float>(Products::own);
  const machine::CallerMemory<float> memory(slow, implementations);
  machine::Sizing sizing(row.footprint.to_index(), sizeof(float), memory, implementations);
  Calls counted(sizing);
  machine::Any any(counted);
  row.algorithm->run(any, x, row.tiling);
  return {sizing.words(), counted.calls};
}

/// With many queries or keys; in one head and in groups; under masks that hide keys, or queries.
std::vector<Problem> long_problems() {
  std::vector<Problem> list;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::forward_x, Operation::gradient_x,
                             Operation::backward_x, Operation::backward_w, Operation::scores, Operation::weights})
    for (Problem p : {problem(411, 507, 3, 2), problem(5, 997, 3, 2), problem(640, 512, 3, 2)}) {
      p.op = op;
      p.d_in = op == Operation::backward_w ? p.d + 1 : 0;
      list.push_back(p);
      if (is_projected(op)) continue;
      list.push_back(causal(p));
      for (const index_t offset : {-100, 50}) list.push_back(causal(p, offset));
      list.push_back(with_heads(p, 1, 3, 1));
      list.push_back(causal(list.back()));
    }
  list.push_back(problem(5, 9001, 3, 2));  // split_keys makes four groups
  list.push_back(causal(list.back()));
  return list;
}

index_t groups_of(const plan::Row& row) {
  index_t groups = 1;
  for (const schedule::TileSize& k : row.tiling)
    if (row.algorithm->tile_size(k.name).groups) groups = k.value;
  return groups;
}

TEST(FewerTiles, TakeWhatTheWholeTakes) {
  int rows = 0, shorter = 0;
  index_t groups = 0;
  for (const Problem& p : long_problems())
    for (const Words M : first_of<Words>({200, 60, 1500})) {
      plan::Options o;
      o.M = M;
      const plan::Plan plan = plan::make_plan(p, o);
      for (const DType dtype : {DType::f32, DType::f16})
        for (const plan::Row& row : plan.rows) {
          plan::Instances x = plan.instances();
          x.count = 1;
          const Walked whole = walked(row, x, dtype);
          x.sizes = fewer_tiles(*row.algorithm, x.sizes, row.tiling);
          const Walked some = walked(row, x, dtype);
          groups = std::max(groups, groups_of(row));
          SCOPED_TRACE(testing::Message() << name_of(p.op) << ' ' << row.schedule << ' ' << p.n_q << " x " << p.n_k
                                          << " -> " << x.sizes.n_q << " x " << x.sizes.n_k << " M " << M.str());
          EXPECT_EQ(some.words.tiles, whole.words.tiles);
          EXPECT_EQ(some.words.staging, whole.words.staging);
          ++rows;
          shorter += some.calls * 2 < whole.calls;
        }
    }
  EXPECT_GT(shorter * 3, rows);
  EXPECT_GE(groups, 4);
}

/// Of rows that pass through buffers whole, as 16-bit words do, a part may be missing.
TEST(FewerTiles, FewerFeaturesKeepTheTiles) {
  int shorter = 0;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::forward_x, Operation::gradient_x}) {
    Problem p = problem(30, 20, 700, 600);
    p.op = op;
    for (const Words M : {60, 1500}) {
      plan::Options o;
      o.M = M;
      const plan::Plan plan = plan::make_plan(p, o);
      for (const plan::Row& row : plan.rows) {
        plan::Instances x = plan.instances();
        const Walked whole = walked(row, x, DType::f32);
        x.sizes = fewer_features(*row.algorithm, x.sizes, row.tiling);
        const Walked some = walked(row, x, DType::f32);
        EXPECT_EQ(some.words.tiles, whole.words.tiles) << name_of(op) << ' ' << row.schedule << ' ' << M.str();
        shorter += some.calls * 3 < whole.calls * 2;
      }
    }
  }
  EXPECT_GT(shorter, 10);
}

}  // namespace
}  // namespace redblue::test
