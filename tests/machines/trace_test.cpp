#include "redblue/machines/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "redblue/language/error.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/forward/naive.hpp"
#include "redblue/schedules/forward/score_tiles.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "support/paths.hpp"

namespace redblue::test {

using namespace redblue::schedule;
using machine::Trace;

namespace {

template <class S>
std::string trace_text(const Sizes& x, typename S::Tiling t) {
  Trace trace;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, trace);
  S::run(traced, ForwardOperands(x, 0.5), t);
  std::ostringstream text;
  machine::write_text(text, trace);
  return text.str();
}

/// Set REDBLUE_UPDATE_GOLDEN to rewrite the files; read the difference before you commit it.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = test::in_sources("/tests/machines/golden/" + name + ".trace");
  if (std::getenv("REDBLUE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  std::ostringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(text, golden.str());
}

Sizes tiny(Mask mask = {}) { return {3, 3, 2, 1, mask, false}; }

}  // namespace

TEST(GoldenTrace, Flash) { expect_golden("flash", trace_text<FlashForward>(tiny({.hi = 1}), {2, 1})); }
TEST(GoldenTrace, FlashPinned) { expect_golden("flash_pinned", trace_text<FlashPinnedForward>(tiny(), {2, 1, 1})); }
TEST(GoldenTrace, KeyOuter) { expect_golden("key_outer", trace_text<KeyOuterForward>(tiny(), {2, 1})); }
TEST(GoldenTrace, SmallCache) {
  expect_golden("small_cache", trace_text<SmallCacheForward>(tiny(), {{false, 2, 3}, {2, 1}}));
}
TEST(GoldenTrace, ScoreTiles) { expect_golden("score_tiles", trace_text<ScoreTilesForward>(tiny(), {2, 2})); }
TEST(GoldenTrace, Naive) { expect_golden("naive", trace_text<NaiveForward>(tiny(), {2, 3, 3, 1, 2})); }

TEST(Trace, TextIsReadBackToTheSameText) {
  const std::string text = trace_text<KeyOuterForward>(tiny(), {2, 1});
  std::istringstream in(text);
  std::ostringstream again;
  machine::write_text(again, machine::read_text(in));
  EXPECT_EQ(again.str(), text);
}

TEST(Trace, RefusesLinesThatAreNoOperation) {
  for (const char* line : {"jump t0", "open t0", "open x0 1x1", "read t0[0:1,0:1]", "compute nothing t0[0:1,0:1]",
                           "compute zero", "compute scores(scale=1) t0[0:1,0:1] t0[0:1,0:1] t0[0:1,0:1]",
                           "read t0[0:1,0:1] W#0[0:1,0:1]", "close t0 1x1 diagonal", "step 0 0"}) {
    std::istringstream in(std::string("# redblue.trace/2\n") + line + "\n");
    EXPECT_THROW(machine::read_text(in), InvalidProblem) << line;
  }
}

machine::Trace trace_of(const std::string& text) {
  std::istringstream in(text);
  return machine::read_text(in);
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const InvalidProblem& e) {
    return e.what();
  }
  return "no error";
}

TEST(Trace, RefusesSizesAndParametersThatNoScheduleGives) {
  const std::string s =
      "compute scores(scale=1,lo=-inf,hi=1,prefix=0,group=1,row=0,col=0) t0[0:1,0:1] t0[0:1,0:1] t0[0:1,0:1]";
  EXPECT_NO_THROW(trace_of(s));
  const auto with = [&](const std::string& from, const std::string& to) {
    return std::string(s).replace(s.find(from), from.size(), to);
  };
  for (const std::string& line : {
           std::string("update zero_over(first=2) Q#0[0:1,0:1]"),
           std::string("update zero_over(first=0.5) Q#0[0:1,0:1]"),
           std::string("update zero_over(first=nan) Q#0[0:1,0:1]"),
           std::string("update zero_over(first=-1) Q#0[0:1,0:1]"),
           with("lo=-inf", "lo=inf"),
           with("hi=1", "hi=1e300"),
           with("hi=1", "hi=-inf"),
           with("hi=1", "hi=0.5"),
           with("hi=1", "hi=nan"),
           with("hi=1", "hi=1e16"),
           with("prefix=0", "prefix=-1"),
           with("row=0", "row=inf"),
           with("group=1", "group=0"),
           with("group=1", "group=-1"),
           with("row=0", "row=-1"),
           with("col=0", "col=-3"),
           with("scale=1", "scale=one"),
           with("scale=1", "scal=1"),
           with("scale=1,lo=-inf", "lo=-inf,scale=1"),
           with("hi=1,prefix=0,group=1", "hi=-4e15,prefix=0,group=4e15"),
           std::string(
               "compute weights_accumulate(score=4,share=0,seed=0,head=0,group=1,first_row=0,row=0,col=0) t0[0:1,0:1]"),
           std::string("compute weights(score=4,scale=1) t0[0:1,0:1] t1[0:1,0:1]"),
           std::string("compute weights(score=-1,scale=1) t0[0:1,0:1] t1[0:1,0:1]"),
           std::string("open t0 -1x2"),
           std::string("open t0 4294967296x4294967296"),
           std::string("open t-1 1x1"),
           std::string("open t0 9223372036854775808x1"),
           std::string("close t0 1x-1"),
           std::string("step -1"),
           std::string("close t0 1x1 read_only"),
           std::string("read t0[1:0,0:1] Q#0[0:1,0:1]"),
           std::string("read t0[-1:0,0:1] Q#0[0:1,0:1]"),
           std::string("read t0[0:1,0:1] Q#-1[0:1,0:1]"),
           std::string("read t0[0:1,0:1] Q#0[0:2,0:1]"),
           std::string("read Q#0[0:1,0:1] t0[0:1,0:1]"),
           std::string("read t0[-9223372036854775808:9223372036854775807,0:1] Q#0[0:1,0:1]"),
           std::string("write t0[0:1,0:1] Q#0[0:1,0:1]"),
           std::string("write Q#0[0:1,0:1] Q#0[0:1,0:1]"),
           std::string("compute zero Q#0[0:1,0:1]"),
           std::string("compute add t0[0:1,0:1] t0[0:1,0:2]"),
           std::string("compute gemm(transpose_a=0,transpose_b=0) t0[0:2,0:2] t1[0:3,0:2] t2[0:3,0:2]"),
           std::string("update zero Q#0[0:1,0:1]"),
           std::string("update zero_over(first=1) t0[0:1,0:1]"),
           std::string("compute statistics_init t0[0:2,0:3] t1[0:2,0:3]"),
           std::string("compute log t0[0:3,0:0]"),
           std::string("compute gemm(transpose_a=0,transpose_b=0) t0[0:2147483648,0:2147483648] "
                       "t1[0:2147483648,0:2147483648] t2[0:2147483648,0:2147483648]"),
       })
    EXPECT_THAT(message_of([&] { trace_of("# redblue.trace/2\n" + line + "\n"); }),
                testing::StartsWith("trace line 2: "))
        << line;
}

TEST(Trace, IsReplayedOnlyWhereEverythingIsThere) {
  const std::vector<SlowMatrix> arrays = {{SlowArray::Q, {3, 2}}, {SlowArray::O, {3, 2}, 1}};
  const std::string good = "open t0 2x2\nread t0[0:2,0:2] Q#0[1:3,0:2]\nwrite O#1[0:1,0:2] t0[1:2,0:2]\nclose t0 2x2\n";
  machine::Counting counting;
  machine::replay(trace_of(good), counting, arrays);
  EXPECT_EQ(counting.io().total(), Words(6));

  std::string many;
  for (int i = 0; i < 5; ++i) many += "open t" + std::to_string(i) + " 2147483648x1073741824\n";
  const struct {
    std::string text, says;
  } bad[] = {
      {"open t1 2x2\nclose t1 2x2\n", "trace operation 1, 'open t1 2x2': the next tile is t0"},
      {"open t0 2x2\nopen t1 1x1\nclose t0 2x2\nclose t1 1x1\n", "trace operation 3, 'close t0 2x2': the topmost"},
      {"close t0 2x2\n", "trace operation 1"},
      {"open t0 2x2\nclose t0 2x1\n", "trace operation 2, 'close t0 2x1': the tile has another shape"},
      {"open t0 2x2\n", "ends with 1 tiles that were not closed"},
      {"open t0 2x2\nread t1[0:2,0:2] Q#0[1:3,0:2]\nclose t0 2x2\n",
       "trace operation 2, 'read t1[0:2,0:2] Q#0[1:3,0:2]': "
       "there is no tile t1"},
      {"open t0 2x2\nread t0[1:3,0:2] Q#0[1:3,0:2]\nclose t0 2x2\n", "reaches outside t0, which is 2x2"},
      {"open t0 2x2\nread t0[0:2,0:2] Q#0[2:4,0:2]\nclose t0 2x2\n", "a block reaches outside Q#0, which is 3x2"},
      {"open t0 2x2\nread t0[0:2,0:2] Q#1[0:2,0:2]\nclose t0 2x2\n", "there is no array Q#1"},
      {"open t0 2x1\ncompute add_row_sums t0[0:2,0:1] K#0[0:2,0:2]\nclose t0 2x1\n", "there is no array K#0"},
      {"update zero_over(first=1) O#1[0:4,0:2]\n", "a block reaches outside O#1"},
      {many, "counts up to here exceed 63 bits"},
  };
  for (const auto& [text, says] : bad) {
    machine::Counting untouched;
    EXPECT_THAT(message_of([&] { machine::replay(trace_of(text), untouched, arrays); }), testing::HasSubstr(says))
        << text;
    EXPECT_EQ(untouched.peak() + untouched.io().total().to_index(), 0) << "something ran before it was refused";
  }
}

TEST(Trace, OfOnesOwnMakingIsCheckedToo) {
  machine::Counting counting;
  Trace trace;
  trace.operations.push_back({.kind = machine::Operation::Kind::run, .args = {}, .kernel = kernel::Zero{}});
  EXPECT_THAT(message_of([&] { machine::replay(trace, counting); }),
              testing::HasSubstr("takes 1 arguments and is given 0"));
  trace.operations[0] = {.kind = machine::Operation::Kind::read, .args = {}};
  EXPECT_THAT(message_of([&] { machine::replay(trace, counting); }), testing::HasSubstr("a tile and a block"));
}

TEST(Decisions, NameThoseThatTookTheWorst) {
  const auto named = [](const Decisions& d) {
    std::vector<index_t> list;
    d.for_worst([&](index_t i) { list.push_back(i); });
    return list;
  };
  Decisions some, others;
  for (const bool is_worst : {true, true, false, true}) some.add(is_worst);
  EXPECT_EQ(some, (Decisions{4, 3, {{0, 2}, {3, 4}}}));
  for (const bool is_worst : {true, false}) others.add(is_worst);
  some += others;
  EXPECT_EQ(some.asked, 6);
  EXPECT_EQ(some.worst, 4);
  EXPECT_EQ(named(some), (std::vector<index_t>{0, 1, 3, 4}));
  EXPECT_EQ(named({5, 2}), (std::vector<index_t>{3, 4}));  // not said: the last ones
  EXPECT_TRUE(named({5, 0}).empty());
}

/// What was decided is recorded, and a trace is not played where the numbers say something else.
TEST(Trace, HoldsDecisions) {
  const std::string text =
      "# redblue.trace/2\nopen t0 1x1\nread t0[0:1,0:1] Q#0[0:1,0:1]\ndecide 3 t0[0:1,0:1]\nindex 3 t0[0:1,0:1]\n"
      "close t0 1x1\n";
  std::istringstream in(text);
  const Trace trace = machine::read_text(in);
  std::ostringstream out;
  machine::write_text(out, trace);
  EXPECT_EQ(out.str(), text);
  for (double q : {3.0, 4.0}) {
    machine::SlowMemory slow;
    slow[index_of(SlowArray::Q)] = machine::Storage::matrix(&q, {1, 1});
    machine::Ram<double> ram(1, slow, kernel::implementations<double>(Isa::portable));
    machine::Counted counted(ram);
    if (q == 3)
      EXPECT_NO_THROW(machine::replay(trace, counted));
    else
      EXPECT_THROW(machine::replay(trace, counted), InvalidProblem);
  }
  for (const char* wrong :
       {"decide 3 Q#0[0:1,0:1]", "decide 3 t0[0:1,0:2]", "decide -1 t0[0:1,0:1]", "index t0[0:1,0:1]"}) {
    std::istringstream line(wrong);
    EXPECT_THROW(machine::read_text(line), InvalidProblem) << wrong;
  }
}

TEST(Trace, StopsAtItsLimit) {
  Trace trace;
  trace.most = 5;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, trace);
  EXPECT_THROW(FlashForward::run(traced, ForwardOperands(tiny(), 1), {1, 1}), InvalidProblem);
  EXPECT_EQ(trace.operations.size(), 5U + 3U);  // the three tiles born so far are evicted all the same
}

}  // namespace redblue::test
