#pragma once
#include <vector>

#include "redblue/ranks/cost.hpp"

namespace redblue::ranks {

/// What became of one rank in a simulated run, in seconds.
struct Simulated {
  double total = 0;
  double working = 0;
  double waiting = 0;  ///< for messages
};

/// All ranks at their steps, in simulated time. A rank works at Network::arithmetic. A message leaves when those before
/// it have left at Network::bandwidth, takes the latency, and arrives when those before it have arrived. Where overlap
/// is 1 a rank works meanwhile; where it is 0 it waits until what it sends has left. Other shares are between: that
/// part of a message leaves while the rank works.
std::vector<Simulated> simulate(const World& world, const WireWidths& widths, const Network& network);

}  // namespace redblue::ranks
