#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/worlds.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/ranks/in_process.hpp"
#include "redblue/ranks/loads.hpp"
#include "redblue/ranks/plan.hpp"
#include "redblue/verify/verify.hpp"
#include "shared.hpp"
#include "support/cases.hpp"
#include "support/refusal.hpp"

/// Layout::reproducible: the same bits for every number of ranks, layout and ownership.
namespace redblue::test::of_reproducible {
namespace {

using ranks::Layout;
using ranks::Ownership;
using ranks::Transfer;
using ranks::World;
using testing::HasSubstr;

struct Asked {
  const char* name;
  Problem problem;
  index_t block = 8;
  DType dtype = DType::f32, compute = DType::f32;
};

Problem grouped_causal(index_t n, index_t d, index_t d_v) {
  Problem p = problem(n, n, d, d_v);
  p.heads = 4;
  p.kv_heads = 2;
  p.causal = true;
  return p;
}

/// Masks of all kinds, ragged sizes, blocks below and above a vector of rows.
std::vector<Asked> asked() {
  std::vector<Asked> list{{"causal", grouped_causal(61, 5, 3)}, {"no mask", problem(45, 70, 4, 4)}};
  Problem p = grouped_causal(61, 5, 3);
  p.sinks = p.alibi = true;
  p.softcap = 3;
  p.window_left = 20;
  p.batch = 2;
  list.push_back({"window, sinks, alibi", p});
  p = grouped_causal(61, 5, 3);
  p.prefix = 13;
  list.push_back({"prefix", p, 8, DType::f64, DType::f64});
  p = grouped_causal(61, 5, 3);
  p.cu_seqlens_q = {0, 3, 21, 22, 40, 61};
  p.sinks = true;
  list.push_back({"packed", p});
  p = grouped_causal(61, 5, 3);
  p.dropout = 0.3;
  p.seed = 5;
  list.push_back({"dropout", p});
  p.bias = {1, 4, 61, 61};
  list.push_back({"dropout, bias", p});
  list.push_back({"words of bf16", grouped_causal(61, 6, 4), 8, DType::bf16});
  list.push_back({"arithmetic in bf16", grouped_causal(61, 6, 4), 8, DType::bf16, DType::bf16});
  list.push_back({"large blocks", grouped_causal(230, 16, 16), 48});
  list.push_back({"several tiles in a block", grouped_causal(330, 8, 8), 300});
  return list;
}

Filled filled(const Asked& a, Operation op) {
  Problem p = a.problem;
  p.op = op;
  p.lse_required = op == Operation::forward;
  Filled x(p, a.dtype, Strides::bhsd);
  if (op == Operation::forward) {  // scores of far larger rows here and there: maxima are raised at different keys
    std::vector<double> q = x.arrays.at(SlowArray::Q).get();
    for (std::size_t i = 0; i < q.size(); ++i) q[i] *= (i / 40) % 3 == 0 ? 60 : 1;
    x.arrays.at(SlowArray::Q).set(q);
    return x;
  }
  Problem forward = p;
  forward.op = Operation::forward;
  forward.lse_required = true;
  RunOptions options;
  options.compute = a.compute;
  run(plan::make_plan(forward, {.M = 3000}), x.tensors(), options);
  return x;
}

/// Outputs of a run over a layout, with as many threads for each rank, which is also held against the oracle and the
/// formulas of its words.
std::vector<std::vector<unsigned char>> outputs(const Asked& a, Operation op, const Layout& layout, int threads = 1) {
  Filled x = filled(a, op);
  const World world(x.p, layout);
  Shared shared(world, x);
  const auto tensors = shared.tensors();
  ranks::How how;
  how.compute = a.compute;
  how.threads = threads;
  how.patience = std::chrono::seconds(60);
  const std::vector<ranks::Ran> each = run_in_process(world, tensors, how);
  shared.collect();
  for (int r = 0; r < world.ranks(); ++r)
    EXPECT_EQ(each[static_cast<std::size_t>(r)].crossed, crossing_of(world, r)) << r;
  if (layout.ranks() == 1 && a.compute != DType::bf16) {  // the oracle has no products of bf16
    const Verification v = verify(x.p, x.tensors(), how.compute, {.additions = 64, .lse = 64});
    for (const Deviation& d : v.outputs) EXPECT_TRUE(d.ok()) << d.name << " " << d.error << " of " << d.tolerance;
  }
  return x.outputs();
}

Layout spread_over(int ranks, int groups, const Asked& a, Ownership ownership) {
  return {groups, ranks / groups, 1, Transfer::gather, ownership, ownership == Ownership::block_cyclic ? a.block : 0,
          a.block};
}

TEST(Reproducible, BitsAreTheSameForAllRanksLayoutsAndOwnerships) {
  for (const Asked& a : asked())
    for (const Operation op : {Operation::forward, Operation::backward}) {
      if (a.problem.bias && op == Operation::backward) continue;  // refused on several ranks
      const auto one = outputs(a, op, spread_over(1, 1, a, Ownership::contiguous));
      for (const int P : in_turn<int>({1, 2, 3, 4, 5, 6, 7, 8, 9}))
        for (const int groups : {1, 2}) {
          if (P % groups != 0 || a.problem.heads % groups != 0) continue;
          const auto ownership = static_cast<Ownership>(P % (a.problem.cu_seqlens_q.empty() ? 3 : 4));
          SCOPED_TRACE(fmt::format("{} {} {} x {} {}", a.name, name_of(op), groups, P / groups, name_of(ownership)));
          EXPECT_EQ(outputs(a, op, spread_over(P, groups, a, ownership), 1 + P % 2), one);
          if (HasFailure()) return;
        }
    }
}

/// What the test above would find without blocks.
TEST(Reproducible, BitsDependOnTheRanksOtherwise) {
  const Asked a{"", grouped_causal(61, 5, 3)};
  for (const Operation op : {Operation::forward, Operation::backward})
    EXPECT_NE(outputs(a, op, {1, 3, 1, Transfer::gather}), outputs(a, op, {}));
}

/// Formulas of words, messages and pairs against the steps, and whole blocks on each rank.
RC_GTEST_PROP(Reproducible, WordsAreThoseOfTheFormulas, ()) {
  using ranks::test::drawn;
  ranks::test::Spread s = ranks::test::any_spread(40);
  s.problem.bias_gradient = s.problem.sinks_gradient = false;
  if (s.problem.op == Operation::backward) s.problem.bias.reset();
  Layout& l = s.layout;
  l.head_groups = *s.problem.kv_heads % 2 == 0 ? static_cast<int>(drawn(1, 2)) : 1;
  l.keeps_heads = l.keeps_heads && l.head_groups > 1;
  l.grid_cols = 1;
  l.transfer = Transfer::gather;
  l.reproducible = drawn(1, 9);
  if (l.block > 0) l.block = l.reproducible * drawn(1, 2);
  const World w(s.problem, l);
  const std::vector<ranks::Load> loads = loads_of(w);
  for (int r = 0; r < w.ranks(); ++r) {
    const ranks::RankCount counted = count(w, program_of(w, r));
    const ranks::Crossing formula = crossing_of(w, r);
    RC_ASSERT(counted.received == formula.received);
    RC_ASSERT(counted.sent == formula.sent);
    RC_ASSERT(counted.pairs == pairs_of(w, r));
    RC_ASSERT(crossing_of(loads[static_cast<std::size_t>(r)]) == formula);
    RC_ASSERT(loads[static_cast<std::size_t>(r)].pairs == counted.pairs);
    if (l.ownership != Ownership::documents)
      for (const Range& rows : w.queries_of(r).ranges()) {
        RC_ASSERT(rows.begin % l.reproducible == 0);
        RC_ASSERT(rows.end % l.reproducible == 0 || rows.end == s.problem.n_q);
      }
  }
}

/// All keys and all queries come once, and no result leaves.
TEST(Reproducible, GradientsMoveInputsAlone) {
  Problem p = grouped_causal(64, 5, 3);
  p.causal = false;
  p.op = Operation::backward;
  const ranks::Crossing c = crossing_of(World(p, {1, 4, 1, Transfer::gather, {}, 0, 8}), 1);
  EXPECT_EQ(c.received.inputs, Words(48) * (4 * (5 + 3 + 2) + 2 * (5 + 3)));
  EXPECT_EQ(c.received.partials + c.sent.partials, 0);
}

TEST(Reproducible, PlansChooseAmongLayoutsThatAre) {
  Problem p = grouped_causal(1 << 14, 64, 64);
  const ranks::LayoutPlan plan = ranks::plan_layout(p, {.ranks = 16, .reproducible = 256});
  EXPECT_EQ(plan.rows[0].cost.layout.reproducible, 256);
  EXPECT_THAT(plan.rows[0].name, HasSubstr(", reproducible"));
  EXPECT_GE(plan.rows[0].ratio.value_or(0), 1);
  bool others = false;
  for (const ranks::LayoutRow& r : plan.rows) others = others || r.cost.layout.reproducible == 0;
  EXPECT_TRUE(others);
  p.op = Operation::backward;
  EXPECT_EQ(ranks::plan_layout(p, {.ranks = 16, .reproducible = 256}).rows[0].cost.layout.grid_cols, 1);
}

TEST(Reproducible, RefusesWhatWouldAddInAnotherOrder) {
  Problem p = grouped_causal(64, 4, 4);
  const auto why = [&](const Layout& l) { return refusal_of([&] { World(p, l); }); };
  EXPECT_THAT(why({1, 2, 2, Transfer::gather, {}, 0, 8}), HasSubstr("reproducible = 8 with 2 columns"));
  EXPECT_THAT(why({1, 4, 1, Transfer::exchange, {}, 0, 8}), HasSubstr("with transfer exchange"));
  EXPECT_THAT(why({4, 1, 1, Transfer::gather, {}, 0, 8}), HasSubstr("with 4 groups of 2 key-value heads"));
  EXPECT_THAT(why({1, 4, 1, Transfer::gather, Ownership::block_cyclic, 12, 8}), HasSubstr("with block = 12"));
  EXPECT_THAT(why({1, 4, 1, Transfer::gather, {}, 0, -1}), HasSubstr("reproducible = -1 rows in a block"));
  EXPECT_THAT(refusal_of([&] { ranks::plan_layout(p, {.ranks = 4, .reproducible = 8, .M = 300}); }),
              HasSubstr("M = 300 with reproducible results"));
  p.bias = {1, 1, 64, 64};
  EXPECT_EQ(why({1, 4, 1, Transfer::gather, {}, 0, 8}), "accepted");
  p.op = Operation::backward;
  EXPECT_THAT(why({1, 4, 1, Transfer::gather, {}, 0, 8}), HasSubstr("with the gradient under a bias"));
  p.bias_gradient = true;
  EXPECT_THAT(why({1, 1, 1, Transfer::gather, {}, 0, 8}), HasSubstr("with gradients of a bias or of sinks"));
}

}  // namespace
}  // namespace redblue::test::of_reproducible
