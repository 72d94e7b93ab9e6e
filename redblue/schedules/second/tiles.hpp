#pragma once
#include "redblue/schedules/operands/second.hpp"
#include "redblue/schedules/parts/sequences.hpp"

/// What every sweep over tangents and gradients of gradients does with a tile of pairs (theory notes 2k).
namespace redblue::schedule {

/// Tiles of pairs: P, H and others, and C, the softcapped scores, where there is a softcap.
inline Words pair_tiles(const Sizes& x, index_t tiles, Words rows, Words cols) {
  return (tiles + (x.modifiers.softcap > 0 ? 1 : 0)) * x.tile(SlowArray::P, rows, cols);
}
/// C has words only where there is a softcap.
inline Shape softcapped_tile(const Sizes& x, Shape pairs) { return x.modifiers.softcap > 0 ? pairs : Shape{0, 0}; }

/// Queries and keys, and the directions A and B in which they move.
struct MovingArgs {
  Arg Q, A, K, B, lse, bias, slopes;
};

/// The weights at this place, and how their scores move.
inline kernel::MovingWeights moving_weights(const Sizes& x, double scale, const Place& place, bool weighted) {
  return {{scale, place}, modify_scores(x, place), x.score, weighted};
}
}  // namespace redblue::schedule
