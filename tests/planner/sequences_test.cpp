#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/verify/claims.hpp"
#include "support/cases.hpp"

/// Plans of several sequences against plans of each alone: each piece has blocks and tiles of its own (theory.md 2j).
namespace redblue::test {
namespace {

struct Sequences {
  Problem together;
  std::vector<Problem> alone;
};

/// Up to six packed sequences, each with queries and keys.
Sequences any_sequences(Operation op, const claims::Draw& draw) {
  Problem p{.op = op};
  p.d = draw(1, 12);
  p.d_v = draw(1, 12);
  p.heads = 2 * draw(1, 2);
  p.kv_heads = 2;
  p.forward_given = true;
  if (draw(0, 1) == 1)
    p.causal = true;
  else if (draw(0, 2) == 0)
    p.window_left = draw(0, 9), p.window_right = draw(0, 9);
  Sequences s{p, {}};
  s.together.cu_seqlens_q = s.together.cu_seqlens_k = {0};
  const bool alike = draw(0, 1) == 1;
  for (index_t left = draw(1, 6); left > 0; --left) {
    p.n_q = draw(1, 90);
    p.n_k = alike ? p.n_q : draw(1, 90);
    s.together.cu_seqlens_q.push_back(s.together.cu_seqlens_q.back() + p.n_q);
    s.together.cu_seqlens_k.push_back(s.together.cu_seqlens_k.back() + p.n_k);
    s.alone.push_back(p);
  }
  s.together.n_q = s.together.cu_seqlens_q.back();
  s.together.n_k = s.together.cu_seqlens_k.back();
  return s;
}

/// The output of scores has words for pairs of two sequences, too.
Words moved(const plan::Row& r) {
  return r.algorithm->operation == Operation::scores ? r.io.total_reads() : r.io.total();
}

class SequencesOf : public ::testing::TestWithParam<Operation> {};

TEST_P(SequencesOf, MoveTheWordsOfEachAloneUnderTheSameSchedule) {
  std::mt19937 random(7);
  const claims::Draw draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  int compared = 0;
  for (int round = 0; round < cases(60); ++round) {
    const Sequences s = any_sequences(GetParam(), draw);
    plan::Options o;
    o.M = draw(60, 3000);
    if (draw(0, 2) == 0) o.multiple = {draw(1, 5), draw(1, 5), 1};
    std::map<std::string_view, std::pair<Words, std::ptrdiff_t>> alone;
    plan::Plan together;
    try {
      for (const Problem& one : s.alone)
        for (const plan::Row& r : plan::make_plan(one, o).rows) {
          auto& [words, plans] = alone[r.schedule];
          words += moved(r);
          ++plans;
        }
      together = plan::make_plan(s.together, o);
    } catch (const CapacityError&) {
      continue;
    }
    for (const plan::Row& r : together.rows) {
      // Rings and strips are for narrow masks, so alone some sequences have no plan of them. Lists of pairs have one
      // tiling for all sequences.
      if (alone[r.schedule].second < std::ssize(s.alone) || r.algorithm->traits.lists_pairs) continue;
      ++compared;
      EXPECT_EQ(moved(r).str(), alone[r.schedule].first.str()) << r.schedule << " in round " << round;
    }
  }
  EXPECT_GT(compared, few_cases() ? 0 : cases(40));
}

INSTANTIATE_TEST_SUITE_P(EveryPass, SequencesOf,
                         ::testing::Values(Operation::forward, Operation::backward, Operation::scores),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(Sequences, OfUnlikeLengthsHaveTilesOfTheirOwn) {
  Problem p{.n_q = 190, .n_k = 190, .d = 16, .d_v = 16};
  p.cu_seqlens_q = p.cu_seqlens_k = {0, 100, 131, 190};
  const plan::Plan plan = plan::make_plan(p, {.M = 300, .schedule = "score_tiles"});
  const auto own = schedule::own_tilings(plan.row().tiling);
  EXPECT_FALSE(own.empty());
  EXPECT_NE(plan::text_of(plan.row()).find("of sequences"), std::string::npos);
}

/// Lengths that hide nothing are none, and batches of one length need no order of their own.
TEST(Sequences, OfOneLengthAreAsGoodAsOne) {
  Problem p{.batch = 2, .heads = 2, .n_q = 64, .n_k = 64, .d = 16, .d_v = 16, .bias = {{1, 1, 64, 64}}};
  p.patterns = {std::make_shared<const RunLists>(patterns::strided({64, 64}, 4))};
  const plan::Plan plain = plan::make_plan(p, {.M = 400});
  p.seqused_k = {64, 64};
  EXPECT_EQ(plan::make_plan(p, {.M = 400}).row().io.total().str(), plain.row().io.total().str());
  p.seqused_k = {48, 48};
  EXPECT_TRUE(p.may_reorder());
  EXPECT_LE(plan::make_plan(p, {.M = 400}).row().io.total(), plain.row().io.total());
  p.seqused_k = {48, 47};
  EXPECT_FALSE(p.may_reorder());
  p.patterns = {};
  p.seqused_k = {64, 64};
  EXPECT_EQ(p.sizes().sequences, nullptr);
}

}  // namespace
}  // namespace redblue::test
