#include "redblue/problem/cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "redblue/problem/problem.hpp"

namespace redblue::test {
namespace {

using Places = std::vector<std::tuple<index_t, index_t, index_t, index_t, index_t>>;

Places places(const CoreList& list) {
  Places all;
  for (const Core& c : list) all.emplace_back(c.sizes.row0, c.sizes.key0, c.sizes.n_q, c.sizes.n_k, c.count);
  return all;
}

/// Padded batches, or packed sequences, some of which see nothing; causal or with a window of one key.
Problem any_problem(std::mt19937& random) {
  const auto draw = [&](index_t a, index_t b) { return std::uniform_int_distribution<index_t>(a, b)(random); };
  Problem p;
  p.n_q = p.n_k = 12;
  p.d = p.d_v = 2;
  p.heads = 2;
  p.kv_heads = draw(1, 2);
  p.causal = draw(0, 1) == 1;
  if (!p.causal && draw(0, 1) == 1) p.window_left = p.window_right = 0;
  p.alibi = draw(0, 1) == 1;
  if (draw(0, 1) == 1) {
    p.cu_seqlens_q = {0, draw(0, 5), draw(5, 12), 12};
    return p;
  }
  p.batch = 3;
  for (index_t b = 0; b < p.batch; ++b) {
    p.seqused_q.push_back(draw(0, 12));
    p.seqused_k.push_back(draw(0, 12));
  }
  return p;
}

/// The same lists whether they are kept or not, asked for in any order and again.
TEST(Cores, AreTheSameWhereTheyAreKept) {
  std::mt19937 random(3);
  std::vector<Sizes> problems;
  for (int i = 0; i < 20; ++i) problems.push_back(any_problem(random).sizes());
  struct Question {
    Sizes x;
    std::optional<index_t> batch;
    Cut cut;
    Places answer;
    bool kept_slopes;
  };
  std::vector<Question> questions;
  const auto kept_slopes = [](const CoreList& list) { return !list.empty() && list[0].sizes.modifiers.slopes_kept; };
  for (const Sizes& x : problems)
    for (const Cut cut : {Cut::each, Cut::one})
      for (index_t b = -1; b < batches_of(x); ++b) {
        const auto batch = b < 0 ? std::nullopt : std::optional(b);
        const CoreList list = cores_of(x, batch, cut);
        questions.push_back({x, batch, cut, places(list), kept_slopes(list)});
      }
  const CoreMemo memo, inside;
  for (int round = 0; round < 2; ++round) {
    std::ranges::shuffle(questions, random);
    for (const Question& q : questions) {
      const CoreList list = cores_of(q.x, q.batch, q.cut);
      EXPECT_EQ(places(list), q.answer);
      EXPECT_EQ(kept_slopes(list), q.kept_slopes);
    }
  }
}

/// Those of all batches are those of each, one after another.
TEST(Cores, OfAllBatchesAreThoseOfEach) {
  std::mt19937 random(4);
  for (int i = 0; i < 50; ++i) {
    const Sizes x = any_problem(random).sizes();
    for (const Cut cut : {Cut::each, Cut::one}) {
      Places all;
      for (index_t b = 0; b < batches_of(x); ++b)
        for (const auto& place : places(cores_of(x, b, cut))) all.push_back(place);
      EXPECT_EQ(places(cores_of(x, {}, cut)), all);
    }
  }
}

}  // namespace
}  // namespace redblue::test
