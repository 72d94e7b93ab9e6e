#include "redblue/hardware/family.hpp"

/// For processors whose family has no folder here (cmake/Isa.cmake).
namespace redblue::hardware {

bool processor_has(Isa /*isa*/) { return false; }

std::span<const Loops* const> family_loops() { return {}; }

}  // namespace redblue::hardware
