#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <optional>
#include <set>

#include "bounds/pairs.hpp"
#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/projected.hpp"
#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "support/generators.hpp"
#include "support/many_cases.hpp"

namespace redblue::test {
namespace {

using bound::AttentionProblem;
using bound::Bound;
using bound::bounds_of;

constexpr std::array kOperations = {Operation::backward, Operation::forward_x, Operation::gradient_x,
                                    Operation::backward_x, Operation::backward_w};

Problem of(Operation op, index_t n_q, index_t n_k, index_t d, index_t d_v) {
  Problem p = problem(n_q, n_k, d, d_v);
  p.op = op;
  if (op == Operation::backward_w) p.d_in = 1;
  return p;
}
AttentionProblem square(Operation op, index_t n, index_t d, Words M) { return bound_problem(of(op, n, n, d, d), M); }

const Bound& named(const std::vector<Bound>& bounds, std::string_view name) {
  for (const Bound& b : bounds)
    if (b.name == name) return b;
  throw std::runtime_error("no bound " + std::string(name));
}

/// Of any score function, too.
Problem any_problem(Operation op, int most = 400) {
  Problem p = test::any_problem(op, most);
  p.score = *rc::gen::element(Score::softmax, Score::softmax, Score::sigmoid, Score::relu, Score::identity);
  RC_LOG() << name_of(p.score) << '\n';
  return p;
}

// ---- What they say of themselves ----

void expect_lines(Operation op, const AttentionProblem& x,
                  const std::vector<std::pair<std::string, std::string>>& lines) {
  const auto bounds = bounds_of(op, x);
  ASSERT_EQ(bounds.size(), lines.size()) << name_of(op);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(bounds[i].name, lines[i].first);
    EXPECT_EQ(bounds[i].status, lines[i].second) << bounds[i].name;
    EXPECT_FALSE(bounds[i].algorithms.empty());
    EXPECT_FALSE(bounds[i].condition.empty());
  }
}

TEST(BackwardBounds, SayWhatTheyAre) {
  const auto x = [](Operation op) { return square(op, 100, 8, 64); };
  expect_lines(Operation::backward, x(Operation::backward),
               {{"trivial", "proved"}, {"B'", "proved"}, {"B''", "proved"}, {"B14", "proved"}, {"B10", "proved"}});
  expect_lines(Operation::gradient_x, x(Operation::gradient_x),
               {{"trivial", "proved"}, {"g", "proved"}, {"g'", "derived"}, {"g*", "restricted"}});
  expect_lines(Operation::forward_x, x(Operation::forward_x), {{"trivial", "proved"}, {"shared", "restricted"}});
  expect_lines(Operation::backward_x, x(Operation::backward_x), {{"trivial", "proved"}, {"g", "proved"}});
  expect_lines(Operation::backward_w, x(Operation::backward_w), {{"trivial", "proved"}});
}

TEST(BackwardBounds, IdentityLeavesTheTrivialOneAlone) {
  for (const Operation op : kOperations) {
    AttentionProblem x = square(op, 4096, 64, 1024);
    x.score = Score::identity;
    expect_lines(op, x, {{"trivial", "proved"}});
  }
}

TEST(BackwardBounds, OnlyProvedOnesAreTheBoundOfAProblem) {
  // g' and g* are far above what is proved here.
  const auto bounds = bounds_of(Operation::gradient_x, square(Operation::gradient_x, 4096, 64, 1024));
  EXPECT_GT(named(bounds, "g'").words, 3 * named(bounds, "g").words);
  EXPECT_GT(named(bounds, "g*").words, named(bounds, "g'").words);
  EXPECT_EQ(bound::best(bounds).name, "g");
  // So is the shared line.
  Problem p = of(Operation::forward_x, 4096, 4096, 64, 64);
  p.sources = Sources::shared;
  const auto forward = bounds_of(Operation::forward_x, bound_problem(p, 1024));
  EXPECT_GT(named(forward, "shared").words, 10 * named(forward, "trivial").words);
  EXPECT_EQ(bound::best(forward).name, "trivial");
}

RC_GTEST_PROP(BackwardBounds, TheBestIsTheLargestProvedOneThatHolds, ()) {
  for (const Operation op : kOperations) {
    const auto bounds = bounds_of(op, bound_problem(any_problem(op), *rc::gen::inRange(1, 100000)));
    const Bound best = bound::best(bounds);
    RC_ASSERT(best.holds && best.status == "proved");
    for (const Bound& b : bounds) {
      RC_ASSERT(b.holds || b.words == 0);
      RC_ASSERT(!b.holds || b.status != "proved" || b.words <= best.words);
    }
  }
}

// ---- Never above what some schedule does ----

RC_GTEST_PROP(Bounds, NeverAboveASchedule, ()) {
  const Operation op = *rc::gen::element(Operation::forward, Operation::backward, Operation::forward_x,
                                         Operation::gradient_x, Operation::backward_x, Operation::backward_w);
  const Problem p = any_problem(op, 250);
  for (const index_t M : {40, 400, 3000, 20000, 200000}) {
    plan::Options options;
    options.M = M;
    try {
      const plan::Plan plan = plan::make_plan(p, options);
      for (const plan::Row& row : plan.rows) {
        if (!row.fits) continue;
        const std::string_view restricted = row.algorithm->restricted_bound(p.sizes());
        for (const Bound& b : plan.bounds) {
          RC_LOG() << row.schedule << ' ' << M << ' ' << b.name << ' ' << b.words.str() << ' ' << row.io.total().str()
                   << '\n';
          const bool binds = b.status != "restricted" || b.name == restricted;
          RC_ASSERT(!b.holds || !binds || b.words <= row.io.total());
        }
      }
    } catch (const CapacityError&) {  // nothing runs in so few words
    }
  }
}

// ---- The trivial ones, word by word ----

/// Rows of A1, A2, A3 (or Q, K, V) and of dO that some output depends on: softmax of one score is 1 whatever it is.
struct Needed {
  std::set<index_t> a1, a2, a3, dO;
};
Needed needed_rows(const AttentionProblem& x, const std::vector<Range>& keys_of_rows) {
  Needed n;
  for (index_t r = 0; r < x.n_q; ++r) {
    const Range keys = keys_of_rows[static_cast<std::size_t>(r)];
    const index_t seen = keys.size();
    if (seen > 0) n.dO.insert(r);
    if (seen >= 2 || (seen == 1 && x.score != Score::softmax)) n.a1.insert(r);
    for (index_t j = keys.begin; j < keys.end; ++j) {
      n.a3.insert(j);
      if (n.a1.contains(r)) n.a2.insert(j);
    }
  }
  return n;
}

/// Of one instance of an operation with projections.
Words needed_words_of_instance(Operation op, const AttentionProblem& x, const Needed& n) {
  const index_t d = x.d, d_v = x.d_v;
  const auto count = [](const std::set<index_t>& s) { return static_cast<index_t>(s.size()); };
  const bool scored = !n.a1.empty(), seen = !n.a3.empty();
  // Values of keys that no score is formed with are needed for O and dY, not for g.
  std::set<index_t> a3 = op == Operation::gradient_x ? n.a2 : n.a3, both = n.a2;
  both.insert(a3.begin(), a3.end());
  std::set<index_t> all = both;
  all.insert(n.a1.begin(), n.a1.end());
  const index_t rows = x.sources == Sources::distinct ? count(n.a1) + count(n.a2) + count(a3)
                       : x.sources == Sources::shared ? count(n.a1) + count(both)
                                                      : count(all);
  const Words dO = Words(op == Operation::gradient_x ? count(n.a1) : count(n.dO)) * d_v;
  const Words sources = Words(x.n_q) + 2 * x.n_k;
  switch (op) {
    case Operation::forward_x:
      return Words(rows) * d + scored * d * d + seen * d * d_v + x.n_q * d_v + x.lse_required * x.n_q;
    case Operation::gradient_x:  // the derivative of the identity is 1: X does not matter
      return Words(rows) * d + (scored && x.score != Score::identity) * d * d + scored * d * d_v + dO + d * d;
    case Operation::backward_x:
      return Words(rows) * d + scored * d * d + seen * d * d_v + dO + d * (d + d_v) + sources * d;
    default:
      return Words(rows) * x.d_in + scored * 2 * x.d_in * d + seen * x.d_in * d_v + dO + x.d_in * (2 * d + d_v) +
             sources * x.d_in;
  }
}

Words needed_words(Operation op, const AttentionProblem& x) {
  const index_t d = x.d, d_v = x.d_v;
  const auto count = [](const std::set<index_t>& s) { return static_cast<index_t>(s.size()); };
  const auto lists = keys_of_rows(x);
  if (op == Operation::backward) {  // a value is needed for dP only
    Words inputs;
    for (const auto& rows : lists) {
      const Needed n = needed_rows(x, rows);
      inputs += Words(count(n.a1)) * d + count(n.dO) * d_v + count(n.a2) * (d + d_v);
    }
    return copies_of_lists(x) * inputs + x.instances * (Words(x.n_q) * d + x.n_k * (d + d_v));
  }
  Words words;
  for (const auto& rows : lists) words += needed_words_of_instance(op, x, needed_rows(x, rows));
  return copies_of_lists(x) * words;
}

RC_GTEST_PROP(BackwardBounds, TrivialCountsNoWordThatIsNotNeeded, ()) {
  for (const Operation op : kOperations) {
    const AttentionProblem x = bound_problem(any_problem(op, 40), 100);
    const Words trivial = bounds_of(op, x).front().words, needed = needed_words(op, x);
    RC_LOG() << "trivial " << trivial.str() << ", needed " << needed.str() << '\n';
    RC_ASSERT(trivial <= needed);
  }
}

RC_GTEST_PROP(BackwardBounds, TrivialCountsEveryNeededWordOfSoftmax, ()) {
  for (const Operation op : kOperations) {
    Problem p = any_problem(op, 40);
    p.score = Score::softmax;
    const AttentionProblem x = bound_problem(p, 100);
    RC_ASSERT(bounds_of(op, x).front().words == needed_words(op, x));
  }
}

// ---- Their formulas, a second time ----

/// ceil of a line, and how far rounding may be off.
void expect_ceil(Words words, long double line, long double scale) {
  const long double wanted = std::max(0.0L, std::ceil(line));
  RC_LOG() << words.str() << " for " << static_cast<double>(wanted) << '\n';
  RC_ASSERT(std::abs(words.to_long_double() - wanted) <= 1 + 1e-16L * scale);
}

/// max over s of 2 c s width N / sqrt M - s^2 N - rest.
long double best_start(long double most, long double width, long double N, long double M, long double rest,
                       long double whole_up_to) {
  const long double root = std::sqrt(M), c = 1 - 1 / (2 * M), s = std::min(1.0L, c * most / root);
  const long double some = 2 * c * s * width * N / root - s * s * N - rest;
  return root <= whole_up_to ? std::max(some, 2 * width * N / root - N - rest) : some;
}

RC_GTEST_PROP(BackwardBounds, BPrimeIsTheBestOfItsLines, ()) {
  const AttentionProblem x = bound_problem(any_problem(Operation::backward), *rc::gen::inRange(1, 100000));
  const long double N = static_cast<long double>(pairs_one_by_one(x)), M = x.M.to_long_double();
  long double line = 0;
  for (int k = 1; k <= 199; ++k) {
    const long double a = k / 200.0L,
                      Sm = (a + 2 * std::sqrt(1 - a)) * static_cast<long double>(x.d) +
                           std::sqrt(2.0L) * static_cast<long double>(x.d_v),
                      most = 2 * a * static_cast<long double>(x.d);
    line = std::max(line, best_start(most, Sm, N, M, M, most));
  }
  expect_ceil(bound::b_prime(x).words, line, 200 * N);
}

RC_GTEST_PROP(BackwardBounds, BDoublePrimeIsTheValueOfItsK, ()) {
  const AttentionProblem x = bound_problem(any_problem(Operation::backward), *rc::gen::inRange(1, 100000));
  const long double d = static_cast<long double>(x.d), v = static_cast<long double>(x.d_v);
  const Bound b = bound::b_double_prime(x);
  RC_ASSERT(b.holds == (x.d_v <= 2 * x.d));
  if (!b.holds) RC_ASSERT(b.words == 0);
  if (!b.holds) return;
  const long double K = v * v <= 2 * d * d ? (2 * d + v) * (2 * d + 2 * v) : (6 + 4 * std::sqrt(2.0L)) * d * v;
  expect_ceil(b.words, bound::value(pairs_one_by_one(x), K, x.M), 1e6L * x.M.to_long_double());
}

TEST(BackwardBounds, KOfBDoublePrimeChangesAtTheSquareRootOfTwo) {
  const auto words = [](index_t d_v) {
    return bound::b_double_prime(bound_problem(of(Operation::backward, 100000, 100000, 5, d_v), 100000)).words;
  };
  // N K / M for M >= 1.5 K: K = (10 + 7)(10 + 14) = 408 at d_v = 7, 11.66 * 40 = 466.3 at d_v = 8.
  EXPECT_EQ(words(7), Words(100000) * 408);
  EXPECT_NEAR(words(8).to_double(), 100000 * (6 + 4 * std::sqrt(2.0)) * 40, 2);
}

using redblue::detail::int128;
int128 ceil_div_128(int128 a, int128 b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

/// Program B14 in exact integers.
int128 exact_b14(const AttentionProblem& x, int128 N) {
  if (x.d > 8 * x.d_v || x.d_v > x.d) return 0;
  const int128 d = x.d, v = x.d_v, M = x.M.value();
  const int128 outputs = int128(x.instances) * (x.n_q * d + x.n_k * (d + v));
  const auto line = [&](int128 k5, int128 h) {
    return ceil_div_128(2 * k5 * (N - M), 100000 * (2 * M + h + 1)) - outputs;
  };
  const int128 k5 = 100000 * (d + v) * (4 * d + 3 * v) - 13 * d * d;
  int128 best = std::max<int128>(0, line(k5, ceil_div_128(4 * k5, 300000)));
  if (v == d && x.mask.full() && !x.sequences)
    best = std::max(best, line(1389600 * d * d, ceil_div_128(13896000 * d * d, 900000)));
  return best;
}

RC_GTEST_PROP(BackwardBounds, B14IsTheExactIntegerOfItsStatement, ()) {
  Problem p = any_problem(Operation::backward);
  if (*rc::gen::arbitrary<bool>()) p.d_v = p.d;
  const AttentionProblem x = bound_problem(p, *rc::gen::inRange(1, 2000));
  if (x.score == Score::identity) return;
  const int128 exact = exact_b14(x, pairs_one_by_one(x));
  const Bound b = bound::b14(x);
  RC_LOG() << "M " << x.M.str() << ": " << b.words.str() << " for " << Words::from_int128(exact).str() << '\n';
  RC_ASSERT(b.holds == (p.d <= 8 * p.d_v && p.d_v <= p.d));
  RC_ASSERT(b.words == Words::from_int128(exact));
}

TEST(BackwardBounds, B14IsExactToRoundingOnLongProblems) {
  for (const index_t n : {index_t{1} << 16, index_t{1} << 24, index_t{1} << 32, index_t{1} << 38})
    for (const auto& [d, d_v] : {std::pair<index_t, index_t>{64, 64}, {64, 8}, {128, 100}, {7, 3}})
      for (const index_t M : {index_t{1000}, index_t{300'000}, index_t{1} << 30}) {
        Problem p = of(Operation::backward, n, n, d, d_v);
        p.batch = 3;
        const AttentionProblem x = bound_problem(p, M);
        const int128 exact = exact_b14(x, int128(3) * n * n), ours = bound::b14(x).words.value();
        EXPECT_LE(ours, exact) << n << ' ' << d << ' ' << d_v << ' ' << M;
        EXPECT_GE(ours, exact - 1 - (exact >> 55)) << n << ' ' << d << ' ' << d_v << ' ' << M;
      }
}

/// The right side of B10 for any s, a, c; nothing where they break its conditions.
std::optional<long double> b10_line(const AttentionProblem& x, long double s, long double a, long double c) {
  const long double N = static_cast<long double>(pairs_one_by_one(x)), M = x.M.to_long_double(), g = 1 - 0.1L / (M * M);
  const long double d = static_cast<long double>(x.d), v = static_cast<long double>(x.d_v), root = std::sqrt(M);
  if (s * a > g * d / root || s * c > g * v / root) return std::nullopt;
  const Words outputs = Words(x.instances) * (Words(x.n_q) * x.d + x.n_k * (Words(x.d) + x.d_v));
  return 2 * g * s * N * ((a + 2) * d + (c + 1) * v) / root - 2 * s * s * (a * a + c * c) * N -
         outputs.to_long_double();
}

RC_GTEST_PROP(BackwardBounds, B10IsTheBestOfItsLines, ()) {
  const AttentionProblem x = bound_problem(any_problem(Operation::backward), *rc::gen::inRange(1, 20000));
  if (x.score == Score::identity) return;
  long double best = 0;
  // Of a grid of 200 x 11 x 11 lines each case takes every eighth, and not all cases take the same.
  for (int line = *rc::gen::inRange(0, 8); line < 200 * 11 * 11; line += 8) {
    const auto part = [](int m) { return 0.70711L + (1 - 0.70711L) * static_cast<long double>(m) / 10; };
    const long double s = static_cast<long double>(1 + line / 121) / 200;
    best = std::max(best, b10_line(x, s, part(line / 11 % 11), part(line % 11)).value_or(0));
  }
  const long double words = bound::b10(x).words.to_long_double();
  RC_LOG() << "M " << x.M.str() << ": " << words << " for " << best << '\n';
  // The line stays 0.00002 below its largest s; the grid is coarser.
  const long double products = best + static_cast<long double>(pairs_one_by_one(x)) + 1;
  RC_ASSERT(words + 0.001L * products >= best);
}

TEST(BackwardBounds, B10HasTheConstantsOfItsPage) {
  constexpr index_t n = index_t{1} << 30;
  const auto per_pair = [](index_t d, index_t d_v) {
    const AttentionProblem x = bound_problem(of(Operation::backward, n, n, d, d_v), 1 << 20);  // sqrt M = 1024
    return static_cast<double>(bound::b10(x).words.to_long_double() / (static_cast<long double>(n) * n));
  };
  EXPECT_NEAR(per_pair(16384, 16384), 156, 1e-3);
  EXPECT_NEAR(per_pair(2048, 2048), 16, 1e-4);
  EXPECT_NEAR(per_pair(1536, 1536), 6 * 1.5 + 2.25, 1e-4);
  EXPECT_NEAR(per_pair(1024, 1024), 2 * (3 + std::sqrt(2.0)) - 2, 1e-4);
  EXPECT_NEAR(per_pair(512, 512), (6 * std::sqrt(2.0)) / 4, 1e-3);
  EXPECT_NEAR(per_pair(4096, 2048), 2 * (3 * 4 + 2 * 2) - 4, 1e-4);
}

TEST(BackwardBounds, FiveProductsAreOptimalInSmallCaches) {
  plan::Options options;
  options.M = 1024;
  const auto ratio = [&options](index_t d) {
    const plan::Plan plan = plan::make_plan(of(Operation::backward, 1 << 20, 1 << 20, d, d), options);
    EXPECT_EQ(plan.bound.name, "B10");
    EXPECT_EQ(plan.row().schedule, "materialised");
    return plan.row().ratio.value();
  };
  // (10 x + 3) / (10 x - 4), and 3 % for tiles of 31 x 32 where 32 x 32 would be best.
  for (const index_t x : {4, 16, 64, 256}) {
    const double leading = static_cast<double>(10 * x + 3) / static_cast<double>(10 * x - 4);
    EXPECT_GT(ratio(32 * x), leading);
    EXPECT_LT(ratio(32 * x), 1.04 * leading);
  }
  // So no line has 11 x: it would be above what this schedule moves.
  EXPECT_LT(ratio(8192) * (10 * 256 - 4), 11 * 256 - 4);
}

TEST(BackwardBounds, TwoPassesAreOptimalOnLongProblems) {
  const auto ratio = [](index_t times_d_squared) {
    plan::Options options;
    options.M = times_d_squared * 64 * 64;
    options.schedule = "e3";
    const plan::Plan plan =
        plan::make_plan(of(Operation::backward, index_t{1} << 24, index_t{1} << 24, 64, 64), options);
    EXPECT_EQ(plan.bound.name, "B14");
    return plan.row().ratio.value();
  };
  EXPECT_NEAR(ratio(64), 1.154, 0.002);
  EXPECT_NEAR(ratio(128), 1.09, 0.005);
  EXPECT_NEAR(ratio(256), 1.06, 0.005);
  EXPECT_NEAR(ratio(512), 1.04, 0.005);
}

TEST(BackwardBounds, ConditionsEndWhereTheStatementsSay) {
  const auto holds = [](index_t d_v, std::string_view name) {
    const auto bounds =
        bounds_of(Operation::backward, bound_problem(of(Operation::backward, 1 << 20, 1 << 20, 64, d_v), 1 << 19));
    const Bound& b = named(bounds, name);
    EXPECT_EQ(b.holds, b.words > 0) << name << ' ' << d_v;
    return b.holds;
  };
  EXPECT_FALSE(holds(7, "B14"));  // d / 8 = 8
  EXPECT_TRUE(holds(8, "B14"));
  EXPECT_TRUE(holds(64, "B14"));
  EXPECT_FALSE(holds(65, "B14"));
  EXPECT_TRUE(holds(65, "B''"));
  EXPECT_TRUE(holds(128, "B''"));
  EXPECT_FALSE(holds(129, "B''"));
  EXPECT_TRUE(holds(1, "B'"));
  EXPECT_TRUE(holds(1000, "B'"));
  EXPECT_TRUE(holds(1, "B10"));
  EXPECT_TRUE(holds(1000, "B10"));
}

TEST(BackwardBounds, MasksLeaveFewerPairsAndOnlyTheRatioTable) {
  Problem p = of(Operation::backward, 1 << 20, 1 << 20, 64, 64);
  const auto full = bounds_of(Operation::backward, bound_problem(p, 1 << 19));
  p.causal = true;
  const AttentionProblem x = bound_problem(p, 1 << 19);
  const auto masked = bounds_of(Operation::backward, x);
  for (std::size_t i = 1; i < full.size(); ++i) {
    EXPECT_GT(masked[i].words, 0) << masked[i].name;
    EXPECT_NEAR(masked[i].words.to_double() / full[i].words.to_double(), 0.5, 0.005) << masked[i].name;
  }
  const int128 n = 1 << 20, exact = exact_b14(x, n * (n + 1) / 2 - 1);
  EXPECT_EQ(named(masked, "B14").words, Words::from_int128(exact));
}

TEST(BackwardBounds, RowsThatSeeOneKeyAddNoPair) {
  for (const Operation op : {Operation::forward, Operation::backward, Operation::gradient_x, Operation::backward_x}) {
    Problem p = of(op, 100000, 100000, 64, 64);
    p.window_left = p.window_right = 0;  // query i sees key i alone
    AttentionProblem x = bound_problem(p, 100);
    x.bytes = 100;
    for (const Bound& b : bounds_of(op, x)) EXPECT_EQ(b.words > 0, b.name == "trivial") << name_of(op) << ' ' << b.name;
    p.window_left = 1;  // all but the first see two
    EXPECT_EQ(bound::scored_pairs(bound_problem(p, 100)), 2 * 99999);
  }
}

// ---- Gradients in the papers' parametrisation ----

RC_GTEST_PROP(GradientBounds, GIsTheValueOfItsK, ()) {
  Problem p = any_problem(*rc::gen::element(Operation::gradient_x, Operation::backward_x));
  if (p.score == Score::identity) p.score = Score::softmax;
  const AttentionProblem x = bound_problem(p, *rc::gen::inRange(1, 100000));
  const long double d = static_cast<long double>(p.d), side = d + static_cast<long double>(std::min(p.d, p.d_v));
  const long double K = p.sources == Sources::distinct ? side * side
                        : p.sources == Sources::shared ? d * side
                                                       : d * side / 4;
  const Bound b = bound::gradient(x);
  RC_ASSERT(b.holds == (p.n_k >= 2));
  if (b.holds) expect_ceil(b.words, bound::value(pairs_one_by_one(x), K, x.M), 1e6L * x.M.to_long_double());
}

RC_GTEST_PROP(GradientBounds, GPrimeAndGStarAreTheBestOfTheirLines, ()) {
  Problem p = any_problem(Operation::gradient_x);
  const AttentionProblem x = bound_problem(p, *rc::gen::inRange(1, 100000));
  const long double d = static_cast<long double>(p.d), v = static_cast<long double>(p.d_v), M = x.M.to_long_double(),
                    N = static_cast<long double>(pairs_one_by_one(x)), Sm = std::sqrt(2.0L) * d + v;
  const bool distinct = p.sources == Sources::distinct && p.n_k >= 2;
  const Bound derived = bound::gradient_prime(x), restricted = bound::gradient_star(x);
  RC_ASSERT(derived.holds == (distinct && p.d_v <= p.d));
  RC_ASSERT(restricted.holds == distinct);
  if (derived.holds) expect_ceil(derived.words, best_start(d + v, d + v, N, M, M, 2 * (d + v)), 200 * N);
  if (restricted.holds)
    expect_ceil(restricted.words, best_start(Sm, Sm, N, M, M + static_cast<long double>(x.instances * x.n_q * x.d), Sm),
                200 * N);
}

TEST(GradientBounds, SourcesDecideTheConstant) {
  const auto words = [](Sources s) {
    Problem p = of(Operation::gradient_x, 100000, 100000, 10, 10);
    p.sources = s;
    return named(bounds_of(p.op, bound_problem(p, 100000)), "g").words;
  };
  EXPECT_EQ(words(Sources::distinct), Words(100000) * 400);  // N K / M
  EXPECT_EQ(words(Sources::shared), Words(100000) * 200);
  EXPECT_EQ(words(Sources::self), Words(100000) * 50);
}

RC_GTEST_PROP(GradientBounds, TheSharedLineHoldsForOneSourceOfKeysAndValuesAlone, ()) {
  Problem p = any_problem(Operation::forward_x);
  const AttentionProblem x = bound_problem(p, *rc::gen::inRange(1, 100000));
  const Bound b = bound::shared_source(x);
  RC_ASSERT(b.holds == (p.sources == Sources::shared && p.n_k >= 2));
  const long double most = std::sqrt(2.0L) * static_cast<long double>(p.d), M = x.M.to_long_double(),
                    N = static_cast<long double>(pairs_one_by_one(x));
  if (b.holds) expect_ceil(b.words, best_start(most, most, N, M, M, 0), 200 * N);
}

}  // namespace
}  // namespace redblue::test
