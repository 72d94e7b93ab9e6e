#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/methods/bounds.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/polynomial_rows_tiled.hpp"
#include "redblue/methods/schedules/polynomial_tiled.hpp"
#include "redblue/planner/planner.hpp"

/// Plans of polynomial attention against the table of docs/algorithms/polynomial.md.
namespace redblue::test {
namespace {

/// Of n = 65536, d_v = d; s = 0: the state is resident.
struct StateRow {
  index_t d, degree, r, M, words, s, cb, groups, bound;
};
constexpr std::array kTable{StateRow{16, 2, 153, 1024, 8585216, 16, 6, 1, 6968878},
                            StateRow{16, 2, 153, 16384, 4194304, 0, 0, 0, 4194304},
                            StateRow{16, 2, 153, 262144, 4194304, 0, 0, 0, 4194304},
                            StateRow{16, 4, 4845, 1024, 188940288, 12, 1, 6, 97049121},
                            StateRow{16, 4, 4845, 16384, 15073280, 16, 3, 1, 11447054},
                            StateRow{16, 4, 4845, 262144, 4194304, 0, 0, 0, 4194304},
                            StateRow{32, 3, 6545, 1024, 752418816, 8, 3, 24, 356646758},
                            StateRow{32, 3, 6545, 16384, 76611584, 32, 2, 1, 47060348},
                            StateRow{32, 3, 6545, 262144, 8388608, 0, 0, 0, 8388608},
                            StateRow{32, 4, 58905, 1024, 5712052224, 6, 2, 136, 2359849866},
                            StateRow{32, 4, 58905, 16384, 548470784, 24, 3, 12, 278726147},
                            StateRow{32, 4, 58905, 262144, 42532864, 32, 4, 1, 29744569},
                            StateRow{64, 2, 2145, 1024, 716242944, 11, 8, 21, 390860120},
                            StateRow{64, 2, 2145, 16384, 92930048, 64, 7, 1, 63692851},
                            StateRow{64, 2, 2145, 262144, 16777216, 0, 0, 0, 16777216},
                            StateRow{64, 3, 47905, 1024, 12695044096, 6, 4, 276, 5220842968},
                            StateRow{64, 3, 47905, 16384, 1264779264, 18, 5, 18, 689123663},
                            StateRow{64, 3, 47905, 262144, 118292480, 64, 5, 1, 85960344},
                            StateRow{64, 4, 814385, 1024, 168646803456, 5, 3, 2743, 65251748977},
                            StateRow{64, 4, 814385, 16384, 17902796800, 11, 5, 266, 7707435807},
                            StateRow{64, 4, 814385, 262144, 1732837376, 29, 6, 20, 829447260}};

Problem problem_of(const StateRow& line) {
  Problem p;
  p.n_q = p.n_k = 65536;
  p.d = p.d_v = line.d;
  p.approximation = approximate_exp(line.degree, 1);
  return p;
}
index_t value(const plan::Tiling& t, std::string_view name) {
  for (const schedule::TileSize& k : t)
    if (k.name == name) return k.value;
  return 0;
}

}  // namespace

TEST(PolynomialPlans, ReproduceTheTable) {
  using Tiled = schedule::PolynomialTiledForward;
  for (const StateRow& line : kTable) {
    SCOPED_TRACE(testing::Message() << "d " << line.d << " degree " << line.degree << " M " << line.M);
    const plan::Plan plan = plan::make_plan(problem_of(line), {.M = line.M});
    const plan::Row& row = plan.row();
    EXPECT_EQ(row.io.total(), line.words);
    EXPECT_LE(row.footprint, line.M);
    EXPECT_EQ(monomials(line.d, line.degree), line.r);
    EXPECT_EQ(row.schedule, line.s == 0 ? "polynomial" : "polynomial_tiled");
    EXPECT_EQ(plan.bound.name, "trivial");
    if (line.s == 0) continue;
    EXPECT_EQ(value(row.tiling, "s"), line.s);
    EXPECT_EQ(value(row.tiling, "values") + 1, line.cb);
    const Sizes x = plan.sizes();
    const schedule::PolynomialPasses passes(x, schedule::tiling_from<Tiled::Tiling>(row.tiling));
    EXPECT_EQ(passes.count(), passes.columns.count() * line.groups);
  }
}

TEST(PolynomialPlans, HaveTheBoundOfTheirClass) {
  for (const StateRow& line : kTable) {
    SCOPED_TRACE(testing::Message() << "d " << line.d << " degree " << line.degree << " M " << line.M);
    const auto bounds = bound::bounds_of(Operation::forward, bound_problem(problem_of(line), line.M));
    ASSERT_EQ(bounds.size(), 2U);
    EXPECT_EQ(bounds[1].status, "restricted");
    EXPECT_EQ(std::max(bounds[0].words, bounds[1].words), line.bound);
  }
}

/// Each row with its polynomial: the state in tiles, keys and queries once more, and a number for each row and pass.
/// The notes have 4,301,312 words, without what tells rows apart.
TEST(PolynomialPlans, OfRowsInTilesReadTheirNumbers) {
  Problem p;
  p.n_q = p.n_k = 512;
  p.d = p.d_v = 32;
  p.approximate("4:12,centred,no-exact-rows");
  const plan::Plan plan = plan::make_plan(p, {.M = 16384});
  ASSERT_EQ(plan.row().schedule, "polynomial_rows_tiled");
  const auto tiling = schedule::tiling_from<schedule::PolynomialRowsTiledForward::Tiling>(plan.row().tiling);
  const schedule::PolynomialPasses passes(plan.sizes(), tiling.tiles());
  EXPECT_EQ(plan.row().io.total(), passes.io(plan.sizes()).total() + 3 * 512 * 32 + 512 + passes.count() * 512);
  EXPECT_EQ(plan.row().io.total(), 4402176);
  EXPECT_LE(plan.row().footprint, 16384);
}

/// Where rows or keys are exact the state does not serve all pairs: only the trivial bound is left. Centred keys and
/// polynomials of each row stay in the class.
TEST(PolynomialPlans, OfHybridsHaveTheTrivialBound) {
  Problem p = problem_of(kTable[11]);
  for (const char* how : {"2:3,centred,exact-keys=16", "2:3,rows", "2:3,exact-keys=16,no-exact-rows"}) {
    p.approximate(how);
    const auto bounds = bound::bounds_of(Operation::forward, bound_problem(p, 1024));
    ASSERT_EQ(bounds.size(), 1U) << how;
    EXPECT_EQ(bounds[0].name, "trivial");
  }
  p.approximate("2:3,cluster=8,no-exact-rows");
  EXPECT_EQ(bound::bounds_of(Operation::forward, bound_problem(p, 1024)).size(), 1U);
  p.approximate("2:3,gaussian,no-exact-rows");
  EXPECT_EQ(bound::bounds_of(Operation::forward, bound_problem(p, 1024)).size(), 2U);
  p.approximate("2:3,centred,no-exact-rows");
  EXPECT_EQ(bound::bounds_of(Operation::forward, bound_problem(p, 1024)).size(), 2U);
}

/// What answers with the same error bound stands in one plan, and nothing else.
TEST(PolynomialPlans, StandApartFromExactOnes) {
  Problem p = problem_of(kTable[1]);
  for (const Operation op : {Operation::forward, Operation::backward}) {
    p.op = op;
    const plan::Plan approximate = plan::make_plan(p, {.M = 65536});
    for (const plan::Row& r : approximate.rows) {
      EXPECT_EQ(r.algorithm->traits.method, methods::kPolynomial) << r.schedule;
      EXPECT_EQ(r.weight_error, polynomial_of(p)->error);
    }
    Problem exact = p;
    exact.approximation = nullptr;
    const plan::Plan plain = plan::make_plan(exact, {.M = 65536});
    for (const plan::Row& r : plain.rows) EXPECT_EQ(r.algorithm->traits.method, MethodKind::exact) << r.schedule;
    for (const plan::Row& r : plain.rows) EXPECT_EQ(r.weight_error, 0);
    for (const plan::Refusal& r : plain.refused) EXPECT_FALSE(r.schedule.starts_with("polynomial"));
    EXPECT_THROW(plan::make_plan(exact, {.M = 65536, .schedule = "polynomial"}), Unsupported);
  }
}

TEST(PolynomialPlans, HaveTheFiguresOfTheNotes) {
  Problem p = problem_of(kTable[2]);
  const index_t n = p.n_q, d = p.d, r = kTable[2].r, g = 2;
  const index_t least = r * (d + 1) + 2 * d + 1 + g;  // one row at a time
  EXPECT_EQ(plan::make_plan(p, {.M = least, .schedule = "polynomial"}).row().footprint, least);
  EXPECT_THROW(plan::make_plan(p, {.M = least - 1, .schedule = "polynomial"}), CapacityError);
  EXPECT_GT(plan::make_plan(p, {.M = 262144}).row().footprint, least) << "more rows, as there is room";
  p.causal = true;
  const plan::Row causal = plan::make_plan(p, {.M = 262144}).row();
  EXPECT_EQ(causal.io.total(), 4 * n * d);
  // A chunk of 64 queries meets 63 keys as scores, and holds the one that the next chunk begins with, too.
  EXPECT_EQ(causal.footprint, r * (d + 1) + 64 * 2 * d + 64 * (2 * d + 1) + 64 * 63);
  p.causal = false;
  p.op = Operation::backward;
  const plan::Row two = plan::make_plan(p, {.M = 262144}).row();
  EXPECT_EQ(two.schedule, "polynomial_two_states");
  EXPECT_EQ(two.io.total(), 9 * n * d);
  EXPECT_EQ(two.footprint, 2 * r * (d + 1) + 4 * d + g + 1);
  const plan::Row one = plan::make_plan(p, {.M = 4096}).row();
  EXPECT_EQ(one.schedule, "polynomial");
  EXPECT_EQ(one.io.total(), 9 * n * d + 2 * n * (d + 1) + n * d);
  EXPECT_EQ(one.footprint, r * (d + 1) + 4 * d + g + 1);
}

/// Both move every word once under a causal mask. The tiled one takes less arithmetic, for it takes one query at a
/// time, which is far slower, and a word of workspace for each query.
TEST(PolynomialPlans, LessWorkspaceDecidesAmongEqualWords) {
  for (const index_t d : {16, 32}) {
    Problem p;
    p.n_q = p.n_k = 4096;
    p.d = p.d_v = d;
    p.causal = true;
    p.approximation = approximate_exp(2, 1);
    const plan::Plan plan = plan::make_plan(p, {.M = 65536});
    ASSERT_EQ(plan.rows.size(), 2U);
    EXPECT_EQ(plan.rows[0].schedule, "polynomial");
    EXPECT_EQ(plan.rows[0].cost, plan.rows[1].cost);
    EXPECT_LT(plan.rows[0].workspace, plan.rows[1].workspace);
    EXPECT_GT(plan.rows[0].flops, plan.rows[1].flops);
  }
}

/// The words of docs/algorithms/polynomial-pairs.md, where data list h rows, and its footprint for one key at a time.
TEST(PolynomialPlans, ByPairsHaveTheWordsOfTheirPage) {
  for (const bool centred : {false, true}) {
    Problem p = problem_of(kTable[1]);
    const Words n = p.n_q, d = p.d, H = 4096, M = 16384, r = 153, g = 2, cen = centred ? 1 : 0;
    p.approximation = polynomials_of_rows(2, 1, {.centred = centred, .exact_keys = H.to_index()});
    const plan::Plan plan = plan::make_plan(p, {.M = M});
    const plan::Row& row = plan.row();
    ASSERT_EQ(row.schedule, "polynomial_pairs") << "4096 keys and values are 131072 words";
    const index_t br = value(row.tiling, "br"), Br = value(row.tiling, "Br");
    for (const index_t h : std::array<index_t, 4>{0, 1, 700, 65536}) {
      const Words passes = schedule::c(p.n_q, br), exact = schedule::c(h, Br);
      const auto costs = row.algorithm->costs(plan.sizes(), row.tiling, {p.n_q, h});
      EXPECT_EQ(costs.io.total_reads(), (cen + 1) * n * d + (n - H) * 2 * d + passes * H * 2 * d + n * d +
                                            Words(h) * (d + 1) + exact * n * 2 * d);
      EXPECT_EQ(costs.io.total_writes(), n * d + h);
      EXPECT_LE(costs.footprint, M);
    }
    const plan::Tiling one = plan::Tiling{{"br", 5}, {"bc", 1}, {"Br", 1}, {"Bc", 1}};
    const Words state = r * (d + 1) + 1 + H + cen * d;
    EXPECT_EQ(row.algorithm->footprint(plan.sizes(), one),
              std::max(cen * d + 2 * H + d + 4, state + 5 * (2 * d + 2) + std::max(1 + g, 2 * d + 5)));
  }
}

/// The words of docs/algorithms/polynomial-rows.md under a causal mask, and its footprint for Br = Bc = bc = 1.
TEST(PolynomialPlans, ByRowsUnderACausalMaskHaveTheWordsOfTheirPage) {
  for (const bool centred : {false, true}) {
    Problem p;
    p.n_q = p.n_k = 512;
    p.d = p.d_v = 32;
    p.causal = true;
    p.approximation = polynomials_of_rows(2, 1, {.centred = centred, .exact_keys = 16});
    const plan::Plan plan = plan::make_plan(p, {.M = 22964});
    const plan::Row& row = plan.row();
    ASSERT_EQ(row.schedule, "polynomial_rows");
    const index_t n = 512, d = 32, Br = value(row.tiling, "Br");
    const Words once = Words(n) * d * (centred ? 4 : 3);
    for (const auto& [which, last_keys] : {
             // From the last block back: the last row of each, and thus its keys.
             std::pair(std::vector<Range>{}, std::vector<index_t>{}),
             std::pair(std::vector<Range>{{0, 1}}, std::vector<index_t>{1}),
             std::pair(std::vector<Range>{{2, 3}, {100, 100 + Br}}, std::vector<index_t>{100 + Br, 3}),
             std::pair(std::vector<Range>{{0, Br + 7}}, std::vector<index_t>{Br + 7, 7}),
         }) {
      Decisions decisions{n, 0, which};
      for (const Range& run : which) decisions.worst += run.size();
      Words keys;
      for (const index_t seen : last_keys) keys += seen;
      const Words h = decisions.worst;
      const auto costs = row.algorithm->costs(plan.sizes(), row.tiling, decisions);
      EXPECT_EQ(costs.io.total_reads(), once + h * (d + 1) + keys * 2 * d);
      EXPECT_EQ(costs.io.total_writes(), h + n * d);
    }
    const plan::Tiling one{{"Br", 1}, {"Bc", 1}, {"bc", 1}};
    const index_t state = 561 * (d + 1) + 1 + 16 * 2 * d, mean = centred ? d : 0;
    EXPECT_EQ(row.algorithm->footprint(plan.sizes(), one), state + mean + 2 * d + 2 + 2);
  }
}

/// The words and footprints of the notes' table, n = 512 and d = d_v = 32: 22,964 and 27,380 with 153,600, one sort in
/// fast memory; the state alone 18,612 with 81,920.
TEST(PolynomialPlans, ByClustersHaveTheFiguresOfTheNotes) {
  Problem p;
  p.n_q = p.n_k = 512;
  p.d = p.d_v = 32;
  for (const auto& [text, footprint, words, schedule] :
       {std::tuple("2:1.5,gaussian,cluster=64,no-exact-rows", 22964, 153600, "polynomial_clusters"),
        std::tuple("2:1.5,gaussian,cluster=128,no-exact-rows", 27380, 153600, "polynomial_clusters"),
        std::tuple("2:64,gaussian,no-exact-rows", 18612, 81920, "polynomial_rows")}) {
    p.approximate(text);
    const plan::Plan plan = plan::make_plan(p, {.M = footprint});
    EXPECT_EQ(plan.row().schedule, schedule);
    EXPECT_EQ(plan.row().io.total(), words) << text;
    EXPECT_EQ(plan.row().footprint, footprint) << text;
  }
  // Fewer words of M: a pass over the keys of a cluster for each half of its queries, 512 keys of 65 words more.
  p.approximate("2:1.5,gaussian,cluster=64,no-exact-rows");
  EXPECT_EQ(plan::make_plan(p, {.M = 22963}).row().io.total(), 153600 + 512 * 65);
  // Rows that are exact: their number, the query once more, and all keys for each Br of them.
  p.approximate("2:1.5,gaussian,cluster=64");
  const plan::Plan plan = plan::make_plan(p, {.M = 22964});
  const plan::Row& row = plan.row();
  const index_t Br = value(row.tiling, "Br"), h = 300;
  const auto costs = row.algorithm->costs(plan.sizes(), row.tiling, {512, h});
  EXPECT_EQ(costs.io.total(), Words(153600) + h * (32 + 2) + schedule::c(h, Br) * 512 * 64);
}

TEST(PolynomialPlans, RefuseWhatTheyCannotDo) {
  Problem p = problem_of(kTable[0]);
  p.softcap = 3;
  EXPECT_THROW(p.validate(), InvalidProblem);
  p.softcap = 0;
  p.lse_required = true;  // it has none, as other scores: nothing is written
  EXPECT_EQ(plan::make_plan(p, {.M = 262144}).io().writes[index_of(SlowArray::lse)], 0);
  p.lse_required = false;
  p.score = Score::relu;
  EXPECT_THROW(p.validate(), InvalidProblem);
  p.score = Score::softmax;
  p.op = Operation::gradient_x;
  EXPECT_THROW(p.validate(), InvalidProblem);
  p.op = Operation::forward;
  EXPECT_NO_THROW(p.validate());
  p.approximation = std::make_shared<const Polynomial>(near_exp(Fit::taylor, 1, 4));  // its error exceeds 1
  EXPECT_THROW(p.validate(), InvalidProblem);
  p.approximation = std::make_shared<const Polynomial>(near_exp(Fit::minimax, 13, 2));
  EXPECT_THROW(plan::make_plan(p, {.M = 65536}), Unsupported);
  p.approximation = approximate_exp(2, 1);
  p.window_left = 3;
  EXPECT_THROW(plan::make_plan(p, {.M = 65536}), Unsupported);
  p.window_left.reset();
  EXPECT_THROW(plan::make_plan(p, {.M = 5}), CapacityError);
  EXPECT_EQ(plan::make_plan(p, {.M = 6}).row().footprint, 6);  // 2 g + 2
}

}  // namespace redblue::test
