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

/// Queries and keys, and the directions A and B in which they move.
struct MovingArgs {
  Arg Q, A, K, B, lse, bias, slopes;
};
/// Tiles of pairs: P, H, and C, which takes the softcapped scores where there is a softcap.
struct MovingTiles {
  Arg P, H, C;
};

/// P, the weights at this place, and H, how their scores move without the bias: scale (A K^T + Q B^T), times the slope
/// of a softcap.
template <class W>
void form_tangents(W& w, const Sizes& x, double scale, const Place& place, const MovingTiles& t, const MovingArgs& i) {
  w.compute(kernel::MovingWeights{{scale, place}, modify_scores(x, place), x.score}, t.P, t.H, t.C, kNoWords, i.Q, i.A,
            i.K, i.B, i.lse, i.bias, i.slopes);
}
/// P, and H <- f'(S) (H + the direction of the bias), how weights move. Its row sums are added to `sums`.
template <class W>
void form_tangents_of_weights(W& w, const Sizes& x, double scale, const Place& place, const MovingTiles& t,
                              const MovingArgs& i, const Arg& bias_direction, const Arg& sums) {
  if (!x.modifiers.bias_moves)
    return w.compute(kernel::MovingWeights{{scale, place}, modify_scores(x, place), x.score, true}, t.P, t.H, t.C, sums,
                     i.Q, i.A, i.K, i.B, i.lse, i.bias, i.slopes);
  form_tangents(w, x, scale, place, t, i);
  w.compute(kernel::ModifyScores{.place = place}, t.H, kNoWords, bias_direction, kNoWords);
  w.compute(kernel::ScoreGradient{x.score, 1, place}, t.H, t.P, kNoWords);
  if (sums.shape().words() > 0) w.compute(kernel::AddRowSums{}, sums, t.H);
}

}  // namespace redblue::schedule
