#pragma once
#include <string>
#include <utility>

#include "redblue/planner/options.hpp"

namespace redblue::test {

/// Options for M words, and the schedule of this name.
inline plan::Options with_M(Words M, std::string schedule = "") {
  plan::Options o;
  o.M = M;
  o.schedule = std::move(schedule);
  return o;
}

}  // namespace redblue::test
