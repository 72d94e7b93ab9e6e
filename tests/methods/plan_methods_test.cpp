#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/planner/planner.hpp"
#include "support/refusal.hpp"

/// Plans of published approximations: words and footprints against the figures that are known for them.
namespace redblue::test {
namespace {

Problem head(std::string_view method, index_t n = 512, index_t d = 32) {
  Problem p;
  p.n_q = p.n_k = n;
  p.d = p.d_v = d;
  p.approximate(method);
  return p;
}

struct MethodFigures {
  std::string_view method;
  index_t words, footprint;
};

void expect_refused(const Problem& p, std::string_view why) {
  EXPECT_THAT(refusal_of([&] { plan::make_plan(p, {.M = 100000}); }), testing::HasSubstr(std::string(why)));
}

}  // namespace

/// n = 512, d = d_v = 32: R + W, and the smallest footprint.
TEST(MethodPlans, HaveTheFiguresOfTheTable) {
  for (const MethodFigures& line : {
           MethodFigures{"linear", 65536, 32 * 33 + 32 + 2},                            // 1090
           MethodFigures{"performer:64", 65536, 64 * 33 + 67},                          // features one at a time
           MethodFigures{"performer:1024", 65536, 1024 * 33 + 67},                      // 33859
           MethodFigures{"linformer:64", 65536, 64 * 64 + 64 + 1},                      // 4161, word by word
           MethodFigures{"linformer:256", 65536, 256 * 64 + 32 + 32 + 3},               // 16451, row by row
           MethodFigures{"linformer:256,signs,seed=3", 65536, 256 * 64 + 32 + 32 + 3},  //
           MethodFigures{"sample:64", 36864, 64 * 64 + 64 + 1},                         // 4161
           MethodFigures{"sample:256,seed=3", 49152, 256 * 64 + 32 + 32 + 3},           // 16451
           MethodFigures{"nystroem:16", 98304, 16 * 64 + 3 * 16 * 16 + 2 * 16},         // 1824
           MethodFigures{"nystroem:64", 98304, 64 * 64 + 3 * 64 * 64 + 2 * 64},         // 16512
           MethodFigures{"nystroem:128,iterations=20", 98304, 128 * 64 + 3 * 128 * 128 + 256},  // 57600
           MethodFigures{"coreset:block=128,rank=8", 65536, 6913},
           MethodFigures{"coreset:block=128,rank=32", 65536, 14689},
           MethodFigures{"coreset:block=128,rank=32,tau=balanced", 81920, 14691},  // max |q| and max |k|
           MethodFigures{"coreset:block=128,rank=64,tau=balanced", 81920, 25059},
           MethodFigures{"coreset:block=512,rank=128,tau=balanced", 81920, 82659},
           MethodFigures{"coreset:block=64,rank=32,carried", 65536, 7425},
           MethodFigures{"coreset:block=64,rank=64,carried", 65536, 14689},
           MethodFigures{"coreset:block=128,rank=128,carried", 65536, 45665},
           MethodFigures{"coreset:block=128,rank=128,tau=balanced,carried", 81920, 45667},
       }) {
    const Problem p = head(line.method);
    const plan::Plan plan = plan::make_plan(p, {.M = line.footprint});
    EXPECT_EQ(plan.row().io.total(), line.words) << line.method;
    EXPECT_EQ(plan.row().footprint, line.footprint) << line.method;
    for (const plan::Row& row : plan.rows) EXPECT_EQ(row.algorithm->traits.method, p.method_kind()) << row.schedule;
    const std::string name(plan.row().schedule);
    EXPECT_THROW(plan::make_plan(p, {.M = line.footprint - 1, .schedule = name}), CapacityError) << line.method;
  }
  Problem causal = head("performer:64");
  causal.causal = true;
  EXPECT_EQ(plan::make_plan(causal, {.M = 2180}).row().footprint, 64 * 33 + 68);  // the largest logarithm stays
}

/// n = 4096, d = d_v = 64, where the state, or what stands for all keys, does not fit: the formulas of the notes, of
/// performer with its largest logarithms.
TEST(MethodPlans, HaveTheFormulasOfTheNotesInTiles) {
  struct Line {
    std::string_view method, schedule;
    index_t M, reads, writes;
  };
  constexpr index_t n = 4096, d = 64, all = n * (d + d) + n * d;  // K, V and Q once
  for (const Line& line : {
           // gs = 32, cb = 22: two groups, three blocks of columns
           Line{"linear", "linear_attention_tiled", 1024, 3 * d * 2 * n + 2 * n * d + n * (d + 1) + 2 * n,
                n * (d + 1) + n * d + n},
           // gs = 256, cb = 13: one group, five blocks of columns
           Line{"performer:256", "performer_tiled", 4096, n * d + 5 * d * 2 * n + n * d + 2 * 4 * n, n * d + 2 * n},
           // br = 31
           Line{"linformer:256", "linformer_spilled", 4096, all + 133 * 256 * 2 * d, n * d + 256 * 2 * d},
           // 1024 points, br = 121
           Line{"coreset:block=128,rank=32", "coreset_spilled", 16384, all + 34 * 1024 * (2 * d + 1),
                n * d + 1024 * (2 * d + 1)},
       }) {
    Problem p;
    p.n_q = p.n_k = n;
    p.d = p.d_v = d;
    p.approximate(line.method);
    const plan::Plan plan = plan::make_plan(p, {.M = line.M});
    EXPECT_EQ(plan.row().schedule, line.schedule);
    EXPECT_EQ(plan.row().io.total_reads(), line.reads) << line.method;
    EXPECT_EQ(plan.row().io.total_writes(), line.writes) << line.method;
  }
}

TEST(MethodPlans, TextsAreReadAsTheyWereWritten) {
  EXPECT_EQ(Problem().approximate_text(), "");
  for (const std::string_view text : {"linear",
                                      "performer:32,seed=7",
                                      "linformer:16",
                                      "linformer:16,signs,seed=2",
                                      "nystroem:16,iterations=4",
                                      "smyrf:rounds=2,cluster=32,seed=3",
                                      "hyper:block=32,samples=16,planes=5,seed=4",
                                      "reformer:rounds=2,chunk=32,buckets=8,seed=5",
                                      "coreset:block=32,rank=8,seed=0",
                                      "coreset:block=32,rank=8,tau=balanced,carried,seed=6",
                                      "2:0.8",
                                      "4:1,taylor",
                                      "4:1,chebyshev",
                                      "sample:16,seed=2",
                                      "2:1.5,gaussian,rows,centred,exact-keys=2",
                                      "3:2,rows,cluster=32,seed=5",
                                      "2:1.5,gaussian,rows,centred,cluster=8,seed=0,no-exact-rows",
                                      "2:1,chebyshev,rows,centred,exact-keys=2",
                                      "3:0.1,rows,exact-keys=0",
                                      "3:0.30000000000000004,rows,centred,exact-keys=2,no-exact-rows"})
    EXPECT_EQ(head(text).approximate_text(), text);
}

TEST(MethodPlans, StandApartFromExactOnes) {
  const Problem p = head("performer:64");
  Problem exact = p;
  exact.approximation = nullptr;
  EXPECT_EQ(plan::make_plan(p, {.M = 65536}).bound.name, "trivial");
  for (const plan::Row& r : plan::make_plan(exact, {.M = 65536}).rows)
    EXPECT_EQ(r.algorithm->traits.method, MethodKind::exact) << r.schedule;
  EXPECT_THROW(plan::make_plan(exact, {.M = 65536, .schedule = "performer"}), Unsupported);
  EXPECT_THROW(plan::make_plan(p, {.M = 65536, .schedule = "flash"}), Unsupported);
}

TEST(MethodPlans, ReadMethodsFromTexts) {
  EXPECT_EQ(method_of(head("linear")), Method(LinearAttention{}));
  EXPECT_EQ(method_of(head("performer:256,seed=7")), Method(Performer{256, 7}));
  EXPECT_EQ(method_of(head("linformer:64")), Method(Linformer{64, false, 0}));
  EXPECT_EQ(method_of(head("linformer:64,signs,seed=7")), Method(Linformer{64, true, 7}));
  EXPECT_EQ(method_of(head("linformer:64,seed=7,signs")), Method(Linformer{64, true, 7}));
  EXPECT_EQ(method_of(head("nystroem:64")), Method(Nystroemformer{64, 6}));
  EXPECT_EQ(method_of(head("nystroem:64,iterations=20")), Method(Nystroemformer{64, 20}));
  EXPECT_EQ(method_of(head("coreset:block=64,rank=8")), Method((Coreset{64, 8, false, false, 0})));
  EXPECT_EQ(method_of(head("coreset:rank=8,seed=7,carried,block=64,tau=balanced")),
            Method((Coreset{64, 8, true, true, 7})));
  EXPECT_EQ(method_of(head("coreset:block=64,rank=8,tau=1")), Method((Coreset{64, 8, false, false, 0})));
  EXPECT_EQ(method_of(head("smyrf").sizes()), Method(Smyrf{4, 64, 0}));
  EXPECT_EQ(method_of(head("smyrf:cluster=32,seed=5,rounds=2")), Method(Smyrf{2, 32, 5}));
  EXPECT_EQ(method_of(head("hyper:samples=256").sizes()), Method(HyperAttention{64, 256, 7, 0}));
  EXPECT_EQ(method_of(head("reformer:rounds=8,chunk=32,buckets=16,seed=1")), Method(Reformer{8, 32, 16, 1}));
  EXPECT_EQ(polynomial_of(head("2:1.0"))->degree(), 2);
  for (const Fit fit : {Fit::taylor, Fit::chebyshev, Fit::minimax})
    for (const char* rows : {"", ",rows", ",exact-keys=3"}) {
      const Problem p = head("4:0.5," + std::string(name_of(fit)) + rows);
      EXPECT_EQ(polynomial_of(p)->c, near_exp(fit, 4, 0.5).c);
      EXPECT_EQ(polynomial_of(p)->error, near_exp(fit, 4, 0.5).error);
      if (p.approximation->by_rows()) {
        EXPECT_EQ((*row_polynomials_of(p))[31].c, near_exp(fit, 4, 0.25).c);
      }
    }
  const Problem spread = head("2:0.5,gaussian");
  EXPECT_TRUE(row_polynomials_of(spread)->by_spread() && row_polynomials_of(spread)->centred);
  EXPECT_TRUE(row_polynomials_of(spread)->exact_rows && !row_polynomials_of(spread)->proves());
  EXPECT_EQ(row_polynomials_of(head("2:3,cluster=16,seed=4"))->cluster, 16);
  EXPECT_EQ(method_of(head("sample:64,seed=7")), Method(UniformSample{64, 7}));
  EXPECT_EQ(polynomial_of(head("4:0.5"))->c, near_exp(Fit::minimax, 4, 0.5).c);
  for (const std::string_view wrong : {"",
                                       "2",
                                       "2:",
                                       "2:1,seed=3",
                                       "2:1,taylor,chebyshev",
                                       "2:1,taylor,taylor",
                                       "2:1,gaussian,taylor",
                                       "2:1,rows,seed=3",
                                       "2:1,cluster",
                                       "sample",
                                       "sample:64,signs",
                                       "2:1,centred,centred",
                                       "2:1,Taylor",
                                       "2:1,taylor=1",
                                       "performer:64,taylor",
                                       "performer",
                                       "performer:",
                                       "performer:x",
                                       "performer:64,",
                                       "performer:64,seed",
                                       "performer:64,seed=",
                                       "performer:64,signs",
                                       "linear:3",
                                       "linformer:64,seed=7",
                                       "nystroem:64,seed=1",
                                       "coreset",
                                       "coreset:8",
                                       "coreset:block=64",
                                       "coreset:rank=8",
                                       "coreset:block=64,rank=8,tau=2",
                                       "coreset:block=64,rank=8,tau=1,tau=balanced",
                                       "smyrf:4",
                                       "smyrf:rounds",
                                       "smyrf:rounds=",
                                       "smyrf:rounds=2,rounds=3",
                                       "smyrf:",
                                       "smyrf:block=3",
                                       "hyper:cluster=3",
                                       "reformer:4",
                                       "reformer:rounds=4,",
                                       "performer:64,seed=1,seed=2",
                                       ":4",
                                       ","})
    EXPECT_THAT(refusal_of<InvalidProblem>([&] { head(wrong); }),
                testing::StartsWith("approximation " + std::string(wrong) + ": give "));
}

/// n = 512, d = d_v = 32: R + W at the footprint of the table.
TEST(HashingPlans, HaveTheFiguresOfTheTable) {
  for (const MethodFigures& line :
       {MethodFigures{"reformer:rounds=1", 71744, 8292}, MethodFigures{"reformer:rounds=4", 290048, 8292},
        MethodFigures{"reformer:rounds=8,chunk=32", 564480, 4164}, MethodFigures{"smyrf:rounds=1", 104448, 4164},
        MethodFigures{"smyrf:rounds=4", 368640, 4164}, MethodFigures{"smyrf:rounds=8", 720896, 4164},
        MethodFigures{"smyrf:rounds=4,cluster=128", 368640, 8260}, MethodFigures{"hyper:samples=64", 106560, 8260},
        MethodFigures{"hyper:samples=256", 119040, 20548},
        MethodFigures{"hyper:block=128,samples=128", 110720, 16452}}) {
    const plan::Plan plan = plan::make_plan(head(line.method), {.M = line.footprint});
    EXPECT_EQ(plan.row().io.total(), line.words) << line.method;
    EXPECT_EQ(plan.row().footprint, line.footprint) << line.method;
    EXPECT_EQ(plan.rows.size(), 1U);
    // With less, keys pass one by one, for several blocks of queries of a cluster: more words.
    EXPECT_GT(plan::make_plan(head(line.method), {.M = line.footprint - 1}).row().io.total(), line.words)
        << line.method;
  }
}

/// The worked figure of the notes: one pass of hashing for all rounds, rounds merged as they come.
TEST(HashingPlans, ReformerOfTheNotes) {
  const Problem p = head("reformer:rounds=4,buckets=128", 4096, 64);
  EXPECT_EQ(plan::make_plan(p, {.M = 20000}).row().io.total(), 4'317'440);
}

/// K is not read, so no bound may count it; under a causal mask the last value is read by no row but its own, which
/// weighs itself only where it sees nothing else.
TEST(HashingPlans, ReformerIsNotBoundedByWordsOfK) {
  Problem p = head("reformer:rounds=1,chunk=64,buckets=4", 64, 16);
  const plan::Plan plan = plan::make_plan(p, {.M = 5000});
  EXPECT_EQ(plan.bound.words, 3 * 64 * 16);
  EXPECT_EQ(plan::make_plan(head("smyrf:cluster=64", 64, 16), {.M = 5000}).bound.words, 4 * 64 * 16);
  p.causal = true;
  EXPECT_EQ(plan::make_plan(p, {.M = 5000}).bound.words, 3 * 64 * 16 - 16);
  // Of two rows either has the value of the other, whatever they are.
  EXPECT_EQ(plan::make_plan(head("reformer:rounds=1,chunk=2,buckets=2", 2, 16), {.M = 5000}).bound.words, 64);
}

/// Runs of pairs in slow memory where n pairs do not fit: each pass over them reads and writes 2 n words for each side.
TEST(HashingPlans, SortsMergeRunsWhereRowsDoNotFit) {
  const Problem p = head("smyrf:rounds=1,cluster=8", 512, 4);
  const auto words = [&](index_t M) { return plan::make_plan(p, {.M = M}).row().io.total(); };
  const Words in_one_run = words(2 * 512 + 2), one_pass = words(2 * 512 + 1);
  EXPECT_EQ(one_pass - in_one_run, 8 * 512);  // 2 n read and written, of queries and of keys
  const plan::Row row = plan::make_plan(p, {.M = 90}).row();
  EXPECT_EQ(row.io.reads[index_of(SlowArray::runs)], row.io.writes[index_of(SlowArray::runs)]);
  EXPECT_EQ(words(90) - in_one_run, 8 * 512);  // 12 runs of 44 pairs, merged at once
}

/// A number that nobody gave is no reason to refuse a short head; one that was given is.
TEST(HashingPlans, DefaultsFitShortHeads) {
  const std::vector<std::pair<std::string_view, Method>> of_40{
      {"smyrf", Smyrf{4, 40, 0}}, {"hyper", HyperAttention{40, 40, 7, 0}}, {"reformer", Reformer{4, 40, 16, 0}}};
  for (const auto& [text, method] : of_40) {
    const Problem p = head(text, 40, 4);
    EXPECT_EQ(method_of(p.sizes()), method);
    EXPECT_NO_THROW(plan::make_plan(p, {.M = 6000})) << text;
    Problem read = p;
    read.approximate(p.approximate_text());
    EXPECT_EQ(method_of(read), method);
  }
  expect_refused(head("smyrf:cluster=64", 40, 4), "cluster = 64: give a number from 1 to 40");
}

TEST(MethodPlans, RefuseWhatTheyCannotDo) {
  expect_refused(head("linformer:513"), "from 1 to 512");
  expect_refused(head("performer:0"), "features = 0");
  expect_refused(head("nystroem:64,iterations=0"), "iterations = 0");
  expect_refused(head("coreset:block=513,rank=8"), "block = 513: give a number from 1 to 512");
  expect_refused(head("coreset:block=64,rank=65"), "rank = 65: give a number from 1 to 64");
  expect_refused(head("coreset:block=64,rank=513,carried"), "rank = 513: give a number from 1 to 512");
  expect_refused(head("sample:513"), "keys = 513: give a number from 1 to 512");
  EXPECT_THROW(head("1:1,gaussian"), InvalidProblem);  // the spread is read off squares
  EXPECT_THROW(head("2:1,exact-keys=3,cluster=4"), InvalidProblem);
  EXPECT_THROW(head("2:1,cluster=-4"), InvalidProblem);
  EXPECT_THROW(head("2:1,cluster=0"), InvalidProblem);
  expect_refused(head("2:1,cluster=512"), "with one cluster of all 512 keys");
  for (const char* text : {"2:-1,gaussian", "2:-1,rows"})  // as it was given, not a step of a grid
    EXPECT_THAT(refusal_of<InvalidProblem>([&] { head(text); }), testing::HasSubstr("range = -1 ")) << text;
  EXPECT_THROW(head("2:1,cluster=4,seed=-1"), InvalidProblem);
  Problem p = head("2:1,cluster=64");
  p.heads = 4;
  p.kv_heads = 2;
  expect_refused(p, "each head needs keys and values of its own");
  p = head("linformer:64");
  p.causal = true;
  expect_refused(p, "knows no mask");
  p = head("coreset:block=64,rank=8");
  p.causal = true;
  expect_refused(p, "knows no mask");
  p = head("nystroem:64");
  p.heads = 4;
  p.kv_heads = 2;
  expect_refused(p, "each head needs keys and values of its own");
  p = head("performer:64");
  p.op = Operation::backward;
  expect_refused(p, "it is for forward");
  p = head("performer:64");
  p.scale = -1;
  expect_refused(p, "give a positive one");
  p = head("linear");
  p.scale = 0.5;  // would be ignored
  EXPECT_THROW(p.validate(), InvalidProblem);
  for (const char* text : {"0:1", "13:1", "40:1", "13:1,rows"}) EXPECT_THROW(head(text), InvalidProblem) << text;
  expect_refused(head("smyrf:rounds=0"), "rounds = 0: give a number from 1");
  expect_refused(head("smyrf:cluster=513"), "cluster = 513: give a number from 1 to 512");
  expect_refused(head("hyper:samples=513"), "samples = 513");
  expect_refused(head("hyper:planes=21"), "planes = 21: give a number from 1 to 20");
  expect_refused(head("reformer:buckets=7"), "buckets = 7: give an even number");
  p = head("reformer");
  p.n_k = 500;
  expect_refused(p, "n_q must be n_k");
  p = head("reformer");
  p.window_left = 3;
  expect_refused(p, "no mask but the causal one");
  p = head("hyper");
  p.causal = true;
  expect_refused(p, "knows no mask");
  for (const std::string_view method : {"smyrf", "hyper", "reformer"}) {
    p = head(method);
    p.heads = 4;
    p.kv_heads = 2;
    expect_refused(p, "each head needs keys and values of its own");
    p = head(method);
    p.op = Operation::backward;
    expect_refused(p, "it is for forward");
  }
  p = head("linear");
  p.window_left = 3;
  expect_refused(p, "from the first on");
}

}  // namespace redblue::test
