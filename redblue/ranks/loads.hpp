#pragma once
#include <vector>

#include "redblue/ranks/count.hpp"

/// What all ranks of a layout move and do, by formula. crossing_of and pairs_of say the same of one rank in a time that
/// grows with the number of ranks; here all P take some P log P steps.
namespace redblue::ranks {

struct Load {
  Crossing heads;  ///< to groups of heads and back
  Crossing grid;   ///< within the grid of a group
  Crossing bias;   ///< a bias, before the work begins, and its gradient
  Crossing sums;   ///< sums over the rows of all ranks
  Words pairs;     ///< of all heads and batches
};
std::vector<Load> loads_of(const World& world);

/// What a rank moves in all.
Crossing crossing_of(const Load& load);

}  // namespace redblue::ranks
