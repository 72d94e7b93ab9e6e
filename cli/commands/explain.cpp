#include <fmt/format.h>

#include <array>
#include <memory>
#include <string_view>

#include "commands/commands.hpp"
#include "options/levels.hpp"
#include "options/options.hpp"
#include "redblue/runtime/outline.hpp"
#include "report/json.hpp"
#include "report/levels.hpp"
#include "report/progress.hpp"

namespace redblue::cli {

namespace {

using machine::LineKind;
using machine::Operand;
using machine::OutlineLine;
using machine::Position;

std::vector<OutlineLine> walked(const plan::Plan& plan, machine::Scratch scratch) {
  const Heartbeat heartbeat("walking through the schedule");
  return outline(plan, scratch);
}

void print_outline(const plan::Plan& plan, machine::Scratch scratch) {
  const Heartbeat heartbeat("walking through the schedule");
  fmt::print("{}", outline_text(plan, scratch));
}

Json json_of(const Position& p) {
  Json json = {{"first", p.first}, {"steps", p.steps}, {"regular", p.regular}};
  if (p.wraps) json["modulo"] = p.rows;
  return json;
}

Json json_of(const Operand& o) {
  const auto shape = [](Shape s) { return Json::array({s.rows, s.cols}); };
  Json j{{"array", std::string(name_of(o.array))},
         {"shape", shape(o.usual)},
         {"first_shape", shape(o.first)},
         {"last_shape", shape(o.last)},
         {"row", json_of(o.row)},
         {"col", json_of(o.col)}};
  if (!o.tile.empty()) j.update({{"tile", o.tile}, {"whole", shape(o.whole)}});
  return j;
}

/// `in_bytes`: does the plan minimise bytes? The bytes of stores are those of last writes; words that are written to be
/// read again are wider (plan::unfinished_width).
Json json_of(const std::vector<OutlineLine>& lines, bool in_bytes) {
  constexpr std::array<std::string_view, 8> kKinds = {"loop",  "alloc",   "load",   "refill",
                                                      "store", "compute", "update", "evict"};
  Json list = Json::array();
  for (const OutlineLine& l : lines) {
    Json j{{"kind", std::string(kKinds[static_cast<std::size_t>(l.kind)])}};
    if (l.kind == LineKind::loop) {
      j.update({{"independent", l.independent},
                {"fewest_rounds", l.fewest},
                {"most_rounds", l.most},
                {"rounds", json_of(l.rounds)},
                {"body", json_of(l.body, in_bytes)}});
    } else {
      if (!l.kernel.empty()) j["kernel"] = l.kernel;
      if (l.below) j["level_below"] = true;
      Json operands = Json::array();
      for (const Operand& o : l.operands) operands.push_back(json_of(o));
      j.update({{"operands", operands},
                {"times", to_json(l.times)},
                {"reads", to_json(l.reads)},
                {"writes", to_json(l.writes)},
                {"bytes", in_bytes ? Json(to_json(l.bytes)) : Json(nullptr)},
                {"multiply_adds", to_json(l.macs)},
                {"resident", to_json(l.resident)}});
    }
    list.push_back(j);
  }
  return list;
}

}  // namespace

void add_explain(Program& program) {
  const Command command =
      program.command("explain", "the loop nest of the chosen schedule, with this problem's numbers in it");
  command.footer(
      "Q[64 i : +64, :] is 64 rows from row 64 i on, all columns; q[i, :] is a row of the tile q; k[i mod 39, :] is a\n"
      "row of a tile whose 39 rows are taken in turn (--json: \"modulo\"); .. depends on the mask. lse, lse2 and lse3\n"
      "hold statistics of rows: the maximum, then lse, and sums. load and alloc make a tile resident, evict drops it.\n"
      "A block among the arguments of a kernel streams past, one word at a time. Words moved are those of all rounds.\n"
      "Examples:\n"
      "  redblue explain --n 4096 --d 64 --M 16384\n"
      "  redblue explain --n 8192 --d 128 --heads 32 --kv-heads 8 --causal --dtype bf16 --memory 64KiB --multiple "
      "q=16,k=16\n"
      "  redblue explain --op backward --n 4096 --d 64 --M 16384 --schedule spilled\n"
      "  redblue explain --n 1048576 --d 64 --levels disk,256MiB,1MiB,32KiB");
  auto options = std::make_shared<ProblemOptions>();
  options->add_to(command);
  auto levels = std::make_shared<LevelsOptions>();
  levels->add_to(command);
  command.does([options, levels] {
    std::optional<levels::Nest> nest;
    if (levels->given()) nest = levels->nest(*options);
    const plan::Plan plan = nest ? nest->outer : options->plan();
    const auto scratch = nest && !nest->inner.empty() ? machine::Scratch::below : machine::Scratch::resident;
    if (options->json) {
      Json j{{"schema", "redblue.explain/1"},
             {"problem", to_json(plan.problem)},
             {"schedule", to_json(plan.row())},
             {"lines", json_of(walked(plan, scratch), plan::minimises_bytes(plan.options))}};
      if (nest) j["levels"] = to_json(*nest);
      if (plan.forward)
        j["forward"] = json_of(walked(*plan.forward, scratch), plan::minimises_bytes(plan.forward->options));
      print(j);
      return 0;
    }
    if (plan.forward) {
      fmt::print("first, for O and lse: ");
      print_outline(*plan.forward, scratch);
      fmt::print("\nthen: ");
    }
    print_outline(plan, scratch);
    if (nest) print_inner_calls(*nest);
    return 0;
  });
}

}  // namespace redblue::cli
