#pragma once
#include <string>
#include <vector>

#include "redblue/machines/outline.hpp"
#include "redblue/planner/planner.hpp"

/// Loop nests of plans that may be the outermost of several levels (levels/nest.hpp).
namespace redblue {

/// As outline(plan) and outline_text(plan) in run.hpp, which take all words for resident.
std::vector<machine::OutlineLine> outline(const plan::Plan& plan, machine::Scratch scratch);
std::string outline_text(const plan::Plan& plan, machine::Scratch scratch);

}  // namespace redblue
