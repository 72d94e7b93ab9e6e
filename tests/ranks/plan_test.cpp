#include "redblue/ranks/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/worlds.hpp"
#include "redblue/bounds/forward.hpp"
#include "redblue/ranks/bounds.hpp"
#include "support/refusal.hpp"

namespace redblue::ranks::test {
namespace {

using redblue::test::refusal_of;
using ::testing::HasSubstr;
using ::testing::Not;

Problem grouped(index_t n, index_t heads, index_t kv_heads, index_t d) {
  Problem p;
  p.n_q = p.n_k = n;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.d = p.d_v = d;
  return p;
}

Words words_of_layout(const Problem& p, const Layout& l) { return cost_of(World(p, l), {}, std::nullopt).words; }

const LayoutRow* row_named(const LayoutPlan& plan, std::string_view name) {
  for (const LayoutRow& r : plan.rows)
    if (r.name == name) return &r;
  return nullptr;
}

double gigabytes(Words words) { return 2e-9 * words.to_double(); }  // of bf16

/// H = 32, h = 4, P = 64, n = 2^20, d = 128, words of bf16. The theory's head exchanges bring no lse home; redblue's
/// do.
TEST(RankPlans, HaveTheFiguresOfTheTheory) {
  const Problem p = grouped(1 << 20, 32, 4, 128);
  EXPECT_NEAR(gigabytes(words_of_layout(p, {1, 32, 2})), 1.310, 5e-4);
  EXPECT_NEAR(gigabytes(words_of_layout(p, {1, 16, 4})), 1.312, 5e-4);
  EXPECT_NEAR(gigabytes(words_of_layout(p, {1, 64, 1, Transfer::ring})), 2.114, 5e-4);
  const Words lse = Words(1 << 14) * 3 / 4 * 32;
  EXPECT_NEAR(gigabytes(words_of_layout(p, {4, 16, 1}) - lse), 0.730, 5e-4);
  EXPECT_NEAR(gigabytes(words_of_layout(p, {4, 8, 2}) - lse), 0.731, 5e-4);

  const LayoutPlan plan = plan_layout(p, {.ranks = 64});
  EXPECT_EQ(plan.rows[0].name, "nested");
  EXPECT_EQ(shape_text(plan.rows[0].cost.layout), "4 x 16 x 1");
  EXPECT_EQ(shape_text(row_named(plan, "2-D")->cost.layout), "1 x 32 x 2");
  ASSERT_EQ(plan.refused.size(), 1u);
  EXPECT_EQ(plan.refused[0].why, "32 query heads on 4 key-value heads do not go in 64 equal groups");
  EXPECT_THAT(plan.reason, HasSubstr("nested 4 x 16 x 1 moves the fewest words of a rank"));
  for (const LayoutRow& r : plan.rows) EXPECT_GE(r.ratio.value_or(1), 1) << r.name;
}

/// They cross where P H_kv = H + H_kv, up to the words of lse that Ulysses moves.
TEST(RankPlans, AllGatherAndUlyssesCrossWhereTheTheorySaysIt) {
  const int P = 8;
  const auto all_gather = [&](index_t heads) {
    return words_of_layout(grouped(4096, heads, 8, 64), {1, P, 1, Transfer::gather});
  };
  const auto ulysses = [&](index_t heads) { return words_of_layout(grouped(4096, heads, 8, 64), {P, 1, 1}); };
  EXPECT_LT(ulysses(48), all_gather(48));
  EXPECT_EQ(ulysses(56) - Words(4096) / P * (P - 1) / P * 56, all_gather(56));  // 8 x 8 = 56 + 8
  EXPECT_GT(ulysses(64), all_gather(64));
}

/// lse and D travel in the type of the arithmetic, beside inputs of 16 bits.
TEST(RankPlans, BytesOfStatisticsAreThoseOfTheArithmetic) {
  Problem p = grouped(64, 4, 2, 8);
  p.op = Operation::backward;
  const LayoutCost c = cost_of(World(p, {.grid_cols = 4}), {.inputs = 2, .partials = 4}, std::nullopt);
  const Words rows = 3 * 16 * 4;  // of all heads: Q, dO, lse and D come, dQ leaves and comes
  EXPECT_EQ(c.bytes, rows * (2 * (8 + 8) + 4 * 2) + rows * 4 * 8);
}

/// The sentence says where all-gather and Ulysses cross, and which of them moves fewer words here.
TEST(RankPlans, SayWhereAllGatherAndUlyssesCross) {
  const auto reason = [](index_t H, index_t h, int P, Operation op = Operation::forward) {
    Problem p = grouped(4096, H, h, 64);
    p.op = op;
    return plan_layout(p, {.ranks = P}).reason;
  };
  EXPECT_THAT(reason(48, 8, 8), HasSubstr("; Ulysses moves fewer words than all-gather: they cross at P = 7.047 ranks, "
                                          "where P h = (d + d_v + 1) / (d + d_v) H + h for H = 48 query heads, h = 8"));
  EXPECT_THAT(reason(64, 8, 8),
              HasSubstr("; all-gather moves fewer words than Ulysses: they cross at P = 9.062 ranks"));
  // Eight ranks share four key-value heads: P (h - 1) = H.
  EXPECT_THAT(reason(32, 4, 8), HasSubstr("; all-gather moves fewer words than Ulysses: they cross at P = 10.75 ranks, "
                                          "where P (h - 1) = (d + d_v + 1) / (d + d_v) H for"));
  EXPECT_THAT(reason(32, 4, 16), HasSubstr("; Ulysses moves fewer words than all-gather: they cross at P = 10.75"));
  EXPECT_THAT(reason(8, 1, 8), HasSubstr("; all-gather moves fewer words than Ulysses, as it does on any number"));
  EXPECT_THAT(reason(48, 8, 8, Operation::backward), HasSubstr("where P h = (2 d + d_v + 2) / (2 d + 2 d_v) H + h"));
  EXPECT_THAT(reason(48, 8, 7), Not(HasSubstr("cross")));  // heads do not go in 7 groups
}

/// Steps of all ranks in simulated time: a ring works while its blocks travel, a gather waits for them.
TEST(RankPlans, SimulateWhatTheyModel) {
  const Problem p = grouped(4096, 4, 4, 64);
  const Network network{.latency = 1e-6, .bandwidth = 1e9, .overlap = 1, .arithmetic = 1e12};
  const LayoutPlan plan = plan_layout(p, {.ranks = 4, .network = network, .least_time = true});
  const double message = 1024.0 * 4 * 128 * 4 / 1e9, work = 1024.0 * 1024 * 4 * 256 / 1e12;  // a block, and its pairs
  ASSERT_GT(message, work);
  for (const LayoutRow& row : plan.rows) {
    if (row.name == "ring") {  // each block comes after the one before, which has left by then
      EXPECT_NEAR(*row.cost.simulated, 3 * message + 1e-6 + work, 1e-2 * message);
    }
    if (row.name == "all-gather") {
      EXPECT_NEAR(*row.cost.simulated, 3 * message + 1e-6 + 4 * work, 1e-9);
    }
  }
  const LayoutPlan without = plan_layout(p, {.ranks = 4});
  EXPECT_FALSE(without.rows[0].cost.simulated);
}

/// The best of all layouts whose busiest rank has no more than 1.1 times the pairs of the best one.
RC_GTEST_PROP(RankPlans, MoveTheFewestWordsOfAllLayouts, ()) {
  const Problem p = any_shared_problem(60);
  const Wanted wanted{.ranks = static_cast<int>(drawn(1, 12))};
  const LayoutPlan plan = plan_layout(p, wanted);
  const LayoutCost& chosen = plan.rows[0].cost;
  for (int u = 1; u <= wanted.ranks; ++u)
    for (int r = 1; r <= wanted.ranks / u; ++r) {
      const int c = wanted.ranks / u / r;
      if (u * r * c != wanted.ranks || p.heads % u != 0 || (*p.kv_heads % u != 0 && u % *p.kv_heads != 0)) continue;
      for (const Ownership o : {Ownership::contiguous, Ownership::zig_zag}) {
        if (o == Ownership::zig_zag && !p.causal && !p.window_right) continue;
        const LayoutCost other = cost_of(World(p, {u, r, c, Transfer::exchange, o}), {}, std::nullopt);
        if (other.pairs <= chosen.pairs) RC_ASSERT(other.words >= chosen.words);
      }
    }
  for (const LayoutRow& row : plan.rows) {
    Words held;
    const World w(p, row.cost.layout);
    for (int i = 0; i < w.ranks(); ++i) held = std::max(held, count(w, program_of(w, i)).held);
    RC_ASSERT(row.cost.held == held);
    RC_ASSERT(row.ratio.value_or(1) >= 1);
  }
}

TEST(RankPlans, BalanceCausalWork) {
  Problem p = grouped(1 << 14, 8, 8, 64);
  p.causal = true;
  const LayoutPlan plan = plan_layout(p, {.ranks = 16});
  EXPECT_LT(plan.rows[0].cost.balance, 1.11);
  EXPECT_EQ(plan.rows[0].cost.layout.ranks(), 16);
}

/// Documents that lie on one rank each move nothing; a long one would leave the other ranks without work.
TEST(RankPlans, ShareLongDocumentsAndKeepEqualOnesWhole) {
  Problem p = grouped(4096, 1, 1, 64);
  p.cu_seqlens_q = {0, 1024, 2048, 3072, 4096};
  const LayoutCost equal = plan_layout(p, {.ranks = 4}).rows[0].cost;
  EXPECT_EQ(equal.words, 0);
  p.cu_seqlens_q = {0, 3900, 4000, 4050, 4096};
  const LayoutCost shared = plan_layout(p, {.ranks = 4}).rows[0].cost;
  EXPECT_GT(shared.words, 0);
  EXPECT_LT(shared.balance, 1.2);
}

/// 61 ranks are one row or one column; 60 make a grid.
TEST(RankPlans, LeaveRanksUnusedWhereAGridIsBetter) {
  const LayoutPlan plan = plan_layout(grouped(6100, 1, 1, 64), {.ranks = 61});
  EXPECT_EQ(plan.rows[0].cost.layout.ranks(), 60);
  EXPECT_EQ(plan.rows[0].name, "2-D");
  EXPECT_EQ(plan_layout(grouped(6100, 1, 1, 64), {.ranks = 64}).rows[0].cost.layout.ranks(), 64);
}

/// A ring of one head: each rank attends with n / P queries to P blocks of n / P keys, as one machine would with M.
TEST(RankPlans, SayWhatTheBusiestRankMovesInFastMemory) {
  const Problem p = grouped(4096, 1, 1, 64);
  const LayoutPlan plan = plan_layout(p, {.ranks = 4, .grid = Layout{1, 4, 1}, .M = 16384});
  const LocalWork& local = *plan.rows[0].local;
  Problem part = grouped(1024, 1, 1, 64);
  part.accumulate = true;
  const plan::Plan one = plan::make_plan(part, {.M = 16384});
  EXPECT_EQ(local.io, one.io().total() * 4);
  EXPECT_EQ(local.schedule, one.row().schedule);
  EXPECT_EQ(local.pairs, Words(1024) * 4096);
  EXPECT_EQ(local.bound.words, (bound::f_prime(bound_problem(p, 16384), Words(1024) * 4096).words));
  EXPECT_GT(*local.ratio, 1);
  EXPECT_FALSE(plan_layout(p, {.ranks = 4}).rows[0].local);
  EXPECT_THAT(refusal_of([&] { plan_layout(p, {.ranks = 4, .M = 4}); }), HasSubstr("M"));
}

/// The bound with a P-th of the pairs is below what some rank moves, whatever the layout.
RC_GTEST_PROP(RankPlans, MoveNoFewerWordsInFastMemoryThanTheBound, ()) {
  const Spread s = any_spread(drawn(0, 1) == 0 ? 40 : 300);
  const Words M = drawn(20, 200);
  const LocalWork local = local_work(World(s.problem, s.layout), M);
  for (const bound::Bound& b : bounds_of_work(s.problem, s.layout.ranks(), M))
    if (b.holds) RC_ASSERT(b.words <= local.io);
  RC_ASSERT(local.io == local_io(World(s.problem, s.layout), program_of(World(s.problem, s.layout), local.rank), M));
}

TEST(RankPlans, AskLittleOfManyRanks) {
  const LayoutPlan dense = plan_layout(grouped(1 << 24, 64, 8, 128), {.ranks = 4096});
  EXPECT_EQ(dense.rows[0].cost.layout.ranks(), 4096);
  EXPECT_EQ(dense.rows[0].name, "nested");
  Problem causal = grouped(1 << 24, 64, 8, 128);
  causal.causal = true;
  EXPECT_EQ(plan_layout(causal, {.ranks = 4096}).rows[0].name, "nested");
}

/// Latency in rounds, bytes over bandwidth, work hidden behind exchanges and not behind gathers.
TEST(RankPlans, ModelTimeInClosedForm) {
  const Problem p = grouped(4096, 4, 4, 64);
  const Network network{.latency = 1e-5, .bandwidth = 1e9, .overlap = 0.5, .arithmetic = 1e12};
  const WireWidths widths{2, 4};
  const auto seconds = [&](const Layout& l) { return *cost_of(World(p, l), widths, network).seconds; };
  const double keys = 3 * 1e-5 + 3 * 1024.0 * 4 * 128 * 2 / 1e9, work = 4096.0 * 1024 * 4 * 256 / 1e12;
  EXPECT_NEAR(seconds({1, 4, 1, Transfer::gather}), keys + work, 1e-12);
  EXPECT_NEAR(seconds({1, 4, 1, Transfer::ring}), keys + work - 0.5 * std::min(keys, work), 1e-12);
  // Q, K, V come in 3 + 3 messages and O, lse in 3; as many leave.
  const double heads = 9 * 1e-5 + 3 * 1024.0 * (192 * 2 + 65 * 4) / 1e9;
  EXPECT_NEAR(seconds({4, 1, 1}), heads + work, 1e-12);

  const LayoutPlan plan = plan_layout(p, {.ranks = 4, .widths = widths, .network = network, .least_time = true});
  for (const LayoutRow& r : plan.rows) EXPECT_LE(*plan.rows[0].cost.seconds, *r.cost.seconds) << r.name;
  const Network slow{.latency = 1, .bandwidth = 1e3, .arithmetic = 1e12};
  EXPECT_EQ(plan_layout(p, {.ranks = 4, .network = slow, .least_time = true}).rows[0].name, "one rank");
}

TEST(RankPlans, KeepToWhatIsGiven) {
  const Problem p = grouped(1000, 8, 2, 16);
  const LayoutPlan plan = plan_layout(p, {.ranks = 8, .grid = Layout{2, 2, 2}, .transfer = Transfer::gather});
  EXPECT_EQ(plan.rows[0].cost.layout, (Layout{2, 2, 2, Transfer::gather}));
  EXPECT_THAT(plan.reason, HasSubstr("was asked for"));
  const auto why = [&](const Wanted& w) { return refusal_of([&] { plan_layout(p, w); }); };
  EXPECT_THAT(why({.ranks = 4, .grid = Layout{2, 2, 2}}), HasSubstr("takes 8 ranks of 4"));
  EXPECT_THAT(why({.ranks = 8, .grid = Layout{1, 2, 4}, .transfer = Transfer::ring}), HasSubstr("a ring of 2 x 4"));
  EXPECT_THAT(why({.ranks = 3, .grid = Layout{3, 1, 1}}), HasSubstr("head_groups = 3"));
  EXPECT_THAT(why({.ranks = 3, .grid = Layout{1, 3, 1}, .keeps_heads = true}), HasSubstr("1 x 3 x 1 keeps no heads"));
  EXPECT_THAT(why({.ranks = 0}), HasSubstr("ranks = 0"));
  Problem bias = p;
  bias.bias = {1, 1, 1000, 1000};
  EXPECT_EQ(plan_layout(bias, {.ranks = 2}).rows[0].cost.layout, (Layout{1, 2, 1}));  // its rows stay at home
  const LayoutPlan blocks = plan_layout(p, {.ranks = 4, .ownership = Ownership::block_cyclic, .block = 16});
  EXPECT_EQ(blocks.rows[0].cost.layout.block, 16);
}

}  // namespace
}  // namespace redblue::ranks::test
