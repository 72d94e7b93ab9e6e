#include "redblue/machines/resumable.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "redblue/machines/any.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/planner/run_on.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"

namespace redblue::test {
namespace {

using machine::Counting;
using machine::Resumable;
using machine::Resumption;

/// What a plan moves where its first `done` operations are left out.
Io moved_after(const plan::Plan& plan, index_t done, Resumption* resumption = nullptr) {
  Counting counting;
  Resumption at{.done = done};
  if (resumption == nullptr) resumption = &at;
  resumption->done = done;
  Resumable<Counting> resumable(counting, *resumption);
  machine::Any any(resumable);
  run_on(any, plan, plan.counted());
  return counting.io();
}

TEST(Resumable, PartsOfARunMoveTogetherWhatAllOfItMoves) {
  Problem p = with_heads({.n_q = 9, .n_k = 13, .d = 4, .d_v = 3}, 1, 2, 2);
  for (const Operation op : {Operation::forward, Operation::backward}) {
    p.op = op;
    for (const plan::Plan& plan : plans_in_turn(p)) {
      SCOPED_TRACE(text_of(plan));
      Resumption whole;
      std::vector<index_t> places;
      whole.between = [&](index_t operations) { places.push_back(operations); };
      const Io all = moved_after(plan, 0, &whole);
      EXPECT_EQ(all, plan.row().io);
      ASSERT_EQ(std::ssize(places), whole.operations - 1);
      Words last = all.total();
      for (index_t done = 1; done < whole.operations; done += 1 + whole.operations / 50) {
        Resumption after;
        index_t reached = 0, between = 0;
        after.reached = [&] { ++reached; };
        after.between = [&](index_t operations) {
          EXPECT_GT(operations, done);
          ++between;
        };
        const Io io = moved_after(plan, done, &after);
        EXPECT_LE(io.total(), last);
        EXPECT_EQ(after.operations, whole.operations);
        EXPECT_EQ(reached, 1);
        EXPECT_EQ(between, whole.operations - done - 1);
        last = io.total();
      }
      EXPECT_EQ(moved_after(plan, machine::kAllOperations).total(), Words(0));
    }
  }
}

TEST(Resumable, TilesAreOpenWhereARunGoesOn) {
  const plan::Plan plan = some_plan({.n_q = 9, .n_k = 13, .d = 4, .d_v = 3});
  Counting counting;
  Resumption at{.done = 2};
  Resumable<Counting> resumable(counting, at);
  at.reached = [&] { EXPECT_GT(counting.resident(), 0); };
  machine::Any any(resumable);
  run_on(any, plan, plan.counted());
  EXPECT_EQ(counting.resident(), 0);
}

}  // namespace
}  // namespace redblue::test
