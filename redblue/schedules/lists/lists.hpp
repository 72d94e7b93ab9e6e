#pragma once
#include "redblue/schedules/schedule.hpp"

/// redblue's own schedules of exact attention, a family in each file of this folder. The planner breaks ties in favour
/// of the first.
namespace redblue::plan {

void add_forward(Registry& registry);
void add_backward(Registry& registry);
void add_gradient(Registry& registry);
void add_projected(Registry& registry);
void add_scores(Registry& registry);
void add_merge(Registry& registry);
void add_second(Registry& registry);

/// Adds all of them.
inline void add_exact(Registry& registry) {
  for (const auto add : {add_forward, add_backward, add_gradient, add_projected, add_scores, add_merge, add_second})
    add(registry);
}

}  // namespace redblue::plan
