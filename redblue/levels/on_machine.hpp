#pragma once
#include <string_view>
#include <vector>

#include "redblue/hardware/hardware.hpp"
#include "redblue/levels/nest.hpp"

/// Nests on a machine: how fast words come from one of its memories to the next, and how fast its cores compute.
namespace redblue::levels {

/// A cache of the machine, or its main memory, by its name: "L2", "DRAM". Null where it has none of that name.
const MemoryLevel* level_named(const Hardware& hardware, std::string_view name);

/// Ranges that suit the kernels of this processor, for `threads` workers.
Grain grain_for_kernels(DType word, int threads);

/// The levels with their bandwidths, and the rate of multiply-adds, while `threads` cores of the machine compute in
/// `compute`. The second level has the bandwidth of the disk, where the first is called "disk", or of the level of the
/// machine that has its name. Each level below has that of the smallest memory of the machine which holds the level
/// above. What nobody has measured is 0.
NestOptions on_machine(std::vector<Level> levels, const Hardware& hardware, Isa isa, DType compute, int threads);

}  // namespace redblue::levels
