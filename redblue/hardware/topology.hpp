#pragma once
#include <string>
#include <vector>

#include "redblue/hardware/hardware.hpp"

namespace redblue::hardware {

/// What the operating system says about the processor.
std::string cpu_name();
/// Physical cores that this process may use.
int cores();
/// Data caches, smallest first, and main memory; without bandwidths.
std::vector<MemoryLevel> levels();

}  // namespace redblue::hardware
