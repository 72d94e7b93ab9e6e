#include "options/levels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/fastest.hpp"
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

/// A level of this machine, "L2" or "DRAM"; null where the name is none.
const MemoryLevel* known_level(const Hardware& hardware, const std::string& name) {
  const auto level = std::ranges::find(hardware.levels, name, &MemoryLevel::name);
  return level == hardware.levels.end() ? nullptr : &*level;
}

/// Bytes per second that `threads` cores read from a memory of this size: from the smallest level that holds it.
double bandwidth_from(const Hardware& hardware, Words bytes, int threads) {
  for (const MemoryLevel& level : hardware.levels)
    if (bytes <= Words(level.bytes) && level.name != hardware.levels.back().name)
      return level.read_bandwidth * std::min(threads, hardware.cores);
  const double one = hardware.levels.empty() ? 0 : hardware.levels.back().read_bandwidth;
  return std::min(hardware.all_cores_bandwidth > 0 ? hardware.all_cores_bandwidth : one, one * threads);
}
/// Bytes per second that come from what holds everything, a "disk" or a level of this machine; 0: nobody measured it.
double bandwidth_of_first(const Hardware& hardware, const std::string& name, int threads) {
  if (name == "disk") return hardware.disk ? hardware.disk->read_bandwidth : 0;
  const MemoryLevel* const level = known_level(hardware, name);
  return level == nullptr ? 0 : bandwidth_from(hardware, Words(level->bytes), threads);
}

std::vector<levels::Level> levels_from(const std::string& text, const Hardware& hardware, int threads) {
  const std::vector<std::string> names = names_in(text);
  const std::string& first = names.front();
  if (first.empty() || (first[0] >= '0' && first[0] <= '9'))
    throw InvalidProblem(
        fmt::format("--levels {}: '{}' is no name: the first level holds everything, so it has a name "
                    "and no size; write disk,256MiB,1MiB",
                    text, first));
  std::vector<levels::Level> list{{.name = first}};
  for (std::size_t i = 1; i < names.size(); ++i) {
    const MemoryLevel* const known = known_level(hardware, names[i]);
    const Words bytes = known != nullptr ? Words(known->bytes) : parse_bytes("--levels", names[i]);
    const double bandwidth =
        i == 1 ? bandwidth_of_first(hardware, first, threads) : bandwidth_from(hardware, list.back().bytes, threads);
    list.push_back({names[i], bytes, bandwidth});
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

levels::Grain grain_for_kernels(DType compute, int threads) {
  constexpr index_t kPassing = 128;  // rows or columns that pass at a time
  const index_t lanes = compute == DType::f64 ? kernel::implementations<double>(best_isa()).lanes
                                              : kernel::implementations<float>(best_isa()).lanes;
  return {index_t{model::kRegisterVectors} * lanes, kPassing, threads};
}

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
    options.grain = grain_for_kernels(word_of(compute), threads);
    options.macs_per_second = threads * model::rates_of(hardware, model::largest_isa(hardware), compute).macs;
  }
  return levels::make_nest(p, options);
}

}  // namespace redblue::cli
