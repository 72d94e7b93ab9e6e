#include <fmt/format.h>

#include <memory>

#include "commands/commands.hpp"
#include "options/options.hpp"
#include "report/json.hpp"
#include "report/plan_formats.hpp"
#include "report/progress.hpp"

namespace redblue::cli {

namespace {

/// What a count should find resident: where it takes the worst for every decision, what that takes.
Words footprint_of_count(const plan::Plan& plan, const Decisions& all) {
  const plan::Row& row = plan.row();
  if (row.algorithm->decided == nullptr) return plan.footprint_bytes().value_or(plan.footprint());
  const plan::Instances x = plan.counted();
  return row.algorithm->decided(x.sizes, row.tiling, {all.asked / x.count, all.worst / x.count}).footprint;
}

}  // namespace

void add_count(Program& program) {
  const Command command =
      program.command("count", "run a schedule on the counting machine and compare with its formula");
  command.footer(
      "Examples:\n"
      "  redblue count --n 4096 --d 64 --M 16384\n"
      "  redblue count --n 4096 --d 256 --M 4096 --schedule flash --json");
  auto options = std::make_shared<ProblemOptions>();
  options->add_to(command);
  command.does([options] {
    const plan::Plan plan = options->plan();
    const plan::Row& row = plan.row();
    const Measured counted = [&] {
      const Heartbeat heartbeat(fmt::format("counting {} words", plan.io().total().str()));
      return count(plan);
    }();
    const Io io = plan.io();
    const Words footprint = footprint_of_count(plan, counted.decisions);
    const Words peak = counted.peak_bytes.value_or(counted.peak);
    const bool bytes = plan::minimises_bytes(plan.options);
    const Words counted_bytes = counted.moved_bytes.value_or(0);
    const Words planned_bytes = bytes ? plan::bytes_of(plan).total() : Words(0);
    const bool equal = counted.io == io && peak == footprint && counted.flops == plan.flops() &&
                       (!bytes || counted_bytes == planned_bytes);
    if (options->json) {
      Json j{{"schema", "redblue.count/1"},
             {"problem", to_json(plan.problem)},
             {"M", to_json(plan.options.M)},
             {"schedule", std::string(row.schedule)},
             {"tiling", to_json(row.tiling)},
             {"own_tilings", own_tilings_to_json(row.tiling)},
             {"counted", counts_to_json(counted.io, peak, counted.flops)},
             {"formula", counts_to_json(io, footprint, plan.flops())},
             {"footprint_in", plan.options.memory ? "bytes" : "words"},
             {"fits", row.fits},
             {"work", work_to_json(row)},
             {"equal", equal},
             {"bound", to_json(plan.bound)},
             {"ratio", row.ratio ? Json(*row.ratio) : Json(nullptr)}};
      if (bytes) {
        j["counted"]["bytes"] = to_json(counted_bytes);
        j["formula"]["bytes"] = to_json(planned_bytes);
        j["bound_bytes"] = to_json(plan::least_bytes(plan));
      }
      if (plan.forward) j["forward"] = to_json(plan.forward->row());
      print(j);
    } else {
      fmt::print("{:<18} {:>22} {:>22}\n", row.schedule, "counted", "formula");
      if (plan.forward) fmt::print("after {}, whose words are included\n", plan.forward->row().schedule);
      const auto line = [](const char* what, Words a, Words b) {
        fmt::print("{:<18} {:>22} {:>22}\n", what, a.str(), b.str());
      };
      line("reads", counted.io.total_reads(), io.total_reads());
      line("writes", counted.io.total_writes(), io.total_writes());
      if (bytes) line("bytes moved", counted_bytes, planned_bytes);
      line(plan.options.memory ? "peak in bytes" : "peak", peak, footprint);
      line("flops", counted.flops, plan.flops());
      fmt::print("{:<18} {:>22}   ({})\n", "bound", plan.bound.words.str(), theorem_of(plan.bound));
      if (bytes) fmt::print("{:<18} {:>22}\n", "bound in bytes", plan::least_bytes(plan).str());
      if (row.ratio) fmt::print("{:<18} {:>22.4f}\n", "ratio", *row.ratio);
      if (counted.decisions.asked > 0)
        fmt::print("without data, {} decisions took the worst: the most that any data cost\n", counted.decisions.worst);
      if (!row.fits) fmt::print("needs {:.2f} M\n", row.footprint.to_double() / plan.options.M.to_double());
      fmt::print("{}\n", equal ? "counted = formula" : "counted and formula DIFFER");
    }
    return equal ? 0 : 1;
  });
}

}  // namespace redblue::cli
