#include "commands/pebble_schedule.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "redblue/files/atomic_file.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/play/scheduled.hpp"
#include "redblue/pebbling/search/solver.hpp"
#include "report/json.hpp"
#include "report/moves.hpp"

namespace redblue::cli {
namespace {

/// One schedule: its play, and what is known of the least that any play of its graph moves.
struct Played {
  std::string_view schedule;
  std::optional<plan::Plan> plan{};
  std::optional<pebbling::Play> play{};
  std::string obstacle{};  ///< why it was not played
  std::optional<pebbling::Optimum> optimum{};
  std::string no_optimum{};  ///< why none was looked for
};

Played play_one(const Problem& problem, std::string_view schedule, const pebbling::Rules& rules, index_t M) {
  Played one{.schedule = schedule};
  plan::Options options;
  options.M = M;
  options.reserve = pebbling::words_beside(problem, schedule, rules);
  options.reorder = false;
  options.schedule = std::string(schedule);
  one.plan = plan::make_plan(problem, options);
  one.play = pebbling::play(*one.plan, rules);
  return one;
}

void find_optimum(Played& one, const pebbling::Rules& rules, double seconds) {
  try {
    one.optimum = pebbling::solve(one.play->graph, rules, static_cast<std::size_t>(one.plan->options.M.to_index()),
                                  {.seconds = seconds});
  } catch (const Error& e) {
    one.no_optimum = e.what();
  }
}

/// How many words a play moves beside the least of its graph, or beside the bracket of it.
std::string distance_of(std::size_t io, const pebbling::Optimum& o) {
  const auto words = static_cast<double>(io);
  const double least_times = words / static_cast<double>(o.upper);
  if (o.proved()) return fmt::format("the least of its graph is {}, of which it is {:.2f} times", o.lower, least_times);
  return fmt::format("the least of its graph is {} to {}, of which it is {:.2f} to {:.2f} times", o.lower, o.upper,
                     least_times, words / static_cast<double>(o.lower));
}

Json json_of_play(const Played& one) {
  Json j{{"schedule", std::string(one.schedule)}};
  if (!one.play) {
    j["obstacle"] = one.obstacle;
    return j;
  }
  j["tiling"] = plan::sizes_text(one.plan->row().tiling);
  j["footprint"] = to_json(one.plan->footprint());
  j["nodes"] = Int128(one.play->graph.size());
  j["moves"] = Int128(one.play->moves.size());
  j["reads"] = Int128(one.play->cost.reads);
  j["writes"] = Int128(one.play->cost.writes);
  j["io"] = Int128(one.play->cost.io());
  j["peak"] = Int128(one.play->cost.peak);
  if (one.optimum) j["optimum"] = Json{{"lower", Int128(one.optimum->lower)}, {"upper", Int128(one.optimum->upper)}};
  if (!one.no_optimum.empty()) j["no_optimum"] = one.no_optimum;
  return j;
}

void print_text(const Played& one) {
  if (!one.play) {
    fmt::print("{:<28} {}\n", one.schedule, one.obstacle);
    return;
  }
  const pebbling::Cost& cost = one.play->cost;
  fmt::print("{:<28} {} reads + {} writes = {} words, footprint {}, peak {}", plan::text_of(one.plan->row()),
             cost.reads, cost.writes, cost.io(), one.plan->footprint().str(), cost.peak);
  if (one.optimum) fmt::print("; {}", distance_of(cost.io(), *one.optimum));
  if (!one.no_optimum.empty()) fmt::print("; no optimum: {}", one.no_optimum);
  fmt::print("\n");
}

}  // namespace

void ScheduleOptions::add_to(const Command& command) {
  command.option("--schedule", schedule_, "plays this schedule on the graph of its kernels, or all of the operation")
      .type_name("NAME|all");
  command.option("--op", op_, "of --schedule (default forward)").one_of({"forward", "backward", "gradient-x"});
  command.option("--output", output_, "writes the play as a certificate").type_name("FILE");
  command.flag("--moves", moves_, "prints each move of the play");
  command.flag("--optimum", optimum_, "looks for the least that any play of the schedule's graph moves");
  command.option("--seconds", seconds_, "of --optimum, for each schedule (default 60)").type_name("S");
}

void ScheduleOptions::require_none(bool moves_too, bool output_too) const {
  if (op_ || (output_ && output_too) || (moves_ && moves_too) || optimum_ || seconds_)
    throw Error(
        "--op, --output, --moves, --optimum and --seconds are about a play; give --schedule NAME with them (--output "
        "and --moves with --osp, too, and --moves with --check)");
}

int ScheduleOptions::play(const pebbling::Arguments& sizes, const pebbling::Rules& rules, std::optional<index_t> M,
                          bool json) const {
  if (!M || *M < 1) throw Error("--schedule needs the number of red pebbles, --M, of at least 1");
  if (seconds_ && !(*seconds_ > 0)) throw Error(fmt::format("--seconds {}: give a time above 0", *seconds_));
  if (seconds_ && !optimum_) throw Error("--seconds is the time that --optimum takes; give --optimum, too");
  const bool all = *schedule_ == "all";
  if (all && (output_ || moves_))
    throw Error("--output and --moves are about one play; give --schedule the name of one schedule");
  if (json && moves_) throw Error("--moves prints lines of text; with --json write the play by --output");
  const Operation op = *from_name<Operation>(op_.value_or("forward"));
  const Problem problem = pebbling::problem_for(op, sizes);
  std::optional<file::AtomicFile> file;  // now, and not after a long search
  if (output_) file.emplace(*output_);
  std::vector<Played> list;
  for (const auto& s : plan::Registry::built_in().of(op)) {
    if (s->traits.method != MethodKind::exact || (!all && !s->is_called(*schedule_))) continue;
    try {
      list.push_back(play_one(problem, s->name, rules, *M));
      if (optimum_) find_optimum(list.back(), rules, seconds_.value_or(60));
    } catch (const Error& e) {
      if (!all) throw;
      list.push_back({.schedule = s->name, .obstacle = e.what()});
    }
    if (!json) print_text(list.back());
  }
  if (list.empty())
    throw Error(fmt::format("--schedule {}: no exact schedule of {} is called so; `redblue info` lists them",
                            *schedule_, name_of(op)));
  if (json) {
    Json j{{"schema", "redblue.pebble_schedule/1"}, {"op", std::string(name_of(op))}, {"M", Int128(*M)}};
    j["rules"] = to_text(rules);
    for (const Played& one : list) j["schedules"].push_back(json_of_play(one));
    print(j);
  }
  if (moves_) print_moves(list[0].play->graph, list[0].play->moves);
  if (file) {
    file->write(to_text(pebbling::certificate_of(*list[0].plan, std::move(*list[0].play))));
    file->commit();
  }
  return 0;
}

}  // namespace redblue::cli
