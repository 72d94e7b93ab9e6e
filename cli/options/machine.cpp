#include <fmt/format.h>

#include "options/options.hpp"
#include "redblue/planner/fastest.hpp"
#include "report/standard_output.hpp"

/// What options take from the machine at hand, or from a file about another.
namespace redblue::cli {

std::string assumed_memory() {
  const bool measured = has_hardware_file();
  const Hardware h = measured ? load_hardware(default_hardware_path()) : describe_hardware();
  const MemoryLevel& cache = h.private_cache();
  note(fmt::format("neither --M nor --memory is given: fast memory is the {} of this machine, {} bytes ({})",
                   cache.name, cache.bytes, measured ? "measured by redblue doctor" : "as the system reports it"));
  return fmt::format("{}", cache.bytes);
}

void ObjectiveOptions::choose_for_run(const MemoryOptions& memory) {
  if (objective || memory.given()) return;
  objective = "time";
  if (machine || has_hardware_file()) return;
  const std::string path = default_hardware_path();
  note(fmt::format("measuring this machine, for plans of least time{}",
                   path.empty() ? "; without HOME the result is not kept" : fmt::format(", once, into {}", path)));
  measured = true;
  const Hardware& hardware = this_machine();
  if (path.empty()) return;
  try {
    save_hardware(hardware, path);
  } catch (const IoError& e) {  // a home directory that cannot be written
    note(fmt::format("{}; the measurement is not kept", e.what()));
  }
}

plan::Plan ObjectiveOptions::fastest(const Problem& p, const plan::Options& options, TimeOptions time) const {
  if (!machine && !measured && !has_hardware_file())
    note("measuring this machine, for plans of least time; redblue doctor keeps the result");
  time.hardware = machine ? load_hardware(*machine) : this_machine();
  if (!machine) time.isa = best_isa();
  return make_fastest_plan(p, options, time);
}

}  // namespace redblue::cli
