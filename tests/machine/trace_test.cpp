#include "redblue/machine/trace.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "redblue/core/error.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/schedule/forward/flash.hpp"
#include "redblue/schedule/forward/flash_pinned.hpp"
#include "redblue/schedule/forward/key_outer.hpp"
#include "redblue/schedule/forward/naive.hpp"
#include "redblue/schedule/forward/score_tiles.hpp"
#include "redblue/schedule/forward/small_cache.hpp"

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
  const std::string path = std::string(REDBLUE_SOURCE_DIR) + "/tests/machine/golden/" + name + ".trace";
  if (std::getenv("REDBLUE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  std::ostringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(text, golden.str());
}

Sizes tiny(Mask mask = {}) { return {3, 3, 2, 1, mask, false}; }

}  // namespace

TEST(GoldenTrace, Flash) { expect_golden("flash", trace_text<FlashForward>(tiny({true, 0, 1}), {2, 1})); }
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
    std::istringstream in(std::string("# redblue.trace/1\n") + line + "\n");
    EXPECT_THROW(machine::read_text(in), InvalidProblem) << line;
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
