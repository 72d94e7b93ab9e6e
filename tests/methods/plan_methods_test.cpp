#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/methods/approximations.hpp"
#include "redblue/planner/planner.hpp"

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
                                       "reformer:4",
                                       "performer:64,seed=1,seed=2",
                                       ":4",
                                       ","})
    try {
      head(wrong);
      ADD_FAILURE() << wrong;
    } catch (const InvalidProblem& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("performer:FEATURES")) << wrong;
    }
}

TEST(MethodPlans, RefuseWhatTheyCannotDo) {
  const auto refused = [](Problem p, std::string_view why) {
    try {
      plan::make_plan(p, {.M = 100000});
      ADD_FAILURE() << why;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(std::string(why)));
    }
  };
  refused(head("linformer:513"), "from 1 to 512");
  refused(head("performer:0"), "features = 0");
  refused(head("nystroem:64,iterations=0"), "iterations = 0");
  refused(head("coreset:block=513,rank=8"), "block = 513: give a number from 1 to 512");
  refused(head("coreset:block=64,rank=65"), "rank = 65: give a number from 1 to 64");
  refused(head("coreset:block=64,rank=513,carried"), "rank = 513: give a number from 1 to 512");
  refused(head("sample:513"), "keys = 513: give a number from 1 to 512");
  EXPECT_THROW(head("1:1,gaussian"), InvalidProblem);  // the spread is read off squares
  EXPECT_THROW(head("2:1,exact-keys=3,cluster=4"), InvalidProblem);
  EXPECT_THROW(head("2:1,cluster=-4"), InvalidProblem);
  EXPECT_THROW(head("2:1,cluster=0"), InvalidProblem);
  refused(head("2:1,cluster=512"), "with one cluster of all 512 keys");
  for (const char* text : {"2:-1,gaussian", "2:-1,rows"}) try {
      head(text);
      ADD_FAILURE() << text;
    } catch (const InvalidProblem& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("range = -1 ")) << text;  // as it was given, not a step of a grid
    }
  EXPECT_THROW(head("2:1,cluster=4,seed=-1"), InvalidProblem);
  Problem p = head("2:1,cluster=64");
  p.heads = 4;
  p.kv_heads = 2;
  refused(p, "each head needs keys and values of its own");
  p = head("linformer:64");
  p.causal = true;
  refused(p, "knows no mask");
  p = head("coreset:block=64,rank=8");
  p.causal = true;
  refused(p, "knows no mask");
  p = head("nystroem:64");
  p.heads = 4;
  p.kv_heads = 2;
  refused(p, "each head needs keys and values of its own");
  p = head("performer:64");
  p.op = Operation::backward;
  refused(p, "it is for forward");
  p = head("performer:64");
  p.scale = -1;
  refused(p, "give a positive one");
  p = head("linear");
  p.scale = 0.5;  // would be ignored
  EXPECT_THROW(p.validate(), InvalidProblem);
  for (const char* text : {"0:1", "13:1", "40:1", "13:1,rows"}) EXPECT_THROW(head(text), InvalidProblem) << text;
  p = head("linear");
  p.window_left = 3;
  refused(p, "from the first on");
}

}  // namespace redblue::test
