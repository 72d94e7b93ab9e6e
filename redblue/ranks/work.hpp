#pragma once
#include <optional>

#include "redblue/planner/planner.hpp"
#include "redblue/ranks/steps.hpp"

/// What ranks move between their own fast and slow memory, as a run with How::plan.M plans it.
namespace redblue::ranks {

/// The work of a rank with M words of fast memory.
struct LocalWork {
  int rank = 0;  ///< the one that works on the most pairs, of equals the first
  Words pairs;
  Words io;                     ///< words between its fast and slow memory: Ran::io
  std::string_view schedule{};  ///< of its part with the most pairs
  plan::Tiling tiling{};
  bound::Bound bound{};           ///< on `io` and words that come and go without slow memory: redblue has none of these
  std::optional<double> ratio{};  ///< io over bound, where that is above 0
};

/// Ran::io of these steps: words of attention or gradients of each part and of merges. Adding up gradients of other
/// ranks is not among them. Throws CapacityError where no schedule fits M words.
Words local_io(const World& world, const Program& program, Words M);

/// Walks through the steps of one rank, as many as its row and column of the grid have places.
LocalWork local_work(const World& world, Words M);

}  // namespace redblue::ranks
