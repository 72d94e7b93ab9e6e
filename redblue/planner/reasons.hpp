#pragma once
#include <string>
#include <string_view>

#include "redblue/planner/planner.hpp"

/// The sentences in which plans of the fewest words, or bytes, give their reasons.
namespace redblue::plan {

/// How sentences speak of what is minimised: "moves the fewest words", "would move 2x as many".
struct Measure {
  std::string_view least, verb, much, of;
};
Measure measure_of(const Options& o);

/// Why the chosen row was chosen, and what the others would move.
std::string reason(const Plan& plan);
/// Which is better for a plan of a pattern: its own rows, or those of the problem without a pattern, masked? With what
/// has to be read to know the pattern, where words have no prices.
std::string against_dense(const Plan& plan);

}  // namespace redblue::plan
