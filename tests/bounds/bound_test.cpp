#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "bounds/pairs.hpp"
#include "redblue/bounds/forward.hpp"
#include "support/generators.hpp"
#include "support/many_cases.hpp"

namespace redblue::test {
namespace {

using bound::AttentionProblem;
using bound::forward_bounds;

AttentionProblem square(index_t n, index_t d, index_t M) { return bound_problem(problem(n, n, d, d), M); }

/// Words that some output needs, one by one.
index_t words_one_by_one(const AttentionProblem& x) {
  index_t scored_rows = 0, keys = 0, values = 0;
  for (const auto& rows : keys_of_rows(x)) {
    std::vector<bool> key_seen(static_cast<std::size_t>(x.n_k)), value_seen = key_seen;
    for (const Range seen : rows) {
      const bool scored = seen.size() >= 2;  // else nothing to weigh: the query and the keys do not matter
      scored_rows += scored;
      for (auto j = static_cast<std::size_t>(seen.begin); j < static_cast<std::size_t>(seen.end); ++j) {
        value_seen[j] = true;
        if (scored) key_seen[j] = true;
      }
    }
    keys += std::count(key_seen.begin(), key_seen.end(), true);
    values += std::count(value_seen.begin(), value_seen.end(), true);
  }
  const index_t inputs = scored_rows * x.d + keys * x.d + values * x.d_v;
  return copies_of_lists(x) * inputs + x.instances * (x.n_q * x.d_v + (x.lse_required ? x.n_q : 0));
}

/// gain(L) of docs/proofs/f-double-prime.md.
long double gain(long double N, long double K, long double M, long double L) {
  const long double G = std::max(std::max((M + L) * (M + L) / (4 * K), M + L / 2),
                                 std::max(L * L / (4 * K) + M, M * M / (4 * K) + L / 2));
  return L * N / G - (L - M);
}

Problem any_problem() { return test::any_problem(Operation::forward, 600); }

TEST(Bounds, SayWhatTheyAre) {
  const std::vector<std::string> names = {"trivial", "F'", "F''", "G"};
  const auto bounds = forward_bounds(square(100, 8, 64));
  ASSERT_EQ(bounds.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(bounds[i].name, names[i]);
    EXPECT_EQ(bounds[i].status, "proved");
    EXPECT_FALSE(bounds[i].algorithms.empty());
    EXPECT_FALSE(bounds[i].condition.empty());
    EXPECT_TRUE(bounds[i].holds);
  }
}

RC_GTEST_PROP(Bounds, CountPairsAndNeededWordsAsTheirStatementsDo, ()) {
  const AttentionProblem x = bound_problem(any_problem(), *rc::gen::inRange(1, 100000));
  RC_ASSERT(bound::scored_pairs(x) == Words(pairs_one_by_one(x)));
  RC_ASSERT(bound::trivial(x).words == Words(words_one_by_one(x)));
}

RC_GTEST_PROP(Bounds, GIsNeverAboveTheOthers, ()) {
  const AttentionProblem x = bound_problem(any_problem(), *rc::gen::inRange(1, 100000));
  RC_ASSERT(bound::g(x).words <= std::max(bound::trivial(x).words, bound::f_prime(x).words));
}

RC_GTEST_PROP(Bounds, ValueIsTheBestGainOfItsGrid, ()) {
  const index_t N = *rc::gen::inRange<index_t>(1, 1'000'000'000), K = *rc::gen::inRange<index_t>(1, 100'000),
                M = *rc::gen::inRange<index_t>(1, 1'000'000);
  long double best = 0;
  for (index_t t = 8; t <= 160; ++t)
    best = std::max(best, gain(static_cast<long double>(N), static_cast<long double>(K), static_cast<long double>(M),
                               std::floor(static_cast<long double>(M * t) / 8)));
  RC_ASSERT(std::abs(bound::value(N, K, M) - best) <= 1e-15L * best);
}

RC_GTEST_PROP(Bounds, FPrimeIsTheLargerOfItsTwoLines, ()) {
  const AttentionProblem x = bound_problem(any_problem(), *rc::gen::inRange(1, 100000));
  const long double N = static_cast<long double>(pairs_one_by_one(x)), M = x.M.to_long_double(), root = std::sqrt(M),
                    c = 1 - 1 / (2 * M);
  const long double d = static_cast<long double>(x.d), sum = d + static_cast<long double>(x.d_v),
                    s = std::min(1.0L, c * std::min(sum, 2 * d) / root);
  long double line = 2 * c * s * sum * N / root - s * s * N - M;
  if (M <= 4 * d * d) line = std::max(line, 2 * sum * N / root - N - M);
  const long double words = bound::f_prime(x).words.to_long_double();
  RC_ASSERT(std::abs(words - std::max(0.0L, std::ceil(line))) <= 1e-14L * std::max(1.0L, N));
}

TEST(Bounds, OneKeyNeedsNoScores) {
  for (const bool lse : {false, true}) {
    Problem p = problem(1000, 1, 64, 32);
    p.lse_required = lse;
    const auto bounds = forward_bounds(bound_problem(p, 8));
    EXPECT_EQ(bounds[0].words, Words(32 + 1000 * 32 + (lse ? 1000 : 0)));  // the value, the outputs
    for (std::size_t i = 1; i < bounds.size(); ++i) EXPECT_EQ(bounds[i].words, 0) << bounds[i].name;
  }
}

TEST(Bounds, ALineThatCountsWritesOfDSCountsThoseOfDBiasWithThem) {
  Problem p = problem(64, 64, 16, 16);
  p.op = Operation::backward;
  p.batch = 2;
  const auto words = [&p](bool gradient, index_t batches) {
    p.bias = {batches, 1, 64, 64};
    p.bias_gradient = gradient;
    std::map<std::string_view, Words> list;
    for (const bound::Bound& b : bound::bounds_of(p.op, bound_problem(p, 60))) list[b.name] = b.words;
    return list;
  };
  for (const index_t batches : {1, 2})  // two batches add up to a word of dBias; or each has its own, a word of dS
    for (const auto& [name, more] : words(true, batches)) {
      const bool dS_is_counted = name != "trivial" && name != "B10";
      const index_t added = batches == 2 && dS_is_counted ? 0 : batches * 64 * 64;
      EXPECT_EQ(more, words(false, batches)[name] + Words(added)) << name << ' ' << batches;
    }
}

TEST(Bounds, NoVisibleKeyLeavesTheOutputsAlone) {
  Problem p = problem(1000, 50, 64, 32);
  p.causal = true;
  p.causal_offset = -1000;
  const auto bounds = forward_bounds(bound_problem(p, 8));
  EXPECT_EQ(bounds[0].words, Words(1000 * 32));
  for (std::size_t i = 1; i < bounds.size(); ++i) EXPECT_EQ(bounds[i].words, 0) << bounds[i].name;
}

TEST(Bounds, HoldForSizesFarBeyond64Bits) {
  const auto bounds = forward_bounds(square(index_t{1} << 40, 64, 16384));
  EXPECT_EQ(bounds[0].words, Words(index_t{1} << 48));
  // F' with s = 1 and M = 4 d^2: N (2 (d + d_v) / sqrt(M) - 1) - M = N - M, rounded down by a few units of 2^-60 N.
  const Words exact = Words(index_t{1} << 40) * (index_t{1} << 40) - 16384;
  EXPECT_LE(bounds[1].words, exact);
  EXPECT_GE(bounds[1].words, exact - (1 << 22));
  EXPECT_EQ(bound::best(bounds).name, "F'");
}

}  // namespace
}  // namespace redblue::test
