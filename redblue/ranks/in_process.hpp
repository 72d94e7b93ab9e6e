#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "redblue/ranks/execute.hpp"

namespace redblue::ranks {

/// Runs all ranks as threads of this process, with messages through memory: for tests, and to try layouts.
/// tensors[r] are those of rank r. `delays`: 0, or a seed for random delays of messages, up to a millisecond each.
/// Throws what the first rank threw.
std::vector<Ran> run_in_process(const World& world, std::span<const Tensors> tensors, const How& how = {},
                                std::uint64_t delays = 0);

}  // namespace redblue::ranks
