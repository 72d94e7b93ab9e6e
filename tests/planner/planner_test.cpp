#include "redblue/planner/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/with_M.hpp"
#include "redblue/language/error.hpp"
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/score_tiles.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/many_cases.hpp"
#include "support/refusal.hpp"
#include "support/schedules.hpp"
#include "support/table.hpp"

namespace redblue::test {
namespace {

using plan::make_plan;
using plan::Options;
using plan::Plan;
using plan::Row;
using testing::HasSubstr;

const Row* find(const Plan& plan, std::string_view schedule) {
  for (const Row& r : plan.rows)
    if (r.schedule == schedule) return &r;
  return nullptr;
}

/// A tile size of the row, 0 if it has none of that name.
index_t tile_size(const Row& row, std::string_view name) {
  for (const schedule::TileSize& k : row.tiling)
    if (k.name == name) return k.value;
  return 0;
}

/// Is this a tile size that keeps to the multiples?
bool keeps_to(const schedule::Multiples& m, const schedule::TileSizeRange& range, index_t value, const Sizes& x) {
  if (range.along == nullptr) return true;
  const index_t multiple = range.along == &Sizes::n_q ? m.query : range.along == &Sizes::n_k ? m.key : m.feature;
  return value == x.*range.along || value % multiple == 0;
}

Problem any_problem(int most = 3000) {
  const auto size = [&](int n) { return *rc::gen::inRange(1, n); };
  Problem p = problem(size(most), size(most), size(300), size(300));
  p.causal = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) p.causal_offset = *rc::gen::inRange(-most, most);
  p.kv_heads = size(3);
  p.heads = *p.kv_heads * size(4);
  p.batch = size(3);
  return p;
}

/// Of Q, K, V, O, lse, S; all others 4.
std::array<index_t, kSlowArrays> widths(const std::array<index_t, 6>& first) {
  std::array<index_t, kSlowArrays> all{};
  all.fill(4);
  std::copy(first.begin(), first.end(), all.begin());
  return all;
}

Options any_options() {
  const auto size = [&](int n) { return *rc::gen::inRange(1, n); };
  Options o = with_M(*rc::gen::element(40, 1000, 5000, 30000, 300000) + size(1000));
  o.reserve = *rc::gen::element(0, 0, 2, 30);
  o.double_buffer = *rc::gen::arbitrary<bool>();
  o.multiple = {*rc::gen::element(1, 1, 4, 16, 48), *rc::gen::element(1, 1, 8, 16), *rc::gen::element(1, 1, 8, 32)};
  o.write_cost = *rc::gen::element(1.0, 0.5, 3.0);
  if (*rc::gen::arbitrary<bool>()) o.width = widths({2, 1, 1, 2, 4, 4});
  return o;
}

/// "29x32" of the table; the second side is 0 in "61xp", a panel.
std::pair<index_t, index_t> sides(const std::string& text) {
  const std::size_t x = text.find('x');
  return {std::stoll(text.substr(0, x)), text.substr(x + 1) == "p" ? 0 : std::stoll(text.substr(x + 1))};
}

TEST(Planner, SquareTilesKeepToTheMultiples) {
  for (const auto& [op, name] :
       {std::pair(Operation::forward, "saha_ye"), std::pair(Operation::gradient_x, "algorithm_6")})
    for (const index_t M : {900, 5000, 60000})
      for (const schedule::Multiples m : {schedule::Multiples{16, 16, 1}, {16, 12, 1}, {1, 8, 5}}) {
        Problem p = problem(300, 500, 40, 40);
        p.op = op;
        Options o = with_M(M, name), free = o;
        o.multiple = m;
        SCOPED_TRACE(testing::Message() << name << " M = " << M << ' ' << m.query << ' ' << m.key << ' ' << m.feature);
        const auto keeps = [&](index_t b) { return b % m.query == 0 && b % m.key == 0 && b % m.feature == 0; };
        index_t largest = tile_size(make_plan(p, free).row(), "B"), least = 1;
        while (largest > 0 && !keeps(largest)) --largest;
        while (!keeps(least)) ++least;
        try {
          EXPECT_EQ(tile_size(make_plan(p, o).row(), "B"), std::max(largest, least));
        } catch (const CapacityError&) {
          EXPECT_GT(Words(3) * least * least, M) << "the smallest tiles fit";
        }
      }
}

TEST(Planner, ReproducesTheTable) {
  const auto table = table_of_theory_41();
  ASSERT_EQ(table.size(), 24U);
  for (const TableRow& line : table) {
    const index_t d = std::stoll(line.at("d")), M = std::stoll(line.at("M"));
    SCOPED_TRACE("d = " + line.at("d") + ", M = " + line.at("M"));
    const Plan plan = make_plan(problem(4096, 4096, d, d), with_M(M));
    const auto words = [](const Plan& p, const char* schedule) {
      const Row* row = find(p, schedule);
      return row == nullptr ? std::string() : row->io.total().str();
    };
    for (const char* schedule :
         {"flash", "flash_pinned", "key_outer", "small_cache", "saha_ye", "score_tiles", "naive"})
      EXPECT_EQ(words(plan, schedule), line.at(schedule)) << schedule;

    Options sixteen_keys = with_M(M, "flash_tiled");
    sixteen_keys.multiple.key = 16;
    if (line.at("flash_tiled16").empty())
      EXPECT_THROW(make_plan(plan.problem, sixteen_keys), CapacityError);
    else
      EXPECT_EQ(words(make_plan(plan.problem, sixteen_keys), "flash_tiled"), line.at("flash_tiled16"));

    const auto number = [&](const char* column) { return line.at(column).empty() ? 0 : std::stoll(line.at(column)); };
    const auto expect_tile_size = [&](const char* schedule, const char* name, const char* column) {
      const Row* row = find(plan, schedule);
      EXPECT_EQ(row == nullptr ? 0 : tile_size(*row, name), number(column)) << column;
    };
    expect_tile_size("flash", "Br", "flash_Br");
    expect_tile_size("key_outer", "Bc", "key_outer_Bc");
    // The other tiles of the table are one of several that cost the same: they fit, and move the words of the table.
    const auto expect_tiling = [&]<class S>(std::type_identity<S>, typename S::Tiling t, const char* column) {
      EXPECT_LE(S::footprint(plan.problem.sizes(), t), M) << column;
      EXPECT_EQ(S::io(plan.problem.sizes(), t).total().str(), line.at(column));
    };
    if (number("pin_Br") > 0)
      expect_tiling(std::type_identity<schedule::FlashPinnedForward>{}, {number("pin_Br"), number("pin_rho"), 1},
                    "flash_pinned");
    expect_tiling(std::type_identity<schedule::ScoreTilesForward>{}, {number("st_a"), number("st_b")}, "score_tiles");
    const auto [a, b] = sides(line.at("sc_phase1"));
    const auto [a2, c2] = sides(line.at("sc_phase2"));
    expect_tiling(std::type_identity<schedule::SmallCacheForward>{}, {{b == 0, a, std::max<index_t>(b, 1)}, {a2, c2}},
                  "small_cache");

    EXPECT_EQ(plan.bound.words.str(), line.at("bound"));
    EXPECT_EQ(plan.bound.name, line.at("bound_letter") == "t"   ? "trivial"
                               : line.at("bound_letter") == "s" ? "F'"
                                                                : "F''");
    EXPECT_NEAR(plan.row().ratio.value(), std::stod(line.at("ratio")), 0.0005 + 1e-12);
  }
}

RC_GTEST_PROP(Planner, KeepsEveryPromiseOfItsOptions, ()) {
  const Problem p = any_problem();
  const Options o = any_options();
  try {
    const Plan plan = make_plan(p, o);
    const auto cheaper = [](const Row& a, const Row& b) { return a.cost < b.cost; };
    const auto compared =
        std::find_if(plan.rows.begin(), plan.rows.end(), [&](const Row& r) { return !plan.may_choose(r); });
    RC_ASSERT(plan.chosen == 0);
    RC_ASSERT(std::is_sorted(plan.rows.begin(), compared, cheaper));
    RC_ASSERT(std::is_sorted(compared, plan.rows.end(), cheaper));
    RC_ASSERT(plan.row().algorithm->traits.stable);
    const std::size_t special = plan.row().algorithm->traits.narrow || plan.row().algorithm->traits.lists_pairs ? 1 : 0;
    RC_ASSERT(plan.rows.size() + plan.refused.size() == softmax_schedules().size() + special);
    for (const Row& row : plan.rows) {
      if (row.footprint + row.prefetch + o.reserve > o.M) RC_FAIL(std::string(row.schedule) + " does not fit");
      RC_ASSERT(o.double_buffer || row.prefetch == 0);
      RC_ASSERT(row.io.total() >= plan.bound.words);
      for (const schedule::TileSize& k : row.tiling) {
        if (!keeps_to(o.multiple, row.algorithm->tile_size(k.name), k.value, p.sizes()))
          RC_FAIL(std::string(row.schedule) + ": " + std::string(k.name) + " = " + std::to_string(k.value));
      }
    }
  } catch (const CapacityError&) {  // nothing fits
  }
}

RC_GTEST_PROP(Planner, SmallestMIsTheSmallest, ()) {
  const Problem p = any_problem(200);
  Options o = any_options();
  for (const std::string_view schedule : softmax_schedules()) {
    o.schedule = schedule;
    o.M = 1;
    Words least;
    try {
      make_plan(p, o);
      continue;                     // no query sees a key: nothing is read
    } catch (const Unsupported&) {  // at no M: a mask it does not know, a single column that cannot be split
      o.M = index_t{1} << 40;
      RC_ASSERT_THROWS_AS(make_plan(p, o), Unsupported);
      continue;
    } catch (const CapacityError& e) {
      least = e.needed;
      RC_ASSERT(std::string(e.what()).find(least.str()) != std::string::npos);
    }
    for (const index_t more : {0, 1, 2, 5, 10, 100}) {
      o.M = least + more;
      try {
        make_plan(p, o);
      } catch (const CapacityError& e) {
        RC_FAIL(std::string(schedule) + ", least + " + std::to_string(more) + ": " + e.what());
      }
    }
    o.M = least - 1;
    RC_ASSERT_THROWS_AS(make_plan(p, o), CapacityError);
  }
}

TEST(Planner, TooSmallMListsTheSmallestOfEverySchedule) {
  const Problem p = problem(100, 100, 64, 64);
  try {
    make_plan(p, with_M(2));
    FAIL() << "a plan for 2 words";
  } catch (const CapacityError& e) {
    EXPECT_EQ(e.available, 2);
    EXPECT_EQ(e.needed, 3);  // naive: a score, and a word each of Q and K
    for (const std::string_view name : softmax_schedules()) {
      EXPECT_THAT(e.what(), HasSubstr(std::string(name) + ": needs M >= "));
      try {
        make_plan(p, with_M(1, std::string(name)));
      } catch (const CapacityError& alone) {
        EXPECT_THAT(e.what(), HasSubstr(std::string(name) + ": needs M >= " + alone.needed.str()));
      }
    }
  }
}

TEST(Planner, RefusesWithTheReason) {
  Problem causal = problem(64, 64, 16, 16);
  causal.causal = true;
  const Plan masked = make_plan(causal, with_M(1000));
  std::vector<std::string> refused;
  for (const plan::Refusal& r : masked.refused) {
    refused.emplace_back(r.schedule);
    EXPECT_THAT(r.why, HasSubstr("mask"));
  }
  EXPECT_THAT(refused, testing::IsSupersetOf({"saha_ye"}));
  const auto was_refused = [&](const plan::Schedule& s) { return std::ranges::count(refused, s.name) == 1; };
  const auto schedules = plan::Registry::built_in().of(Operation::forward);
  for (const auto& s : schedules)
    EXPECT_EQ(was_refused(*s), !s->traits.masks && !s->traits.only_score && s->traits.method == MethodKind::exact)
        << s->name;

  Options o = with_M(1000);
  o.quadratic_workspace = false;
  const Plan lean = make_plan(problem(64, 64, 16, 16), o);
  refused.clear();
  for (const plan::Refusal& r : lean.refused) {
    refused.emplace_back(r.schedule);
    EXPECT_THAT(r.why, HasSubstr("4096 words of workspace"));
  }
  EXPECT_THAT(refused, testing::IsSupersetOf({"small_cache", "naive", "saha_ye"}));
  for (const auto& s : schedules)
    EXPECT_EQ(was_refused(*s), s->has_quadratic_workspace() && !s->traits.only_score && !s->traits.lists_pairs)
        << s->name;
  for (const Row& row : lean.rows) EXPECT_EQ(row.workspace, 0) << row.schedule;
}

TEST(Planner, KeepsScoresOfWindowsInRowsAsLongAsTheWindow) {
  Problem p = problem(100, 120, 16, 16);
  const auto words = [&](Operation op, const char* schedule) {
    p.op = op;
    return make_plan(p, with_M(1000, schedule)).row().workspace;
  };
  EXPECT_EQ(words(Operation::forward, "small_cache"), 100 * 120);
  p.window_left = 4, p.window_right = 2;
  EXPECT_EQ(words(Operation::forward, "small_cache"), 99 * 7 + 120);
  EXPECT_EQ(words(Operation::backward, "materialised"), 99 * 7 + 120 + 100);  // P and D
  p = problem(100, 120, 16, 16);
  p.cu_seqlens_q = {0, 40, 100}, p.cu_seqlens_k = {0, 70, 120};
  EXPECT_EQ(words(Operation::forward, "small_cache"), 99 * 70 + 120);
}

TEST(Planner, CannotSplitASingleColumn) {
  EXPECT_THROW(make_plan(problem(64, 64, 16, 1), with_M(1'000'000, "column_split")), Unsupported);
  const Plan plan = make_plan(problem(64, 64, 16, 1), with_M(1000));
  ASSERT_EQ(plan.refused.size(), 1U);
  EXPECT_EQ(plan.refused[0].schedule, "column_split");
  EXPECT_EQ(plan.refused[0].smallest_M, std::nullopt);
}

TEST(Planner, ReserveLeavesThatManyWords) {
  Options o = with_M(1000 + 37);
  o.reserve = 37;
  const Plan reserved = make_plan(problem(500, 500, 16, 16), o),
             plain = make_plan(problem(500, 500, 16, 16), with_M(1000));
  ASSERT_EQ(reserved.rows.size(), plain.rows.size());
  for (std::size_t i = 0; i < plain.rows.size(); ++i)
    EXPECT_EQ(reserved.rows[i].io.total(), plain.rows[i].io.total()) << plain.rows[i].schedule;
}

TEST(Planner, DoubleBufferingLeavesRoomForSecondBuffers) {
  // One query, its output, statistics and score; one word that passes, one that is on its way.
  Options o = with_M(1, "flash");
  o.double_buffer = true;
  const Problem p = problem(500, 500, 16, 16);
  try {
    make_plan(p, o);
    FAIL();
  } catch (const CapacityError& e) {
    EXPECT_EQ(e.needed, 16 + 16 + 2 + 1 + 1 + 1);
    o.M = e.needed;
  }
  EXPECT_EQ(make_plan(p, o).row().prefetch, 1);
}

TEST(Planner, ExpensiveWritesMoveSchedulesThatRevisitOutputsDown) {
  const Problem p = problem(4096, 4096, 64, 64);
  const auto rank = [&](double write_cost) {
    Options o = with_M(16384);
    o.write_cost = write_cost;
    const Plan plan = make_plan(p, o);
    return std::find_if(plan.rows.begin(), plan.rows.end(), [](const Row& r) { return r.schedule == "key_outer"; }) -
           plan.rows.begin();
  };
  EXPECT_LT(rank(0), rank(1));
  EXPECT_LT(rank(1), rank(10));
}

TEST(Planner, WidthsMinimiseBytes) {
  Options o = with_M(16384);
  o.width = widths({2, 1, 1, 2, 4, 4});  // Q, K, V, O, lse, S
  const Plan plan = make_plan(problem(1000, 1000, 64, 64), o);
  for (const Row& row : plan.rows) {
    Words bytes;
    for (std::size_t a = 0; a < kSlowArrays; ++a) bytes += o.width[a] * (row.io.reads[a] + row.io.writes[a]);
    EXPECT_EQ(row.bytes, bytes) << row.schedule;
    EXPECT_EQ(row.cost, 1000 * bytes) << row.schedule;
  }
  // Scores twice as wide as anything else: the schedule that keeps them in slow memory loses ground.
  o.width = widths({1, 1, 1, 1, 1, 1});
  const auto cost_of_scores = [&] { return find(make_plan(plan.problem, o), "small_cache")->cost.to_double(); };
  const double narrow = cost_of_scores();
  o.width[index_of(SlowArray::S)] = 2;
  EXPECT_GT(cost_of_scores(), narrow);
}

TEST(Planner, SplitsTheKeysOfFewQueries) {
  for (const auto& [n_q, n_k, groups] : {std::array<index_t, 3>{1, 131072, 64},
                                         {16, 131072, 64},
                                         {32, 131072, 32},
                                         {1, 5000, 2},
                                         {1, 4095, 1},
                                         {4096, 4096, 1}}) {
    const Plan plan = make_plan(problem(n_q, n_k, 64, 32), with_M(100'000, "split_keys"));
    const Row flash = make_plan(plan.problem, with_M(100'000, "flash")).row(), split = plan.row();
    EXPECT_EQ(tile_size(split, "G"), groups) << n_q << " queries";
    const Words merged = groups > 1 ? Words(groups) * n_q * 33 : Words(0);
    EXPECT_EQ(split.workspace, merged);
    EXPECT_EQ(split.io.total(), flash.io.total() + Words(groups - 1) * n_q * 64 + 2 * merged);
    EXPECT_LE(split.io.total().to_double(), 1.02 * flash.io.total().to_double());
    EXPECT_EQ(split.footprint, flash.footprint);
    EXPECT_NE(make_plan(plan.problem, with_M(100'000)).row().schedule, "split_keys");
  }
}

TEST(Planner, HeadsAndBatchesMultiply) {
  Problem one = problem(100, 100, 16, 16), many = one;
  many.heads = 6;
  many.batch = 2;
  const Plan plan = make_plan(many, with_M(2000)), single = make_plan(one, with_M(2000));
  ASSERT_EQ(plan.rows.size(), single.rows.size());
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    EXPECT_EQ(plan.rows[i].io, 12 * single.rows[i].io);
    EXPECT_EQ(plan.rows[i].flops, 12 * single.rows[i].flops);
    EXPECT_EQ(plan.rows[i].footprint, single.rows[i].footprint);
  }
  // Six query heads on two key-value heads are two problems of three times as many rows.
  many.kv_heads = 2;
  const Plan grouped = make_plan(many, with_M(2000)), stacked = make_plan(problem(300, 100, 16, 16), with_M(2000));
  EXPECT_EQ(grouped.row().io, 4 * stacked.row().io);
  EXPECT_LT(grouped.row().io.total(), plan.row().io.total());
}

TEST(Planner, GivesAReasonWithNumbers) {
  EXPECT_THAT(make_plan(problem(4096, 4096, 64, 64), with_M(16384)).reason,
              testing::AllOf(HasSubstr("M = 4 d^2"), HasSubstr("flash"), HasSubstr("2.34x as many")));
  EXPECT_THAT(make_plan(problem(4096, 4096, 64, 64), with_M(16384, "naive")).reason, HasSubstr("naive was asked for"));
}

TEST(Planner, TakesTheTilingThatIsGiven) {
  const Problem p = problem(300, 200, 16, 16);
  Options o = with_M(2000, "flash");
  const Row best = make_plan(p, o).row();
  o.tiling = best.tiling;
  EXPECT_EQ(make_plan(p, o).row().io, best.io);
  o.tiling = {{"Br", 10}, {"Bc", 1}};
  const Row given = make_plan(p, o).row();
  EXPECT_EQ(given.tiling, *o.tiling);
  EXPECT_EQ(given.io.reads[index_of(SlowArray::K)], 30 * 200 * 16) << "30 blocks of queries read all keys";
  o.M = 300;
  EXPECT_FALSE(make_plan(p, o).row().fits);
  EXPECT_THAT(make_plan(p, o).reason, HasSubstr("flash was asked for; it needs"));
}

TEST(Planner, RefusesATilingThatMakesNoSense) {
  const auto refused = [](Options o, plan::Tiling tiling, const char* why) {
    o.tiling = std::move(tiling);
    EXPECT_THAT([&] { make_plan(problem(300, 200, 16, 16), o); },
                testing::ThrowsMessage<InvalidProblem>(HasSubstr(why)));
  };
  refused(with_M(2000), {{"Br", 10}}, "a tiling is of one schedule");
  refused(with_M(2000, "flash"), {{"Cr", 10}}, "flash has no tile size Cr");
  refused(with_M(2000, "flash"), {{"Br", 0}}, "Br = 0 of flash: give 1 or more");
  refused(with_M(2000, "column_split"), {{"Br", 10}, {"w", 16}}, "column_split cannot run with Br=10 w=16");
}

TEST(Planner, NeverChoosesAnUnstableScheduleUnasked) {
  for (const index_t M : {16, 64, 256, 1024, 4096})
    EXPECT_NE(make_plan(problem(512, 512, 512, 512), with_M(M)).row().schedule, "saha_ye");
  EXPECT_EQ(make_plan(problem(512, 512, 512, 512), with_M(64, "saha_ye")).row().schedule, "saha_ye");
}

TEST(Planner, TakesOwnSoftmaxByNameOrAfterAForwardPass) {
  Problem p = problem(512, 512, 16, 16);
  p.op = Operation::backward;
  p.causal = true;
  p.window_left = 32;
  const auto rank_of = [](const Plan& plan) {
    return std::ranges::find(plan.rows, "ring", &Row::schedule) - plan.rows.begin();
  };
  const Plan given = make_plan(p, with_M(8000));
  EXPECT_NE(given.row().schedule, "ring") << "gradients are those of the O and lse that are given";
  EXPECT_LT(rank_of(given), std::ssize(given.rows)) << "listed all the same";
  EXPECT_EQ(given.row().schedule, "ring_queries") << "the ring that takes them as they are";
  EXPECT_THAT(given.reason, testing::Not(HasSubstr("ring moves")));
  EXPECT_EQ(make_plan(p, with_M(8000, "ring")).row().schedule, "ring");
  EXPECT_EQ(make_plan(p, with_M(8000, "ringB1")).row().schedule, "ring");
  p.forward_given = false;
  EXPECT_EQ(make_plan(p, with_M(8000)).row().schedule, "ring");
}

/// The table of theory notes 2g: n = 4096, d = 64, 128 keys on either side.
TEST(Planner, RingsOfGradientsHaveTheFiguresOfTheNotes) {
  Problem p = problem(4096, 4096, 64, 64);
  p.op = Operation::backward;
  p.window_left = p.window_right = 128;
  const auto check = [&](index_t M, std::string_view name, index_t words) {
    const Plan plan = make_plan(p, with_M(M, std::string(name)));
    EXPECT_EQ(plan.row().footprint, M) << name;
    EXPECT_EQ(plan.row().io.total(), words) << name;
    EXPECT_THROW(make_plan(p, with_M(M - 1, std::string(name))), std::exception) << name;
  };
  check(66371, "ringB1", 1835008);
  check(49922, "ringB2", 2101248);
  check(33925, "ringB3", 2895872);
  EXPECT_EQ(make_plan(p, with_M(49922)).row().schedule, "ring_queries") << "it needs no forward pass of its own";
  EXPECT_NE(make_plan(p, with_M(49921)).row().schedule, "ring_queries");
}

/// The words of the theory notes 2j, for windows of w keys.
TEST(Planner, ReproducesTheTableOfStrips) {
  struct Of {
    index_t keys, forward, backward;
  };
  for (const Of& w : {Of{16, 8'653'824, 22'237'728}, Of{32, 9'412'608, 25'562'688}, Of{64, 12'522'496, 38'781'568},
                      Of{128, 25'245'696, 92'231'424}}) {
    Problem p = problem(4096, 4096, 512, 512);
    p.causal = true;
    p.window_left = w.keys - 1;
    const Plan plan = make_plan(p, with_M(4096));
    EXPECT_EQ(plan.row().schedule, "strips");
    EXPECT_EQ(plan.row().io.total(), w.forward);
    p.op = Operation::backward;
    EXPECT_EQ(make_plan(p, with_M(4096, "strips")).row().io.total(), w.backward);
    EXPECT_NE(make_plan(p, with_M(4096)).row().schedule, "strips");
    p.forward_given = false;
    EXPECT_EQ(make_plan(p, with_M(4096)).row().schedule, w.keys < 128 ? "strips" : "materialised");
  }
}

TEST(Planner, TakesStripsWhereverTheyMoveTheFewestWords) {
  Problem p = problem(90, 90, 512, 512);
  const auto best = [&](index_t M) {
    const Plan plan = make_plan(p, with_M(M));
    EXPECT_EQ(plan.row().schedule, "strips");
    return plan.row().io.total();
  };
  EXPECT_EQ(best(4096), 276'570);
  p.causal = true;
  const Words alone = best(4096);
  EXPECT_EQ(alone, 196'698);
  p.n_q = p.n_k = 180, p.cu_seqlens_q = {0, 90, 180};
  EXPECT_EQ(best(4096), 2 * alone);
}

TEST(Planner, TakesStripsOfTheMaskAroundAPattern) {
  Problem p = problem(1024, 1024, 128, 128);
  p.window_left = 63;
  p.causal = true;
  const Words window = make_plan(p, with_M(4096)).row().io.total();
  RunLists rows;  // the window without one pair
  for (index_t i = 0; i < 1024; ++i) {
    const index_t first = std::max<index_t>(0, i - 63);
    if (i == 500)
      rows.append(1, {{first, 480}, {481, i + 1}});
    else
      rows.append(1, {{first, i + 1}});
  }
  p.window_left.reset(), p.causal = false;
  p.patterns = {std::make_shared<const RunLists>(std::move(rows))};
  EXPECT_EQ(make_plan(p, with_M(4096)).row().io.total(), window);
}

TEST(Planner, ReadsLittleOfABiasThatAMaskHides) {
  Problem p = problem(4096, 4096, 64, 64);
  p.heads = 8;
  p.causal = true;
  p.bias = {1, 8, 4096, 4096};
  Words before = make_plan(p, with_M(300'000)).row().cost;
  for (const index_t M : {400'000, 535'590, 700'000, 902'554, 1'200'000}) {
    const Words words = make_plan(p, with_M(M)).row().cost;
    EXPECT_LE(words.to_double(), 1.01 * before.to_double()) << M;
    before = words;
  }
}

TEST(Planner, AnswersForSizesFarBeyondMemory) {
  const index_t n = index_t{1} << 40;
  std::vector<std::pair<index_t, index_t>> all;
  for (const index_t d : {1, 64, 256})
    for (const index_t M : {100, 16384, 1 << 24}) all.emplace_back(d, M);
  for (const auto& [d, M] : cases(all)) {  // few: each d once, and each M
    const Plan plan = make_plan(problem(n, n, d, d), with_M(M));
    EXPECT_GT(plan.row().io.total(), n) << "d = " << d << ", M = " << M;
    EXPECT_GE(plan.row().ratio.value(), 1);
  }
}

TEST(Planner, NamesTheBadSizeOrOption) {
  const Problem good = problem(8, 8, 4, 4);
  const auto message = [](const Problem& p, const Options& o) {
    return refusal_of<InvalidProblem>([&] { make_plan(p, o); });
  };
  const auto with = [&](auto change) {
    Problem p = good;
    change(p);
    return message(p, with_M(100));
  };
  const auto having = [&](auto change) {
    Options o = with_M(100);
    change(o);
    return message(good, o);
  };
  EXPECT_THAT(with([](Problem& p) { p.n_q = 0; }), HasSubstr("n_q = 0"));
  EXPECT_THAT(with([](Problem& p) { p.n_k = -1; }), HasSubstr("n_k = -1"));
  EXPECT_THAT(with([](Problem& p) { p.d = 0; }), HasSubstr("d = 0"));
  EXPECT_THAT(with([](Problem& p) { p.d_v = index_t{1} << 60; }), HasSubstr("d_v = 1152921504606846976"));
  EXPECT_THAT(with([](Problem& p) { p.batch = 0; }), HasSubstr("batch = 0"));
  EXPECT_THAT(with([](Problem& p) { p.heads = 0; }), HasSubstr("heads = 0"));
  EXPECT_THAT(with([](Problem& p) { p.heads = 8, p.kv_heads = 3; }),
              testing::AllOf(HasSubstr("heads = 8"), HasSubstr("kv_heads = 3")));
  EXPECT_THAT(with([](Problem& p) { p.batch = p.heads = index_t{1} << 40; }), HasSubstr("too large"));
  EXPECT_THAT(with([](Problem& p) { p.scale = std::nan(""); }), HasSubstr("scale"));
  EXPECT_THAT(with([](Problem& p) { p.causal_offset = index_t{1} << 60; }), HasSubstr("causal_offset"));
  EXPECT_THAT(having([](Options& o) { o.M = 0; }), HasSubstr("M = 0"));
  EXPECT_THAT(having([](Options& o) { o.M = -5; }), HasSubstr("M = -5"));
  EXPECT_THAT(having([](Options& o) { o.reserve = -1; }), HasSubstr("reserve = -1"));
  EXPECT_THAT(having([](Options& o) { o.multiple.key = 0; }), HasSubstr("multiple of keys = 0"));
  EXPECT_THAT(having([](Options& o) { o.write_cost = std::nan(""); }), HasSubstr("write_cost"));
  EXPECT_THAT(having([](Options& o) { o.write_cost = -1; }), HasSubstr("write_cost"));
  EXPECT_THAT(having([](Options& o) { o.width = widths({4, 4, -4, 4, 4, 4}); }), HasSubstr("width of V = -4"));
  EXPECT_THAT(having([](Options& o) { o.width = widths({4, 0, 4, 4, 4, 4}); }), HasSubstr("width of K = 0"));
  EXPECT_THAT(having([](Options& o) { o.schedule = "fast"; }),
              testing::AllOf(HasSubstr("'fast'"), HasSubstr("flash_pinned")));
}

/// One group of keys is flash, and so is one group of columns of values: no rivals to compare with.
TEST(Planner, ReasonComparesWithNoPlanThatIsTheSame) {
  Problem p = problem(4096, 4096, 64, 64);
  p.causal = true;
  const Plan plan = make_plan(p, with_M(16384));
  ASSERT_EQ(plan.row().schedule, "flash");
  EXPECT_EQ(tile_size(*find(plan, "split_keys"), "G"), 1);
  EXPECT_THAT(plan.reason, testing::Not(HasSubstr("split_keys")));
}

TEST(Registry, RefusesSchedulesThatCannotBeToldApart) {
  plan::Registry registry;
  plan::Schedule flash = *plan::Registry::built_in().find(Operation::forward, "flash");
  registry.add(flash);
  EXPECT_THAT([&] { registry.add(flash); },
              testing::ThrowsMessage<InvalidProblem>(HasSubstr("there is a schedule 'flash'")));
  flash.name = "";
  EXPECT_THAT([&] { registry.add(flash); }, testing::ThrowsMessage<InvalidProblem>(HasSubstr("has no name")));
  EXPECT_EQ(registry.of(Operation::forward).size(), 1U);
}

TEST(Registry, ProjectedSchedulesCautionAsThePlainOnesDo) {
  const plan::Registry& registry = plan::Registry::built_in();
  const Sizes x{300, 400, 8, 8, {}, true, Score::softmax, 8};
  int cautions = 0;
  for (const auto& [op, plain_op] :
       {std::pair(Operation::forward_x, Operation::forward), std::pair(Operation::backward_x, Operation::backward),
        std::pair(Operation::backward_w, Operation::backward)})
    for (const auto& projected : registry.of(op)) {
      const auto plain = registry.find(plain_op, projected->name.substr(projected->name.find('_') + 1));
      if (plain == nullptr) continue;
      const auto caution = plain->caveat(x, plain->smallest(x, {}));
      EXPECT_EQ(projected->caveat(x, projected->smallest(x, {})), caution) << projected->name;
      cautions += caution.empty() ? 0 : 1;
    }
  EXPECT_GT(cautions, 0);
}

}  // namespace
}  // namespace redblue::test
