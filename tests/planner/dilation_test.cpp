#include <gmock/gmock.h>

#include <random>

#include "redblue/language/error.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "support/approximations.hpp"
#include "support/entries.hpp"
#include "support/refusal.hpp"

/// Dilated windows that are taken by residues, against n_q x n_k entries, one by one.
namespace redblue::test {

namespace {

Problem drawn(std::mt19937& random) {
  const auto number = [&](index_t least, index_t most) {
    return least + static_cast<index_t>(random() % static_cast<unsigned>(most - least + 1));
  };
  Problem p{.heads = number(1, 2), .kv_heads = 1, .n_q = number(1, 25), .n_k = number(1, 25), .d = 2, .d_v = 2};
  p.dilation = number(2, 6);
  if (number(0, 1) == 0) p.window_left = number(0, 5);
  if (number(0, 1) == 0) p.window_right = number(0, 5);
  if (number(0, 1) == 0) p.causal = true;
  if (number(0, 1) == 0) p.causal_offset = number(-8, 8);
  if ((p.causal || p.window_right) && number(0, 2) == 0) p.prefix = number(0, p.n_k);
  if (number(0, 2) == 0) {
    p.cu_seqlens_q = {0, number(0, p.n_q), p.n_q};
    p.cu_seqlens_k = {0, number(0, p.n_k), p.n_k};
    if (number(0, 1) == 0) p.seqused_k = {number(0, p.cu_seqlens_k[1]), number(0, p.n_k - p.cu_seqlens_k[1])};
  } else if (number(0, 3) == 0) {
    p.batch = 2;
    p.seqused_q = {number(0, p.n_q), number(0, p.n_q)};
    p.seqused_k = {number(0, p.n_k), number(0, p.n_k)};
  }
  if (p.heads == 1 && number(0, 3) == 0) p.op = Operation::forward_x;
  return p;
}

/// What problem.hpp says of the masks of a problem with a dilation.
bool sees(const Problem& p, index_t i, index_t j, index_t queries, index_t keys) {
  const index_t position = i + p.causal_offset.value_or(keys - queries), distance = j - position;
  if (distance % p.dilation != 0) return false;
  if (p.window_left && -distance > *p.window_left * p.dilation) return false;
  return j < p.prefix ||
         ((!p.window_right || distance <= *p.window_right * p.dilation) && (!p.causal || distance <= 0));
}

Entries entries_of(const Problem& p, index_t batch) {
  Entries e(static_cast<std::size_t>(p.n_q), std::vector<bool>(static_cast<std::size_t>(p.n_k)));
  const bool packed = !p.cu_seqlens_q.empty();
  const auto b = static_cast<std::size_t>(batch);
  for (std::size_t s = 0; s < (packed ? 2 : 1); ++s) {
    const index_t q = packed ? p.cu_seqlens_q[s] : 0, k = packed ? p.cu_seqlens_k[s] : 0;
    index_t queries = packed ? p.cu_seqlens_q[s + 1] - q : p.n_q, keys = packed ? p.cu_seqlens_k[s + 1] - k : p.n_k;
    if (!p.seqused_q.empty()) queries = p.seqused_q[packed ? s : b];
    if (!p.seqused_k.empty()) keys = p.seqused_k[packed ? s : b];
    for (index_t i = 0; i < queries; ++i)
      for (index_t j = 0; j < keys; ++j)
        e[static_cast<std::size_t>(q + i)][static_cast<std::size_t>(k + j)] = sees(p, i, j, queries, keys);
  }
  return e;
}

/// Each of 0 to n - 1 once.
void expect_all(std::vector<index_t> order, index_t n) {
  std::ranges::sort(order);
  ASSERT_EQ(std::ssize(order), n);
  for (index_t k = 0; k < n; ++k) EXPECT_EQ(order[static_cast<std::size_t>(k)], k);
}

}  // namespace

TEST(Dilation, SequencesOfResiduesShowWhatTheWindowShows) {
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Problem p = drawn(random);
    p.validate();
    const Sizes x = p.sizes();
    for (index_t batch = 0; batch < p.batch; ++batch) {
      const Order& order = *x.sequences->order_of(batch, 1);
      expect_all(order.queries, p.n_q);
      expect_all(order.keys, p.n_k);
      Entries shown(static_cast<std::size_t>(p.n_q), std::vector<bool>(static_cast<std::size_t>(p.n_k)));
      for (const Sequence& one : x.sequences->list) {
        if (x.sequences->batches > 1 && one.batch != batch) continue;
        EXPECT_EQ(one.pattern, nullptr);
        for (index_t r = 0; r < one.rows.size(); ++r) {
          const index_t row = one.rows.begin + r, query = order.queries[static_cast<std::size_t>(row / p.group())];
          const Range keys = one.mask.keys(r, one.keys.size()).shifted(one.keys.begin);
          for (index_t j = keys.begin; j < keys.end; ++j)
            shown[static_cast<std::size_t>(query)][static_cast<std::size_t>(order.keys[static_cast<std::size_t>(j)])] =
                true;
        }
      }
      ASSERT_EQ(shown, entries_of(p, batch));
    }
  }
}

/// The same pairs as the pattern has that is given by its runs, and no n_k keys for each query are touched for it.
TEST(Dilation, CountsThePairsOfThePattern) {
  Problem p{.n_q = 300, .n_k = 310, .d = 4, .d_v = 4, .window_left = 7, .window_right = 2, .dilation = 3};
  Problem given = p;
  given.dilation = 1;
  given.window_left = given.window_right = std::nullopt;
  given.patterns = {std::make_shared<const RunLists>(patterns::window({p.n_q, p.n_k}, 7, 2, 3))};
  const auto pairs = [](const Problem& x) {
    return sum_of_pairs(x.sizes(), [](const Pairs& part) { return part.count(); });
  };
  EXPECT_EQ(pairs(p), pairs(given));
  p.n_q = p.n_k = index_t{1} << 20;
  p.window_left = 1 << 14;
  p.window_right = 0;
  // Query i sees 1 + min(i / 3, 2^14) keys.
  Words sum;
  for (index_t i = 0; i < p.n_q; ++i) sum += 1 + std::min(i / 3, index_t{1} << 14);
  EXPECT_EQ(pairs(p), sum);
}

TEST(Dilation, IsRefusedWhereQueriesAndKeysMustStay) {
  const auto refusal = [](auto change) {
    Problem p{.n_q = 9, .n_k = 7, .d = 2, .d_v = 2, .dilation = 2};
    p.validate();
    change(p);
    return refusal_of<InvalidProblem>([&] { p.validate(); });
  };
  const auto contains = [](const char* text) {
    return testing::AllOf(testing::HasSubstr("dilation = "), testing::HasSubstr(text));
  };
  EXPECT_THAT(refusal([](Problem& p) { p.alibi = true; }), contains("ALiBi"));
  EXPECT_THAT(refusal([](Problem& p) { p.dropout = 0.5; }), contains("give the window as a pattern"));
  EXPECT_THAT(refusal([](Problem& p) { p.op = Operation::scores; }), contains("operation scores"));
  for (const char* approximation : {"2:1", "linear"}) {
    if (!has_approximations()) break;
    EXPECT_THAT(refusal([&](Problem& p) { p.approximate(approximation); }), contains("approximations"));
  }
  EXPECT_THAT(refusal([](Problem& p) { p.dilation = 0; }), contains("dilation = 0"));
  EXPECT_THAT(
      refusal([](Problem& p) { p.patterns = {std::make_shared<const RunLists>(patterns::window({9, 7}, 1, 1))}; }),
      contains("patterns have"));
  EXPECT_THAT(refusal([](Problem& p) {
                p.batch = 2;
                p.seqused_k = {3, 7};
                p.bias = {1, 1, 9, 7};
              }),
              contains("share one bias"));
}

}  // namespace redblue::test
