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

/// What a bias that moves reads beside itself: its direction passes with it.
inline Io bias_direction_io(const Sizes& x, SlowArray direction, Words pairs, Words visits) {
  const Modifiers& m = x.modifiers;
  if (!m.bias_moves) return {};
  return Io().read(direction, m.bias == Modifiers::Bias::of_pairs ? pairs : visits);
}
/// A word of the bias that passes, or of its direction, and of what passes with them.
inline Words passing_moving_bias(const Sizes& x, SlowArray direction, Words also) {
  return passing_bias(x, x.modifiers.bias_moves ? std::max(also, x.word(direction)) : also);
}

/// Queries and keys, the directions A and B in which they move, and that of the bias.
struct MovingArgs {
  Arg Q, A, K, B, lse, bias, slopes, bias_direction;
};
/// Whether H shall be that of the weights, and where its row sums are added.
struct OfWeights {
  bool wanted = false;
  Arg sums = kNoWords;
};

/// P, the weights at this place, and H, how their scores move: scale (A K^T + Q B^T), times the slope of a softcap (C
/// takes the softcapped scores), and the direction of the bias. H of weights is f'(S) H.
template <class W>
void form_tangents(W& w, const Sizes& x, double scale, const Place& place, const Arg& P, const Arg& H, const Arg& C,
                   const MovingArgs& i, const OfWeights& weights = {}) {
  const bool moves = x.modifiers.bias_moves, at_once = weights.wanted && !moves;
  w.compute(kernel::MovingWeights{{scale, place}, modify_scores(x, place), x.score, at_once}, P, H, C,
            at_once ? weights.sums : kNoWords, i.Q, i.A, i.K, i.B, i.lse, i.bias, i.slopes);
  if (!moves) return;
  w.compute(kernel::ModifyScores{.place = place}, H, kNoWords, i.bias_direction, kNoWords);
  if (!weights.wanted) return;
  w.compute(kernel::ScoreGradient{x.score, 1, place}, H, P, kNoWords);
  if (weights.sums.shape().words() > 0) w.compute(kernel::AddRowSums{}, weights.sums, H);
}
}  // namespace redblue::schedule
