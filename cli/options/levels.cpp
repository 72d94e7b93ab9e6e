#include "options/levels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/language/word_type.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/planner/widths.hpp"

namespace redblue::cli {

namespace {

/// Rows or columns that pass at a time where kernels are to run fast.
constexpr index_t kPassing = 128;

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names{""};
  for (const char c : text)
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  return names;
}

/// A level of this machine, "L2" or "DRAM"; null where the name is none.
const MemoryLevel* known_level(const Hardware& hardware, const std::string& name) {
  const auto level = std::ranges::find(hardware.levels, name, &MemoryLevel::name);
  return level == hardware.levels.end() ? nullptr : &*level;
}

/// Bytes per second that `threads` cores read from a memory of this size: from the smallest level that holds it.
double bandwidth_from(const Hardware& hardware, Words bytes, int threads) {
  for (const MemoryLevel& level : hardware.levels)
    if (bytes <= Words(level.bytes) && level.name != hardware.levels.back().name)
      return level.read_bandwidth * std::min(threads, level.cores * hardware.cores);
  const double one = hardware.levels.empty() ? 0 : hardware.levels.back().read_bandwidth;
  return std::min(hardware.all_cores_bandwidth > 0 ? hardware.all_cores_bandwidth : one, one * threads);
}

std::vector<levels::Level> levels_from(const std::string& text, const Hardware& hardware, int threads) {
  std::vector<levels::Level> list;
  for (const std::string& name : names_in(text)) {
    levels::Level level{.name = name};
    const MemoryLevel* known = known_level(hardware, name);
    if (list.empty()) {
      if (name.empty() || (name[0] >= '0' && name[0] <= '9'))
        throw InvalidProblem(
            fmt::format("--levels {}: '{}' is no name: the first level holds everything, so it has a "
                        "name and no size; write disk,256MiB,1MiB",
                        text, name));
    } else if (known != nullptr) {
      level.bytes = Words(known->bytes);
    } else {
      level.bytes = parse_bytes("--levels", name);
    }
    if (!list.empty() && list.size() == 1) {
      const MemoryLevel* const slowest = known_level(hardware, list.front().name);
      if (slowest != nullptr) level.bandwidth = bandwidth_from(hardware, Words(slowest->bytes), threads);
    } else if (!list.empty()) {
      level.bandwidth = bandwidth_from(hardware, list.back().bytes, threads);
    }
    list.push_back(std::move(level));
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
  const Hardware hardware = o.objective.machine ? load_hardware(*o.objective.machine)
                            : by_time           ? this_machine()
                                                : describe_hardware();
  const Problem p = o.problem();
  const DType compute = o.compute(), dtype = parse_dtype("--dtype", o.dtype);
  RunOptions run;
  run.compute = compute;
  const Tensors tensors = contiguous_tensors(p, dtype);
  require_arithmetic(compute, p, tensors);
  levels::NestOptions options{.levels = levels_from(*levels, hardware, threads), .word = word_of(compute)};
  options.outer = o.planner.options(tensors, run);
  set_widths(options.outer, p, dtype, word_of(compute), o.widths(p.op, false));
  if (by_time) {
    options.by_time = true;
    const model::Rates rates = model::rates_of(hardware, model::largest_isa(hardware), compute);
    options.grain = {model::kRegisterVectors * rates.lanes, kPassing, threads};
    options.macs_per_second = threads * rates.macs;
  }
  return levels::make_nest(p, options);
}

}  // namespace redblue::cli
