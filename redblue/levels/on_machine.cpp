#include "redblue/levels/on_machine.hpp"

#include <algorithm>
#include <utility>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/time.hpp"

namespace redblue::levels {

namespace {

/// Bytes per second that `threads` cores read from a memory of this size.
double bandwidth_from(const Hardware& hardware, Words bytes, int threads) {
  if (hardware.levels.empty()) return 0;
  const MemoryLevel& main_memory = hardware.levels.back();
  for (const MemoryLevel& level : hardware.levels)
    if (bytes <= Words(level.bytes) && level.name != main_memory.name)
      return level.read_bandwidth * std::min(threads, hardware.cores);
  return std::min(std::max(hardware.all_cores_bandwidth, main_memory.read_bandwidth),
                  main_memory.read_bandwidth * threads);
}

/// Bytes per second that come from what holds everything.
double bandwidth_of_first(const Hardware& hardware, const std::string& name, int threads) {
  if (name == "disk") return hardware.disk ? hardware.disk->read_bandwidth : 0;
  const MemoryLevel* const level = level_named(hardware, name);
  return level == nullptr ? 0 : bandwidth_from(hardware, Words(level->bytes), threads);
}

}  // namespace

const MemoryLevel* level_named(const Hardware& hardware, std::string_view name) {
  const auto level = std::ranges::find(hardware.levels, name, &MemoryLevel::name);
  return level == hardware.levels.end() ? nullptr : &*level;
}

Grain grain_for_kernels(DType word, int threads) {
  constexpr index_t kPassing = 128;  // rows or columns that pass at a time
  const index_t lanes = word == DType::f64 ? kernel::implementations<double>(best_isa()).lanes
                                           : kernel::implementations<float>(best_isa()).lanes;
  return {index_t{model::kRegisterVectors} * lanes, kPassing, threads};
}

NestOptions on_machine(std::vector<Level> levels, const Hardware& hardware, Isa isa, DType compute, int threads) {
  for (std::size_t i = 1; i < levels.size(); ++i)
    levels[i].bandwidth = i == 1 ? bandwidth_of_first(hardware, levels[0].name, threads)
                                 : bandwidth_from(hardware, levels[i - 1].bytes, threads);
  NestOptions options{.levels = std::move(levels), .word = word_of(compute)};
  if (!hardware.peaks.empty()) options.macs_per_second = threads * model::rates_of(hardware, isa, compute).macs;
  return options;
}

}  // namespace redblue::levels
