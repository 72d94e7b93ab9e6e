#include "options/levels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/language/word_type.hpp"
#include "redblue/levels/on_machine.hpp"
#include "redblue/planner/time.hpp"
#include "redblue/planner/widths.hpp"

namespace redblue::cli {

namespace {

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names{""};
  for (const char c : text)
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  return names;
}

/// Names and sizes of levels.
std::vector<levels::Level> levels_from(const std::string& text, const Hardware& hardware) {
  const std::vector<std::string> names = names_in(text);
  const std::string& first = names.front();
  if (first.empty() || (first[0] >= '0' && first[0] <= '9'))
    throw InvalidProblem(
        fmt::format("--levels {}: '{}' is no name: the first level holds everything, so it has a name "
                    "and no size; write disk,256MiB,1MiB",
                    text, first));
  std::vector<levels::Level> list{{.name = first}};
  for (std::size_t i = 1; i < names.size(); ++i) {
    const MemoryLevel* const known = levels::level_named(hardware, names[i]);
    list.push_back({names[i], known != nullptr ? Words(known->bytes) : parse_bytes("--levels", names[i])});
  }
  return list;
}

void require_for_levels(const ProblemOptions& o) {
  const auto refuse = [](bool given, std::string_view option) {
    if (given)
      throw InvalidProblem(
          fmt::format("{} with --levels: the levels say how large each memory is; leave {} out", option, option));
  };
  refuse(o.memory.M.has_value(), "--M");
  refuse(o.memory.memory.has_value(), "--memory");
  refuse(o.residence.accumulate.has_value(), "--accumulate");
  refuse(o.residence.pad.has_value(), "--pad");
  refuse(o.planner.max_workspace.has_value(), "--max-workspace");
  if (const auto& objective = o.objective.objective; objective && *objective != "words" && *objective != "time")
    throw InvalidProblem(fmt::format("--objective {} with --levels: choose from words, time", *objective));
  if (o.threads && o.objective.words())
    throw InvalidProblem(fmt::format("--threads {} is for --objective time", *o.threads));
}

}  // namespace

void LevelsOptions::add_to(const Command& command) {
  command
      .option("--levels", levels,
              "a plan of plans for memories inside each other, the slowest first: disk,256MiB,1MiB,32KiB; the first is "
              "a name, the others sizes, or L2, L1 as redblue doctor knows them")
      .type_name("LIST");
}

levels::Nest LevelsOptions::nest(const ProblemOptions& o) const {
  require_for_levels(o);
  const bool by_time = !o.objective.words();
  const int threads = o.threads ? asked_threads("--threads ", *o.threads, kMostCores) : 1;
  // Where the fewest words are asked for, rates only say how long these take: nothing is measured for them.
  const Hardware hardware = o.objective.machine              ? load_hardware(*o.objective.machine)
                            : by_time || has_hardware_file() ? this_machine()
                                                             : describe_hardware();
  const Problem p = o.problem();
  const DType compute = o.compute(), dtype = parse_dtype("--dtype", o.dtype);
  RunOptions run;
  run.compute = compute;
  const Tensors tensors = contiguous_tensors(p, dtype);
  require_arithmetic(compute, p, tensors);
  const Isa isa = o.objective.machine ? model::largest_isa(hardware) : best_isa();
  levels::NestOptions options = levels::on_machine(levels_from(*levels, hardware), hardware, isa, compute, threads);
  options.outer = o.planner.options(tensors, run);
  set_widths(options.outer, p, dtype, word_of(compute), o.widths(p.op, false));
  options.by_time = by_time;
  if (by_time) options.grain = levels::grain_for_kernels(options.word, threads);
  return levels::make_nest(p, options);
}

}  // namespace redblue::cli
