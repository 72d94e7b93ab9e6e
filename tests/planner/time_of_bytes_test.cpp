#include <gtest/gtest.h>

#include "redblue/planner/fastest.hpp"
#include "redblue/planner/widths.hpp"
#include "support/generators.hpp"
#include "support/paths.hpp"

/// The model of time charges the bytes that plan::bytes_of counts.
namespace redblue::test {
namespace {

double transfer(const plan::Plan& plan, const TimeOptions& time) { return modelled_time(plan, time).transfer_s; }

TEST(TimeOfBytes, UnfinishedWordsAreAsWideAsAccumulators) {
  Problem p = problem(512, 512, 64, 64);
  TimeOptions time;
  time.hardware = load_hardware(in_sources("/tests/data/hardware_slow_memory.json"));
  time.tensors = DType::bf16;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const char* schedule : {"flash", "key_outer", "two_pass", "fused_key_outer"}) {
      p.op = op;
      if (plan::Registry::built_in().find(op, schedule) == nullptr) continue;
      plan::Plan plan = plan::make_plan(p, {.M = 3000, .schedule = schedule});
      const double by_type = transfer(plan, time);
      set_widths(plan.options, p, DType::bf16, DType::f32, {});
      EXPECT_EQ(transfer(plan, time), by_type) << "those of the tensors' type are these widths";
      const bool revisits = plan::bytes_of(plan) != [&] {
        plan::Options narrow = plan.options;
        narrow.unfinished.fill(0);
        return plan::bytes_of(plan.row().io, narrow, op);
      }();
      EXPECT_EQ(revisits, std::string_view(schedule).ends_with("key_outer")) << schedule;
      plan.options.unfinished.fill(0);
      EXPECT_EQ(transfer(plan, time) < by_type, revisits) << schedule;
    }
}

}  // namespace
}  // namespace redblue::test
