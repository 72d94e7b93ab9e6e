#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "redblue/runtime/run.hpp"
#include "support/refusal.hpp"

/// Packed sequences and padded batches. Random ones with modifiers: modifiers_test.cpp.
namespace redblue::test {
namespace {

using testing::HasSubstr;

constexpr index_t kDepth = 8;

std::vector<float> normal(index_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> words(static_cast<std::size_t>(rows * kDepth));
  for (float& x : words) x = draw(random);
  return words;
}

/// Sequences of 5, 0, 30 and 12 queries and of 9, 4, 20 and 0 keys.
Problem packed() {
  Problem p{.n_q = 47, .n_k = 33, .d = kDepth, .d_v = kDepth, .causal = true};
  p.cu_seqlens_q = {0, 5, 5, 35, 47};
  p.cu_seqlens_k = {0, 9, 13, 33, 33};
  p.lse_required = true;
  return p;
}

struct PackedArrays {
  std::vector<float> Q = normal(47, 1), K = normal(33, 2), V = normal(33, 3), O = std::vector<float>(47 * kDepth, NAN),
                     lse = std::vector<float>(47, NAN);
  /// The tensors of these rows.
  void run(const Problem& p, const plan::Plan& plan, index_t q, index_t k) {
    const auto at = [](std::vector<float>& words, index_t row, index_t rows, index_t cols) {
      return Tensor(words.data() + row * cols, DType::f32, {1, 1, rows, cols});
    };
    redblue::run(plan, {at(Q, q, p.n_q, kDepth), at(K, k, p.n_k, kDepth), at(V, k, p.n_k, kDepth), {}, {}, {}},
                 {at(O, q, p.n_q, kDepth), at(lse, q, p.n_q, 1)}, {.threads = 1});
  }
};

/// Keys and queries that are not in use stay where they are: the others are as if these were not there.
TEST(Sequences, ArePackedAndUsedInPartAsTheyAreAlone) {
  Problem whole = packed(), in_part = whole;
  whole.seqused_q = {5, 0, 30, 12};
  whole.seqused_k = {9, 4, 20, 0};
  in_part.seqused_q = {5, 0, 19, 12};
  in_part.seqused_k = {4, 3, 11, 0};
  for (const Problem& p : {packed(), whole, in_part})
    for (const auto& schedule : plan::Registry::built_in().of(Operation::forward)) {
      if (schedule->traits.printed || schedule->obstacle(p, p.sizes())) continue;
      SCOPED_TRACE(schedule->name);
      const std::string name(schedule->name);
      PackedArrays together, alone;
      together.run(p, plan::make_plan(p, {.M = 400, .schedule = name}), 0, 0);
      std::fill(alone.O.begin(), alone.O.end(), 0.0F);
      std::fill(alone.lse.begin(), alone.lse.end(), -INFINITY);
      const Problem& lengths = p.seqused_q.empty() ? whole : p;
      for (const std::size_t s : {0, 2}) {  // the others have no queries, or no keys
        Problem one{.n_q = lengths.seqused_q[s], .n_k = lengths.seqused_k[s]};
        one.d = one.d_v = kDepth;
        one.causal = one.lse_required = true;
        alone.run(one, plan::make_plan(one, {.M = 400, .schedule = "flash"}), p.cu_seqlens_q[s], p.cu_seqlens_k[s]);
      }
      for (std::size_t i = 0; i < together.O.size(); ++i) EXPECT_NEAR(together.O[i], alone.O[i], 1e-5);
      for (std::size_t i = 0; i < together.lse.size(); ++i)
        if (together.lse[i] != alone.lse[i]) {  // not both -inf
          EXPECT_NEAR(together.lse[i], alone.lse[i], 1e-5);
        }
    }
}

TEST(Sequences, MoveAndNeedTheWordsOfEachAlone) {
  const auto words = [](const Problem& p) {
    const plan::Plan plan = plan::make_plan(p, {.M = 300, .schedule = "key_outer"});
    return std::pair(plan.io().total(), plan.bounds.front().words);
  };
  Problem one{.n_q = 16, .n_k = 16, .d = kDepth, .d_v = kDepth, .causal = true}, four = one;
  four.n_q = four.n_k = 64;
  four.cu_seqlens_q = {0, 16, 32, 48, 64};  // of queries and keys
  const auto [moved, trivial] = words(one);
  EXPECT_EQ(words(four), std::pair(4 * moved, 4 * trivial));
  // Two batches, of which one has half the keys.
  Problem half = one, padded = one;
  half.n_k = 8;
  padded.batch = 2;
  padded.seqused_k = {16, 8};
  const auto [moved_half, trivial_half] = words(half);
  EXPECT_EQ(words(padded), std::pair(moved + moved_half, trivial + trivial_half));
  EXPECT_EQ(count(plan::make_plan(padded, {.M = 300})).io, plan::make_plan(padded, {.M = 300}).io());
}

TEST(Sequences, RefuseListsThatMakeNoSense) {
  const auto refusal = [](const std::function<void(Problem&)>& change) {
    Problem p{.batch = 2, .n_q = 9, .n_k = 7, .d = 2, .d_v = 2};
    change(p);
    return refusal_of<InvalidProblem>([&] { p.validate(); });
  };
  const std::vector<index_t> q{0, 4, 9}, k{0, 4, 7};
  EXPECT_EQ(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = k; }), "accepted");
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = {0, 5, 4, 9}, p.cu_seqlens_k = k; }),
              HasSubstr("cu_seqlens_q falls from 5 to 4 at sequence 1"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = {1, 9}, p.cu_seqlens_k = k; }), HasSubstr("begin with 0"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = {0, 8}, p.cu_seqlens_k = k; }),
              HasSubstr("cu_seqlens_q ends with 8, and there are 9 queries"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = q; }), HasSubstr("give cu_seqlens_k, too"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = {0, 7}; }),
              HasSubstr("cu_seqlens_q has 2 sequences and cu_seqlens_k 1"));
  EXPECT_THAT(refusal([&](Problem& p) { p.seqused_k = {7}; }), HasSubstr("seqused_k has 1 lengths for a batch of 2"));
  EXPECT_THAT(refusal([&](Problem& p) { p.seqused_k = {7, 8}; }), HasSubstr("seqused_k[1] = 8: give a length from 0"));
  EXPECT_EQ(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = k, p.seqused_k = {4, 3}; }), "accepted");
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = k, p.seqused_k = {4, 4}; }),
              HasSubstr("seqused_k[1] = 4: give a length from 0 to 3"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = k, p.seqused_q = {4, -1}; }),
              HasSubstr("seqused_q[1] = -1: give a length from 0 to 5"));
  EXPECT_THAT(refusal([&](Problem& p) { p.cu_seqlens_q = q, p.cu_seqlens_k = k, p.seqused_k = {4, 3, 0}; }),
              HasSubstr("seqused_k has 3 lengths for 2 packed sequences"));
}

}  // namespace
}  // namespace redblue::test
