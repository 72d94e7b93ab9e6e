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

/// A tile of pairs, and what it is formed of.
struct PairArgs {
  Place place;
  Arg P, H, C;
};
/// Queries and keys, and the directions A and B in which they move.
struct MovingArgs {
  Arg Q, A, K, B, lse, bias, slopes;
};

/// P = exp(S - lse), weights that dropout has not touched, or another score function of S. H is the tangent of S:
/// scale (A K^T + Q B^T), times the slope of a softcap.
template <class W>
void form_tangents(W& w, const Sizes& x, double scale, const PairArgs& t, const MovingArgs& i) {
  const double softcap = x.modifiers.softcap;
  if (softcap > 0) {  // C has numbers for hidden pairs, too, of which P and all that is made of it has zeros
    w.compute(kernel::Scores{scale}, t.C, i.Q, i.K);
    w.compute(kernel::Copy{}, t.P, t.C);
    w.compute(kernel::ModifyScores{softcap}, t.C, kNoWords, kNoWords, kNoWords);
    w.compute(kernel::Hide{t.place}, t.P);
  } else {
    w.compute(kernel::Scores{scale, t.place}, t.P, i.Q, i.K);
  }
  modify(w, modify_scores(x, t.place), t.P, i.bias, i.slopes);
  w.compute(kernel::Weights{x.score}, t.P, i.lse);
  w.compute(kernel::Zero{}, t.H);
  w.compute(kernel::Gemm{false, true}, t.H, i.A, i.K);
  w.compute(kernel::Gemm{false, true}, t.H, i.Q, i.B);
  w.compute(kernel::Scale{scale}, t.H);
  if (softcap > 0) w.compute(kernel::ThroughSoftcap{softcap}, t.H, t.C);
}

}  // namespace redblue::schedule
