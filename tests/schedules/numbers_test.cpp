#include <gtest/gtest.h>

#include "redblue/machines/any.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/verify/arrays.hpp"
#include "redblue/verify/claims.hpp"
#include "registered.hpp"

/// Numbers of every schedule on inputs that break careless softmaxes, and where nothing is seen.
namespace redblue::test {
namespace {

Sizes sizes_of(index_t n_q, index_t n_k, Mask mask = {}, Score score = Score::softmax) {
  return {n_q, n_k, 4, 3, mask, score == Score::softmax, score, 5};
}

/// Some tilings: tiles of two or three, and the smallest.
std::vector<plan::Tiling> tilings(const plan::Schedule& s, const Sizes& x) {
  index_t turn = 0;
  const auto draw = [&](index_t least, index_t most) { return std::clamp<index_t>(2 + (turn++ % 2), least, most); };
  std::vector<plan::Tiling> list{s.smallest(x, {})};
  if (const auto t = claims::any_tiling(s, x, draw)) list.push_back(*t);
  return list;
}

template <class T>
void run(const plan::Schedule& s, claims::Arrays<T>& a, const plan::Tiling& t) {
  machine::Ram<T> ram(s.footprint(a.sizes, t).to_index(), a.slow());
  machine::Any any(ram);
  s.run(any, {a.sizes, *a.problem.scale, 1}, t);
}

/// The largest sum of magnitudes behind a score: a score may be off by this many roundings.
template <class T>
double score_magnitude(const claims::Arrays<T>& a) {
  Problem p = a.problem;  // without all that changes or hides scores
  p.score = Score::softmax;
  p.approximation = nullptr;
  p.causal = p.alibi = p.bias_gradient = false;
  p.window_left.reset(), p.window_right.reset(), p.bias.reset();
  p.prefix = 0, p.softcap = 0;
  oracle::Matrices<long double> in;
  for (const SlowArray x : plan::inputs_of(p.op)) {
    if (x == SlowArray::O || x == SlowArray::lse) continue;
    in[x] = a.template matrix<long double>(x);
    for (long double& word : in[x].words) word = std::abs(word);
  }
  const oracle::Dense<long double> sizes(p, std::move(in));
  long double most = 0;
  for (index_t i = 0; i < sizes.rows(); ++i)
    for (const long double s : sizes.scores(i)) most = std::max(most, s);
  return static_cast<double>(most);
}

/// The rule: twice the error of plain arithmetic in the same precision, and a few roundings of what is summed; a score
/// may be off by as many roundings as it is large.
template <class T, class Change>
void expect_accurate(const plan::Schedule& s, const Sizes& x, const Change& change) {
  constexpr double eps = std::numeric_limits<T>::epsilon() / 2;
  if (!s.traits.stable || !claims::can_solve(s, x)) return;
  if (s.operation == redblue::Operation::merge)
    return;  // it takes states, no scores: tests/runtime/accumulate_test.cpp
  for (const plan::Tiling& t : tilings(s, x)) {
    claims::Arrays<T> a(s, x, t, change, 7);
    run(s, a, t);
    const auto exact = a.template dense<long double>(false);
    const auto wanted = a.wanted();
    const auto naive = a.naive();
    auto sizes = has_directions(s.operation)    ? a.magnitudes()
                 : follows_forward(s.operation) ? exact.gradient_magnitudes()
                                                : wanted;
    if (is_forward(s.operation))
      for (long double& v : sizes.at(SlowArray::O).words) v = 1 + std::abs(v);
    const double score = 1 + score_magnitude(a);
    for (const SlowArray output : plan::outputs_of(a.problem.op)) {
      const auto& w = wanted.at(output);
      const double error = claims::largest_gap(a.words.at(output), w.words),
                   plain = claims::largest_gap(naive.at(output).words, w.words);
      EXPECT_LE(error, 2 * plain + 8 * eps * score * (1e-300 + claims::largest_entry(sizes.at(output))))
          << s.name << ": " << name_of(output) << ", plain arithmetic errs by " << plain;
    }
  }
}

/// In both arithmetic types, with a mask and without.
template <class Change>
void expect_accurate(const plan::Schedule& s, index_t n_q, index_t n_k, const Change& change) {
  for (const Mask& mask : {Mask{}, Mask{.hi = n_k - n_q + 1}}) {
    expect_accurate<double>(s, sizes_of(n_q, n_k, mask), change);
    expect_accurate<float>(s, sizes_of(n_q, n_k, mask), change);
  }
}

/// f(words of queries, words of keys, columns of keys) changes what scores are made of.
template <class Change>
auto changing_scores(const Change& f) {
  return [f](auto& a) {
    const bool plain = !is_projected(a.problem.op);
    const SlowArray keys = plain ? SlowArray::K : SlowArray::A2;
    f(a.words[plain ? SlowArray::Q : SlowArray::A1], a.words[keys], a.shape_of(keys).cols);
  };
}
auto times(double factor) {
  return changing_scores([factor](auto& q, auto& k, index_t) {
    for (auto* words : {&q, &k})
      for (auto& v : *words) v *= static_cast<std::decay_t<decltype(v)>>(factor);
  });
}

}  // namespace

class Numbers : public testing::TestWithParam<Registered> {};
INSTANTIATE_TEST_SUITE_P(All, Numbers, testing::ValuesIn(all_schedules()),
                         [](const auto& info) { return test_name_of(info.param); });

TEST_P(Numbers, AreAccurateAtLogitsOfAnySize) {
  for (const double factor : {1, 5, 70}) expect_accurate(*GetParam(), 11, 13, times(factor));  // up to ten thousand
}

TEST_P(Numbers, AreAccurateWhereAllScoresAreEqual) {
  expect_accurate(*GetParam(), 7, 9,
                  changing_scores([](auto&, auto& k, index_t) { std::fill(k.begin(), k.end(), 0.25); }));
}

TEST_P(Numbers, AreAccurateWhereOneKeyDominates) {
  expect_accurate(*GetParam(), 7, 9, changing_scores([](auto&, auto& k, index_t cols) {
    for (index_t t = 0; t < cols; ++t) k[static_cast<std::size_t>(5 * cols + t)] *= 200;
  }));
}

TEST_P(Numbers, AreAccurateWhereThereIsOneQueryOrOneKey) {
  for (const auto& [n_q, n_k] : {std::pair<index_t, index_t>{1, 1}, {1, 6}, {6, 1}})
    expect_accurate(*GetParam(), n_q, n_k, times(1));
}

/// Outputs of rows and keys without any pair are exactly zero, whatever the score function: dQ (U) of the first three
/// queries, dK and dV of keys that no query sees.
TEST_P(Numbers, AreZeroWhereNothingIsSeen) {
  using enum SlowArray;
  const plan::Schedule& s = *GetParam();
  for (const Score score : {Score::softmax, Score::sigmoid, Score::relu, Score::identity})
    for (const index_t offset : {-3, -9}) {  // the first three queries see nothing; no query does
      const Sizes x = sizes_of(6, 6, {.hi = offset + 1}, score);
      if (!claims::can_solve(s, x)) continue;
      const index_t blind = offset == -3 ? 3 : 6;
      for (const plan::Tiling& t : tilings(s, x)) {
        claims::Arrays<double> a(s, x, t);
        run(s, a, t);
        const auto expect_zero = [&](SlowArray array, index_t first, index_t count) {
          const auto m = a.template matrix<double>(array);
          for (index_t r = first; r < first + count; ++r)
            for (index_t c = 0; c < m.shape.cols; ++c)
              ASSERT_EQ(m(r, c), array == S ? -std::numeric_limits<double>::infinity() : 0)
                  << name_of(score) << ' ' << name_of(array) << " row " << r;
        };
        for (const SlowArray output : plan::outputs_of(a.problem.op)) {
          if (output == O || output == dQ || output == dA1 || is_of_pairs(output)) expect_zero(output, 0, blind);
          if (output == dK || output == dV || output == dA2 || output == dA3) expect_zero(output, 6 - blind, blind);
          if (offset == -9 && output != lse) expect_zero(output, 0, a.shape_of(output).rows);
          if (output == lse && score == Score::softmax) {
            for (std::size_t r = 0; r < static_cast<std::size_t>(blind); ++r)
              EXPECT_EQ(a.words.at(lse)[r], -std::numeric_limits<double>::infinity());
          }
        }
      }
    }
}

}  // namespace redblue::test
