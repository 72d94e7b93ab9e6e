#pragma once
#include <span>

#include "redblue/kernels/kernel.hpp"
#include "redblue/pebbling/play/symbol.hpp"

namespace redblue::pebbling {

/// Runs the portable body of a plain kernel on these words. Throws Error, by name, for a kernel that redblue's exact
/// schedules do not have.
void record(const kernel::AnyKernel& k, std::span<const View<Symbol>> words);

}  // namespace redblue::pebbling
