#pragma once
#include <span>

#include "redblue/hardware/loops.hpp"

/// What the folder of the processor's family answers (x86/), or portable.cpp where the family has none.
namespace redblue::hardware {

/// Can this processor, under this operating system, run this instruction set of its family?
bool processor_has(Isa isa);

/// The loops of the family, from its smallest instruction set to its largest; call only what is_available().
std::span<const Loops* const> family_loops();

}  // namespace redblue::hardware
