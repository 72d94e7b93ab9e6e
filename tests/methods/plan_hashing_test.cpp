#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/methods/approximations.hpp"
#include "redblue/planner/planner.hpp"

/// Plans of SMYRF, HyperAttention and Reformer: words and footprints against the figures that the notes have for them.
namespace redblue::test {
namespace {

Problem hashed_head(std::string_view method, index_t n = 512, index_t d = 32) {
  Problem p;
  p.n_q = p.n_k = n;
  p.d = p.d_v = d;
  p.approximate(method);
  return p;
}

struct HashingFigures {
  std::string_view method;
  index_t footprint, words;
};

void expect_refused(Problem p, std::string_view why) {
  try {
    plan::make_plan(p, {.M = 100000});
    ADD_FAILURE() << why;
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(std::string(why)));
  }
}

}  // namespace

/// n = 512, d = d_v = 32: R + W at the footprint of the table.
TEST(HashingPlans, HaveTheFiguresOfTheTable) {
  for (const HashingFigures& line :
       {HashingFigures{"reformer:rounds=1", 8292, 71744}, HashingFigures{"reformer:rounds=4", 8292, 290048},
        HashingFigures{"reformer:rounds=8,chunk=32", 4164, 564480}, HashingFigures{"smyrf:rounds=1", 4164, 104448},
        HashingFigures{"smyrf:rounds=4", 4164, 368640}, HashingFigures{"smyrf:rounds=8", 4164, 720896},
        HashingFigures{"smyrf:rounds=4,cluster=128", 8260, 368640}, HashingFigures{"hyper:samples=64", 8260, 106560},
        HashingFigures{"hyper:samples=256", 20548, 119040},
        HashingFigures{"hyper:block=128,samples=128", 16452, 110720}}) {
    const plan::Plan plan = plan::make_plan(hashed_head(line.method), {.M = line.footprint});
    EXPECT_EQ(plan.row().io.total(), line.words) << line.method;
    EXPECT_EQ(plan.row().footprint, line.footprint) << line.method;
    EXPECT_EQ(plan.rows.size(), 1U);
    // With less, keys pass one by one, for several blocks of queries of a cluster: more words.
    EXPECT_GT(plan::make_plan(hashed_head(line.method), {.M = line.footprint - 1}).row().io.total(), line.words)
        << line.method;
  }
}

/// The worked figure of the notes: one pass of hashing for all rounds, rounds merged as they come.
TEST(HashingPlans, ReformerOfTheNotes) {
  const Problem p = hashed_head("reformer:rounds=4,buckets=128", 4096, 64);
  EXPECT_EQ(plan::make_plan(p, {.M = 20000}).row().io.total(), 4'317'440);
}

/// K is not read, so no bound may count it; under a causal mask the last value is read by no row but its own, which
/// weighs itself only where it sees nothing else.
TEST(HashingPlans, ReformerIsNotBoundedByWordsOfK) {
  Problem p = hashed_head("reformer:rounds=1,chunk=64,buckets=4", 64, 16);
  const plan::Plan plan = plan::make_plan(p, {.M = 5000});
  EXPECT_EQ(plan.bound.words, 3 * 64 * 16);
  EXPECT_EQ(plan::make_plan(hashed_head("smyrf:cluster=64", 64, 16), {.M = 5000}).bound.words, 4 * 64 * 16);
  p.causal = true;
  EXPECT_EQ(plan::make_plan(p, {.M = 5000}).bound.words, 3 * 64 * 16 - 16);
  // Of two rows either has the value of the other, whatever they are.
  EXPECT_EQ(plan::make_plan(hashed_head("reformer:rounds=1,chunk=2,buckets=2", 2, 16), {.M = 5000}).bound.words, 64);
}

/// Runs of pairs in slow memory where n pairs do not fit: each pass over them reads and writes 2 n words for each side.
TEST(HashingPlans, SortsMergeRunsWhereRowsDoNotFit) {
  const Problem p = hashed_head("smyrf:rounds=1,cluster=8", 512, 4);
  const auto words = [&](index_t M) { return plan::make_plan(p, {.M = M}).row().io.total(); };
  const Words in_one_run = words(2 * 512 + 2), one_pass = words(2 * 512 + 1);
  EXPECT_EQ(one_pass - in_one_run, 8 * 512);  // 2 n read and written, of queries and of keys
  const plan::Row row = plan::make_plan(p, {.M = 90}).row();
  EXPECT_EQ(row.io.reads[index_of(SlowArray::runs)], row.io.writes[index_of(SlowArray::runs)]);
  EXPECT_EQ(words(90) - in_one_run, 8 * 512);  // 12 runs of 44 pairs, merged at once
}

TEST(HashingPlans, ReadMethodsFromTexts) {
  EXPECT_EQ(method_of(hashed_head("smyrf").sizes()), Method(Smyrf{4, 64, 0}));
  EXPECT_EQ(method_of(hashed_head("smyrf:cluster=32,seed=5,rounds=2")), Method(Smyrf{2, 32, 5}));
  EXPECT_EQ(method_of(hashed_head("hyper:samples=256").sizes()), Method(HyperAttention{64, 256, 7, 0}));
  EXPECT_EQ(method_of(hashed_head("reformer:rounds=8,chunk=32,buckets=16,seed=1")), Method(Reformer{8, 32, 16, 1}));
  for (const std::string_view wrong : {"smyrf:4", "smyrf:rounds", "smyrf:rounds=", "smyrf:rounds=2,rounds=3", "smyrf:",
                                       "smyrf:block=3", "hyper:cluster=3", "reformer:4", "reformer:rounds=4,"})
    EXPECT_THROW(hashed_head(wrong), InvalidProblem) << wrong;
}

/// A number that nobody gave is no reason to refuse a short head; one that was given is.
TEST(HashingPlans, DefaultsFitShortHeads) {
  const std::vector<std::pair<std::string_view, Method>> of_40{
      {"smyrf", Smyrf{4, 40, 0}}, {"hyper", HyperAttention{40, 40, 7, 0}}, {"reformer", Reformer{4, 40, 16, 0}}};
  for (const auto& [text, method] : of_40) {
    const Problem p = hashed_head(text, 40, 4);
    EXPECT_EQ(method_of(p.sizes()), method);
    EXPECT_NO_THROW(plan::make_plan(p, {.M = 6000})) << text;
    Problem read = p;
    read.approximate(p.approximate_text());
    EXPECT_EQ(method_of(read), method);
  }
  expect_refused(hashed_head("smyrf:cluster=64", 40, 4), "cluster = 64: give a number from 1 to 40");
}

TEST(HashingPlans, RefuseWhatTheyCannotDo) {
  expect_refused(hashed_head("smyrf:rounds=0"), "rounds = 0: give a number from 1");
  expect_refused(hashed_head("smyrf:cluster=513"), "cluster = 513: give a number from 1 to 512");
  expect_refused(hashed_head("hyper:samples=513"), "samples = 513");
  expect_refused(hashed_head("hyper:planes=21"), "planes = 21: give a number from 1 to 20");
  expect_refused(hashed_head("reformer:buckets=7"), "buckets = 7: give an even number");
  Problem p = hashed_head("reformer");
  p.n_k = 500;
  expect_refused(p, "n_q must be n_k");
  p = hashed_head("reformer");
  p.window_left = 3;
  expect_refused(p, "no mask but the causal one");
  p = hashed_head("hyper");
  p.causal = true;
  expect_refused(p, "knows no mask");
  for (const std::string_view method : {"smyrf", "hyper", "reformer"}) {
    p = hashed_head(method);
    p.heads = 4;
    p.kv_heads = 2;
    expect_refused(p, "each head needs keys and values of its own");
    p = hashed_head(method);
    p.op = Operation::backward;
    expect_refused(p, "it is for forward");
  }
}

}  // namespace redblue::test
