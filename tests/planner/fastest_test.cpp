#include "redblue/planner/fastest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/with_M.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/timed.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

Hardware machine(const std::string& name) { return load_hardware(test::in_sources("/tests/data/" + name + ".json")); }
Hardware invented() { return machine("hardware"); }

/// On the invented machine.
plan::Plan fastest(const Problem& p, const plan::Options& options, int threads = 1) {
  return make_fastest_plan(p, options, {.hardware = invented(), .threads = threads});
}

Problem of(Operation op, index_t n, index_t d, index_t heads = 1) {
  Problem p = problem(n, n, d, d);
  p.op = op;
  p.heads = heads;
  return p;
}

constexpr Operation kAll[] = {Operation::forward,    Operation::backward,   Operation::forward_x, Operation::gradient_x,
                              Operation::backward_x, Operation::backward_w, Operation::scores,    Operation::weights};

Problem small(Operation op) {
  Problem p = of(op, 24, 4);
  p.d_in = op == Operation::backward_w ? 5 : 0;
  return p;
}

/// The schedule's operations on the timing machine.
model::Timed timed(const plan::Plan& plan, const model::Rates& rates) {
  model::Timed walk(rates, 1'000'000);
  redblue::machine::replay(trace(plan), walk);
  return walk;
}

/// The walk is over a smaller problem where that takes long, and so is the pattern: a corner, which may be a mask.
TEST(Fastest, PlansUnderPatternsOfAnySize) {
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const index_t n : {40, 1024, 3072})
      for (const bool blocks : {false, true}) {
        if (few_cases() && n > 40 && (n > 1024 || blocks != (op == Operation::forward))) continue;  // minutes
        Problem p = of(op, n, 64, 2);
        std::vector<std::uint8_t> seen(static_cast<std::size_t>(n / 8 * (n / 8)));
        for (std::size_t k = 0; k < seen.size(); ++k) seen[k] = k % 7 == 0 || k < 20 ? 1 : 0;
        const RunLists lists =
            blocks ? patterns::of_blocks({n, n}, 8, 8, seen) : patterns::longformer({n, n}, 16, 0, 4);
        p.patterns = {std::make_shared<const RunLists>(lists), std::make_shared<const RunLists>(lists)};
        const plan::Plan plan = fastest(p, with_M(100'000));
        EXPECT_GT(plan.row().time->total_s, 0) << name_of(op) << ' ' << n << ' ' << blocks;
      }
}

RunLists random_mask(index_t n, double share) {
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(n * n));
  std::mt19937 random(7);
  for (std::uint8_t& s : seen) s = std::uniform_real_distribution<>(0, 1)(random) < share ? 1 : 0;
  return patterns::of_mask({n, n}, seen);
}

/// A walk that ends before its first product tells nothing of the time; a smaller part may have no pair.
TEST(Fastest, NoScheduleFormsPairsInNoTime) {
  const index_t n = 512;
  std::vector<std::uint8_t> blocks(64, 0);  // of 64 queries and keys, none of them about the first query and key
  for (std::size_t k = 20; k < 64; k += 3) blocks[k] = 1;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const RunLists& lists :
         {random_mask(n, .5), random_mask(n, .05), patterns::of_blocks({n, n}, n / 8, n / 8, blocks)}) {
      Problem p = of(op, n, 64);
      p.patterns = {std::make_shared<const RunLists>(lists)};
      plan::Options o = with_M(1 << 20);
      o.reorder = false;
      const plan::Plan plan = fastest(p, o);
      const model::Rates rates = model::rates_of(invented(), model::largest_isa(invented()), DType::f32);
      const double least = count_of(lists).to_double() * 2 * 64 / rates.macs;
      for (const plan::Row& row : plan.rows) EXPECT_GT(row.time->compute_s, least / 2) << row.schedule;
    }
}

/// The keys that all later queries see come in runs of 8, and products with a few keys at a time take their time.
TEST(Fastest, PinsNoKeysOfManyRuns) {
  Problem p = of(Operation::backward, 1024, 64, 4);
  p.patterns = {std::make_shared<const RunLists>(patterns::fixed({1024, 1024}, 64, 8))};
  const Hardware here = invented();
  const auto seconds = [&](const char* schedule) {
    return make_fastest_plan(p, with_M(1 << 19, schedule), {.hardware = here}).row().time->total_s;
  };
  EXPECT_GT(seconds("ring_queries"), seconds("fused_key_outer"));
}

/// What is walked has the masks in its pattern: windows count from the first query and key, a part does not.
TEST(Fastest, PlansPatternsUnderMasksInEveryOrder) {
  std::mt19937 random(5);
  for (int k = 0; k < cases(30); ++k) {
    const index_t n_q = 16 * (1 + k % 5), n_k = 190;
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(n_q * n_k));
    for (std::uint8_t& s : seen) s = random() % 50 == 0 ? 1 : 0;
    Problem p = problem(n_q, n_k, 8, 8);
    p.heads = 2;
    p.kv_heads = 1 + k % 2;
    p.order = std::array{PatternOrder::natural, PatternOrder::rcm, PatternOrder::jaccard,
                         PatternOrder::in_place}[static_cast<std::size_t>(k % 4)];
    p.patterns = {std::make_shared<const RunLists>(patterns::of_mask({n_q, n_k}, seen))};
    p.window_left = 50;
    p.window_right = 10;
    const plan::Plan plan = fastest(p, with_M(k % 2 == 0 ? 3000 : 300'000));
    EXPECT_GT(plan.row().time->compute_s, 0) << k;
  }
}

/// What is walked has pairs, though most queries see nothing, or the first head sees one key.
TEST(Fastest, WalksWhereThePairsAre) {
  const index_t n = 1024, seeing = 256;
  const auto compute_of = [](const Problem& p) {
    return make_fastest_plan(p, with_M(1 << 20, "flash"), {.hardware = invented()}).row().time->compute_s;
  };
  const auto mask = [&](Range rows) {
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(n * n));
    std::mt19937 random(3);
    for (index_t i = rows.begin * n; i < rows.end * n; ++i)
      seen[static_cast<std::size_t>(i)] = random() % 3 == 0 ? 1 : 0;
    return std::make_shared<const RunLists>(patterns::of_mask({n, n}, seen));
  };
  Problem one = of(Operation::forward, n, 64);
  for (const index_t first : {index_t{0}, n - seeing}) {
    one.patterns = {mask({first, first + seeing})};
    const double dense =
        2.0 * 64 * seeing * n / model::rates_of(invented(), model::largest_isa(invented()), DType::f32).macs;
    EXPECT_GT(compute_of(one), dense * 0.9) << first;
    EXPECT_LT(compute_of(one), dense * 2) << first;
  }
  std::vector<std::uint8_t> last(static_cast<std::size_t>(n * n));
  last.back() = 1;
  const auto single = std::make_shared<const RunLists>(patterns::of_mask({n, n}, last)), whole = mask({0, n});
  Problem two = of(Operation::forward, n, 64, 2);
  two.patterns = {single, whole};
  const double single_first = compute_of(two);
  two.patterns = {whole, single};
  EXPECT_EQ(single_first, compute_of(two));
}

TEST(Fastest, WithoutPairsTakesTheTimeOfItsWords) {
  Problem p = of(Operation::forward, 64, 64);
  p.batch = 3;
  p.seqused_k = {0, 0, 0};
  const plan::Plan plan = make_fastest_plan(p, with_M(1 << 19), {.hardware = invented()});
  for (const plan::Row& row : plan.rows) {
    EXPECT_EQ(row.time->work_s(), 0);
    EXPECT_GT(row.time->total_s, 0);
    EXPECT_LT(row.time->total_s, 1e-3);
  }
}

/// Each residue of a dilated window is a window: worth the copies, where there is work enough.
TEST(Fastest, TakesTheOrderOfLeastTime) {
  Problem p = of(Operation::forward, 1024, 64, 4);
  p.patterns = {std::make_shared<const RunLists>(patterns::window({1024, 1024}, 64, 64, 8))};
  const TimeOptions time{.hardware = invented()};
  const plan::Plan chosen = make_fastest_plan(p, with_M(1 << 20), time);
  EXPECT_NE(chosen.problem.order, PatternOrder::natural);
  EXPECT_THAT(chosen.reason, HasSubstr("order; the natural order would take"));
  plan::Options stay = with_M(1 << 20);
  stay.reorder = false;
  const plan::Plan natural = make_fastest_plan(p, stay, time);
  EXPECT_EQ(natural.problem.order, PatternOrder::natural);
  EXPECT_LT(chosen.row().time->total_s, natural.row().time->total_s);
  Problem named = p;
  named.order = chosen.problem.order;
  EXPECT_EQ(make_fastest_plan(named, stay, time).row().time->total_s, chosen.row().time->total_s);
}

/// A block of queries that sees nothing: to leave it out every array is copied.
TEST(Fastest, LeavesQueriesAndKeysInPlaceWhereCopiesTakeLonger) {
  constexpr index_t kBlocks = 16, n = 64 * kBlocks;
  std::vector<std::uint8_t> seen(kBlocks * kBlocks);
  for (index_t b = 1; b < kBlocks; ++b) seen[static_cast<std::size_t>(b * kBlocks + (7 * b) % kBlocks)] = 1;
  Problem p = of(Operation::forward, n, 64, 4);
  p.patterns = {std::make_shared<const RunLists>(patterns::of_blocks({n, n}, 64, 64, seen))};
  const TimeOptions time{.hardware = invented()};
  const plan::Plan chosen = make_fastest_plan(p, with_M(1 << 20), time);
  EXPECT_EQ(chosen.problem.order, PatternOrder::in_place);
  EXPECT_FALSE(chosen.problem.sizes().sequences->reordered());
  EXPECT_THAT(chosen.reason, HasSubstr("stay in place: the copies of natural order"));
  plan::Options stay = with_M(1 << 20);
  stay.reorder = false;
  const plan::Plan natural = make_fastest_plan(p, stay, time);
  EXPECT_TRUE(natural.problem.sizes().sequences->reordered());
  EXPECT_LT(chosen.row().time->total_s, natural.row().time->total_s);
  EXPECT_LE(natural.row().io.total(), chosen.row().io.total());
}

/// Patterns of more runs than an order is searched for, and the dilated window that is taken by residues.
TEST(Fastest, SaysWhatBecameOfTheOrder) {
  plan::Options options = with_M(4000, "flash");  // to plan every schedule takes ten times as long
  options.reorder = true;
  const auto both = [&](const Problem& p) { return std::array{plan::make_plan(p, options), fastest(p, options)}; };
  Problem p = of(Operation::forward, 4160, 16, 1);
  p.patterns = {std::make_shared<const RunLists>(patterns::strided({p.n_q, p.n_k}, 2))};
  for (const plan::Plan& plan : both(p)) {
    EXPECT_EQ(plan.problem.order, PatternOrder::natural);
    EXPECT_THAT(plan.reason, HasSubstr("; no other order of queries and keys was looked for"));
  }
  p = of(Operation::forward, 4160, 16, 1);
  p.causal = true;
  p.dilation = 2;
  for (const plan::Plan& plan : both(p)) EXPECT_THAT(plan.reason, HasSubstr("each residue modulo 2"));
}

/// One sequence is walked for all, under its own part of the pattern.
TEST(Fastest, PlansUnderPatternsAndSequences) {
  for (const Operation op : {Operation::forward, Operation::backward, Operation::scores, Operation::forward_x})
    for (const index_t kv_heads : {1, 2})
      for (const bool packed : {false, true}) {
        Problem p = of(op, 96, 8, 2);
        if (op != Operation::forward_x) p.kv_heads = kv_heads;
        p.batch = packed ? 1 : 2;
        if (packed)
          p.cu_seqlens_q = {0, 24, 90, 96};
        else
          p.seqused_q = {60, 33}, p.seqused_k = {20, 77};
        p.patterns = {std::make_shared<const RunLists>(patterns::longformer({96, 96}, 8, 0, 2))};
        for (const index_t M : {1000, 100'000})
          EXPECT_GT(fastest(p, with_M(M)).row().time->total_s, 0)
              << name_of(op) << ' ' << kv_heads << ' ' << packed << ' ' << M;
      }
}

/// The longest sequence is walked for all, and the others take as much less as they have less work; but no number of
/// workers ends before the longest does.
TEST(Fastest, SequencesOfMixedLengthsTakeTheTimeOfTheirWork) {
  Problem longest = of(Operation::forward, 1000, 64), packed = of(Operation::forward, 1320, 64);
  packed.cu_seqlens_q = {0, 1000};
  for (int i = 1; i <= 10; ++i) packed.cu_seqlens_q.push_back(1000 + 32 * i);
  for (Problem* p : {&longest, &packed}) p->causal = true;
  plan::Options o = with_M(100'000, "flash");
  o.tiling = plan::make_plan(longest, o).row().tiling;
  const auto time_of = [&](const Problem& p, int threads) {
    return modelled_time(plan::make_plan(p, o), {.hardware = invented(), .threads = threads});
  };
  const double work =
      plan::make_plan(packed, o).row().flops.to_double() / plan::make_plan(longest, o).row().flops.to_double();
  EXPECT_NEAR(time_of(packed, 1).compute_s / time_of(longest, 1).compute_s, work, 1e-6);
  EXPECT_GE(time_of(packed, 64).total_s, 0.99 * time_of(longest, 64).compute_s);
}

/// One head is walked for all: it must be one that the schedule takes.
TEST(Fastest, PlansWhereOnlySomeHeadsHaveAPatternThatIsNoMask) {
  const std::vector<std::uint8_t> corner{1, 0, 0, 0, 0, 0, 0, 0, 0}, cross{1, 0, 1, 0, 1, 0, 1, 0, 1};
  const auto list = [](const auto& seen) { return std::make_shared<const RunLists>(patterns::of_mask({3, 3}, seen)); };
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const bool exchanged : {false, true})
      for (const index_t kv_heads : {1, 2}) {
        Problem p = of(op, 3, 2, 2);
        p.kv_heads = kv_heads;
        p.patterns = exchanged ? Patterns({list(cross), list(corner)}) : Patterns({list(corner), list(cross)});
        for (const plan::Row& row : fastest(p, with_M(1000)).rows) EXPECT_GT(row.time->total_s, 0) << row.schedule;
      }
}

TEST(Timed, SeesEveryMultiplyAdd) {
  const model::Rates rates = model::rates_of(invented(), Isa::avx512, DType::f32);
  for (const Operation op : kAll)
    for (const plan::Row& row : plan::make_plan(small(op), with_M(400)).rows) {
      const plan::Plan plan = plan::make_plan(small(op), with_M(400, std::string(row.schedule)));
      EXPECT_EQ(2 * timed(plan, rates).macs(), plan.row().flops.to_double()) << name_of(op) << " " << row.schedule;
    }
}

/// An exponential kernel that Timed does not know shows here: every schedule turns each score into a weight.
TEST(Timed, SeesEveryExponential) {
  model::Rates rates = model::rates_of(invented(), Isa::avx512, DType::f32);
  rates.exps = rates.portable_exps = 1;
  for (const Operation op : kAll)
    for (const plan::Row& row : plan::make_plan(small(op), with_M(400)).rows) {
      if (op == Operation::scores) continue;  // no weights
      const plan::Plan plan = plan::make_plan(small(op), with_M(400, std::string(row.schedule)));
      EXPECT_GE(timed(plan, rates).time().exp_s, 24 * 24) << name_of(op) << " " << row.schedule;
    }
  const plan::Plan flash = plan::make_plan(small(Operation::forward), with_M(400, "flash"));
  EXPECT_EQ(timed(flash, rates).time().exp_s, 24 * 24);
}

/// A kernel that is in no list of ours.
struct TwoExponentials {
  static constexpr std::string_view name = "two_exponentials";
  static constexpr std::array access{kernel::Access::update};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr index_t exponentials(Shape S) { return 2 * S.words(); }
  template <class T>
  void run(View<T>) const {}
};

TEST(Timed, AsksAKernelWhatItCosts) {
  model::Rates rates = model::rates_of(invented(), Isa::avx512, DType::f32);
  rates.exps = rates.portable_exps = 1;
  model::Timed walk(rates, 1000);
  machine::Any any(walk);
  const auto S = any.alloc(SlowArray::S, {3, 5});
  any.compute(TwoExponentials{}, S);
  EXPECT_EQ(walk.time().exp_s, 30);
}

/// One panel of scores is scratch of a fused implementation; keys and values pass and are read once for each panel.
TEST(Timed, CountsWhatIsHeldAndTouched) {
  const model::Rates rates = model::rates_of(invented(), Isa::avx512, DType::f32);
  const Problem p = problem(96, 64, 8, 8);
  model::Timed walk(rates, 1000);
  schedule::FlashForward::run(walk, schedule::ForwardOperands(p.sizes(), 1, 0), {96, 32});
  const double Q = 96 * 8, O = Q, lse = 96, keys_and_values = 32 * 16;
  EXPECT_EQ(walk.held(), Q + O + 2 * lse + 48 * 32 + keys_and_values);
  const double step = Q + 2 * (O + 2 * lse) + keys_and_values, init = O + 2 * lse, finish = 2 * (O + lse) + lse;
  EXPECT_EQ(walk.touched(), init + 2 * step + finish);
}

/// Flash copies queries, outputs and lse; keys and values pass while the products are formed.
TEST(Timed, TellsWordsThatAreCopiedFromThoseThatPass) {
  const plan::Plan plan = plan::make_plan(small(Operation::forward), with_M(400, "flash"));
  const Io& io = plan.row().io;
  const double passed = (io.reads[index_of(SlowArray::K)] + io.reads[index_of(SlowArray::V)]).to_double();
  const model::Timed walk = timed(plan, model::rates_of(invented(), Isa::avx512, DType::f32));
  EXPECT_NEAR(walk.copied_share(), 1 - passed / io.total().to_double(), 1e-12);
}

TEST(Timed, ReluHasNoExponentials) {
  Problem p = small(Operation::forward);
  p.score = Score::relu;
  const plan::Plan plan = plan::make_plan(p, with_M(400, "flash"));
  EXPECT_EQ(timed(plan, model::rates_of(invented(), Isa::avx512, DType::f32)).time().exp_s, 0);
}

const plan::Row& row_of(const plan::Plan& plan, std::string_view schedule) {
  for (const plan::Row& r : plan.rows)
    if (r.schedule == schedule) return r;
  throw Error("no row " + std::string(schedule));
}

TEST(FastestPlan, RanksByTimeAndFillsEveryTerm) {
  for (const Operation op : {Operation::forward, Operation::backward, Operation::gradient_x}) {
    const plan::Plan plan = fastest(of(op, 512, 64), with_M(100'000));
    double last = 0;
    for (const plan::Row& r : plan.rows) {
      ASSERT_TRUE(r.time) << r.schedule;
      const bool ranked = &r != &plan.row() && plan.may_choose(r);  // after the chosen one
      if (ranked) {
        EXPECT_GE(r.time->total_s, last) << r.schedule;
        last = r.time->total_s;
      }
      EXPECT_GT(r.time->compute_s, 0) << r.schedule;
      EXPECT_GT(r.time->exp_s, 0) << r.schedule;
      EXPECT_GT(r.time->pass_s, 0) << r.schedule;
      EXPECT_GT(r.time->transfer_s, 0) << r.schedule;
    }
    EXPECT_LE(plan.row().footprint, 100'000);
  }
}

TEST(FastestPlan, IsNoSlowerThanTheOneOfFewestWords) {
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const index_t M : {2'000, 20'000, 200'000}) {
      const TimeOptions time{invented()};
      const Problem p = of(op, 600, 64);
      const plan::Plan fast = make_fastest_plan(p, with_M(M), time), few = plan::make_plan(p, with_M(M));
      EXPECT_LE(fast.row().time->total_s, modelled_time(few, time).total_s);
      EXPECT_GE(fast.io().total(), few.io().total());
    }
}

TEST(FastestPlan, RunsNoScheduleThatWasNotAskedFor) {
  const plan::Plan plan = fastest(of(Operation::forward, 300, 32), with_M(10'000, "naive"));
  EXPECT_EQ(plan.rows.size(), 1U);
  EXPECT_EQ(plan.row().schedule, "naive");
  EXPECT_THAT(plan.reason, HasSubstr("was asked for"));
}

TEST(FastestPlan, KeepsToTheMultiplesAskedFor) {
  plan::Options o = with_M(100'000);
  o.multiple = {32, 8, 1};
  const plan::Plan plan = fastest(of(Operation::forward, 2048, 64), o);
  for (const schedule::TileSize& k : row_of(plan, "flash").tiling) EXPECT_EQ(k.value % (k.name == "Br" ? 32 : 8), 0);
}

TEST(FastestPlan, LargeProblemsAreWalkedInPart) {
  const TimeOptions time{invented()};
  const auto seconds = [&](index_t n) {
    return make_fastest_plan(of(Operation::forward, n, 64), with_M(100'000, "flash"), time).row().time->compute_s;
  };
  EXPECT_NEAR(seconds(1 << 20) / seconds(1 << 12), 65536, 3000);
}

TEST(FastestPlan, FewQueriesStayInTheProblemThatIsWalked) {
  plan::Options o = with_M(1 << 16, "flash");
  o.multiple.query = 16;
  o.multiple.key = 128;
  const auto time_of = [&](index_t keys) { return *fastest(problem(16, keys, 128, 128), o).row().time; };
  const model::Time once = time_of(1 << 17), twice = time_of(1 << 18);
  EXPECT_NEAR(twice.pass_s / once.pass_s, 2, 0.02);
  EXPECT_NEAR(twice.compute_s / once.compute_s, 2, 0.02);
}

TEST(FastestPlan, QueriesThatSeeAKeyStayInTheProblemThatIsWalked) {
  Problem p = problem(1 << 20, 200, 64, 64);
  p.causal = true;  // the last 200 queries see a key
  const plan::Plan plan = make_fastest_plan(p, with_M(1 << 16, "flash"), {.hardware = invented()});
  EXPECT_GT(plan.row().time->compute_s, 0);
}

TEST(FastestPlan, ManyGroupsOfKeysAreWalkedInPart) {
  const auto seconds = [&](index_t n_k, int threads) {
    const plan::Plan plan = fastest(problem(1, n_k, 64, 64), with_M(100'000, "split_keys"), threads);
    EXPECT_EQ(plan.row().tiling.back().value, n_k / 2048) << "groups";
    return plan.row().time->total_s;
  };
  for (const int threads : {1, 4}) {
    EXPECT_NEAR(seconds(1 << 18, threads) / seconds(1 << 16, threads), 4, 0.4) << threads;
    EXPECT_NEAR(seconds(1 << 24, threads) / seconds(1 << 18, threads), 64, 6) << threads;
  }
}

/// A ring copies all keys and values, and nothing is computed meanwhile; flash reads them where they lie.
TEST(FastestPlan, CopiesHideBehindNoWork) {
  for (const index_t d : {64, 128}) {
    Problem p = of(Operation::forward, 2048, d, 4);
    p.causal = true;
    p.window_left = 256;
    const plan::Plan plan = fastest(p, {});
    EXPECT_EQ(plan.row().schedule, "flash") << "d = " << d;
    const model::Time ring = *row_of(plan, "ring").time, flash = *plan.row().time;
    EXPECT_NEAR(ring.total_s, ring.work_s() + ring.transfer_s, 1e-12);
    EXPECT_LT(flash.total_s, 0.99 * (flash.work_s() + flash.transfer_s));
  }
}

TEST(FastestPlan, SizesBeyondAnyMemoryArePlanned) {
  for (const index_t n : first_of<index_t>({index_t{1} << 48, 100'000'000'000})) {
    Problem p = of(Operation::backward, n, 64);
    p.causal = true;
    EXPECT_GT(fastest(p, with_M(100'000), 2).row().time->total_s, 1e6);
  }
}

TEST(FastestPlan, ThreadsHelpWhereRoundsAreIndependent) {
  const auto faster = [](Operation op, std::string schedule, index_t heads) {
    const Problem p = of(op, 2048, 64, heads);
    const auto seconds = [&](int threads) { return fastest(p, with_M(50'000, schedule), threads).row().time->total_s; };
    return seconds(1) / seconds(4);
  };
  EXPECT_GT(faster(Operation::forward, "flash", 1), 3);
  EXPECT_LT(faster(Operation::backward, "fused_key_outer", 1), 1.2) << "e1 goes over heads alone";
  EXPECT_GT(faster(Operation::backward, "fused_key_outer", 8), 3);
}

TEST(FastestPlan, ForwardBeforeAGradientIsFastToo) {
  Problem p = of(Operation::backward, 512, 64);
  p.forward_given = false;
  const TimeOptions time{invented()};
  const plan::Plan plan = make_fastest_plan(p, with_M(100'000), time);
  ASSERT_TRUE(plan.forward);
  ASSERT_TRUE(plan.forward->row().time);
  EXPECT_NEAR(modelled_time(plan, time).total_s, plan.row().time->total_s + plan.forward->row().time->total_s, 1e-12);
}

/// Two passes move fewer words for 7 products in place of 5.
TEST(FastestPlan, SlowMemoryPrefersFewWordsAndSlowArithmeticFewFlops) {
  const Problem p = of(Operation::backward, 2048, 64);
  const plan::Plan slow_memory = make_fastest_plan(p, with_M(30'000), {machine("hardware_slow_memory")});
  const plan::Plan slow_arithmetic = make_fastest_plan(p, with_M(30'000), {machine("hardware_slow_arithmetic")});
  EXPECT_LT(slow_memory.io().total(), slow_arithmetic.io().total());
  EXPECT_GT(slow_memory.flops(), slow_arithmetic.flops());
  EXPECT_THAT(slow_arithmetic.reason, HasSubstr("the fewest words, with which two_pass"));
  EXPECT_THAT(slow_arithmetic.reason, HasSubstr("x the time"));
  EXPECT_THAT(slow_memory.reason, HasSubstr("takes the least modelled time"));
}

TEST(FastestPlan, AmongTimesThatAreHardlyApartMovesTheFewestWords) {
  int other_than_the_fastest = 0;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const bool causal : {false, true})
      for (const index_t n : {64, 200, 300, 512, 700, 1024, 2048}) {
        Problem p = of(op, n, 64, 8);
        p.causal = causal;
        const plan::Plan plan = fastest(p, with_M(100'000));
        const plan::Row& chosen = plan.row();
        double least = chosen.time->total_s;
        for (const plan::Row& row : plan.rows)
          if (row.algorithm->traits.stable && row.fits) least = std::min(least, row.time->total_s);
        EXPECT_LE(chosen.time->total_s, 1.002 * least);
        for (const plan::Row& row : plan.rows) {
          const bool close = row.algorithm->traits.stable && row.fits && row.time->total_s <= 1.002 * least;
          EXPECT_FALSE(close && row.io.total() < chosen.io.total()) << row.schedule << ", not " << chosen.schedule;
        }
        // Of the chosen schedule the table shows the chosen tiling, which need not be the fastest.
        const bool fastest = plan.reason.find("takes the least modelled time") != std::string::npos;
        EXPECT_TRUE(!fastest || chosen.time->total_s == least);
        EXPECT_TRUE(fastest || plan.reason.find("of those within 0.2 %") != std::string::npos) << plan.reason;
        other_than_the_fastest += !fastest;
      }
  EXPECT_GT(other_than_the_fastest, 0) << "no two were so close: the rule is untested";
}

/// A cap that the plan of fewest words keeps is no reason to refuse: other tilings of the search may take more.
TEST(FastestPlan, KeepsACapThatThePlanOfFewestWordsKeeps) {
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const index_t n : {100, 512, 2048}) {
      const Problem p = of(op, n, 64, 2);
      plan::Options options = with_M(260'000);
      options.cap = plan::Cap{1, [](const plan::Plan& plan) { return 4 * plan.row().footprint; }};
      try {
        plan::make_plan(p, options);
        ADD_FAILURE() << "a run of one byte";
      } catch (const MemoryError& e) {
        options.cap->most = e.needed;
      }
      EXPECT_NO_THROW(fastest(p, options)) << name_of(op) << " n = " << n;
    }
}

/// M allows the same tiles on both machines; the smaller cache does not hold them.
TEST(FastestPlan, TilesAreSmallerForASmallerPrivateCache) {
  Hardware small_cache = invented();
  small_cache.levels[1].bytes /= 4;
  const auto footprint = [](const Hardware& h) {
    plan::Options o;
    o.M = fast_memory_of(h, DType::f32);
    return make_fastest_plan(of(Operation::forward, 2048, 128), o, {h}).row().footprint;
  };
  EXPECT_LT(footprint(small_cache), footprint(invented()));
}

TEST(FastestPlan, WantsANumberOfWorkersThatThereMayBe) {
  for (const int threads : {0, kMostCores + 1})
    EXPECT_THROW(fastest(of(Operation::forward, 8, 8), with_M(1000), threads), InvalidProblem);
}

TEST(FastestPlan, FastMemoryIsTwiceThePrivateCache) {
  EXPECT_EQ(fast_memory_of(invented(), DType::f32), 524288);
  EXPECT_EQ(fastest(of(Operation::forward, 300, 32), {}).options.M, 524288);
  EXPECT_EQ(fast_memory_of(invented(), DType::f64), 262144);
  EXPECT_EQ(fast_memory_of(invented(), DType::bf16), fast_memory_of(invented(), DType::f32));  // its words are f32
}

/// Problems and threads for which plans of least time are made under caps.
struct Capped {
  Problem problem;
  index_t M;
  int threads;
};
std::vector<Capped> capped_problems() {
  Problem whole = of(Operation::backward, 1024, 64);
  whole.forward_given = false;  // O and lse take memory, too
  Problem causal = of(Operation::backward, 200, 32, 3);
  causal.forward_given = false;
  causal.causal = true;
  return {{whole, 524288, 1},
          {causal, 30000, 2},
          {of(Operation::forward, 512, 64, 8), 65536, 1},
          {of(Operation::forward, 300, 48), 20000, 2}};
}

TEST(Fastest, EveryCapThatAPlanKeepsMakesItAgainAndNoPlanBreaksItsCap) {
  for (const auto& [problem, M, threads] : capped_problems()) {
    const Tensors tensors = contiguous_tensors(problem, DType::f32);
    RunOptions run;
    run.threads = threads;
    TimeOptions time;
    time.hardware = invented();
    time.threads = threads;
    plan::Options options = with_M(M);
    const plan::Plan free = make_fastest_plan(problem, options, time);
    const Words bytes = run_bytes(free, tensors, run);
    options.cap = memory_cap(bytes, tensors, run);
    const plan::Plan same = make_fastest_plan(problem, options, time);
    EXPECT_EQ(same.row().schedule, free.row().schedule);
    EXPECT_EQ(same.row().time->total_s, free.row().time->total_s);
    EXPECT_LE(run_bytes(same, tensors, run), bytes);
    for (const int percent : {99, 90, 70, 50, 30, 10}) {
      const Words cap = bytes * percent / 100;
      SCOPED_TRACE(std::to_string(percent) + " % of " + bytes.str());
      options.cap = memory_cap(cap, tensors, run);
      try {
        EXPECT_LE(run_bytes(make_fastest_plan(problem, options, time), tensors, run), cap);
      } catch (const MemoryError& e) {
        EXPECT_GT(e.needed, cap);
        EXPECT_THAT(e.what(), HasSubstr(e.needed.str()));
        options.cap = memory_cap(e.needed, tensors, run);
        EXPECT_LE(run_bytes(make_fastest_plan(problem, options, time), tensors, run), e.needed);
      }
    }
  }
}

}  // namespace
}  // namespace redblue::test
