#pragma once
#include "redblue/schedule/parts/gemm.hpp"

/// A phase that forms every entry of an n_q x n_k matrix A B^T once and hands it on tile by tile, with a statistic or
/// two resident for each row of the tile: scores, probabilities and dS of the schedules that keep them in slow memory.
/// Tiles grow by rank-one updates; or a panel of rows of A is resident over all w columns while B streams past.
///   reads  tile ceil(n_k/b) n_q w + ceil(n_q/a) n_k w   panel n_q w + ceil(n_q/a) n_k w
///   footprint  tile a b + min(a, b) + 1 + stats a   panel a (w + stats + b) + 1
namespace redblue::schedule {

struct ScoreTiling {
  index_t panel = 0;  ///< 1: rows of A resident over all w, rows of B stream past
  index_t a = 1;      ///< queries
  index_t b = 1;      ///< keys
};

/// What such a phase costs: S is where its entries go, A B^T has w terms in each, and `stats` statistics of every row
/// are resident. Where it revisits S, a word of S streams past each finished tile.
struct ScoreCost {
  SlowArray S, A, B;
  index_t w;
  index_t stats;
  SlowArray statistic;
  bool revisits = false;

  Phase phase(const Sizes& x, ScoreTiling t) const {
    const Words a = std::min(t.a, x.n_q), b = std::min(t.b, x.n_k), rows = stats * x.tile(statistic, a, 1);
    const Words again = revisits ? x.word(S) : Words(0), word = std::max(x.word(B), again);
    if (t.panel) return {x.tile(A, a, w) + rows + x.tile(S, a, b) + word, word};
    const Phase tile = GemmCost{S, A, B, x.n_q, w, x.n_k}.phase(x, {t.a, t.b});
    return {rows + std::max(tile.footprint, x.tile(S, a, b) + again), tile.prefetch};
  }
  Io io(const Sizes& x, ScoreTiling t) const {
    return Io().read(A, (t.panel ? Words(1) : c(x.n_k, t.b)) * x.n_q * w).read(B, c(x.n_q, t.a) * x.n_k * w);
  }
  std::optional<ScoreTiling> choose(const Sizes& x, const Limits& limits) const;
};

/// The cheaper of the best tile and the best panel; the tile where they tie.
inline std::optional<ScoreTiling> ScoreCost::choose(const Sizes& x, const Limits& limits) const {
  const Multiples& s = limits.multiple;
  const Words a_words = limits.price.reading(A) * x.n_q * w, b_words = limits.price.reading(B) * x.n_k * w;
  const auto fits = [&](const ScoreTiling& t) { return limits.fit(phase(x, t)); };
  const auto tile = best_tile(x.n_q, x.n_k, s.query, s.key, a_words, b_words, limits.M / x.word(S),
                              [&](index_t a, index_t b) { return fits({false, a, b}); });
  const index_t b = smallest_tile(x.n_k, s.key);  // of a panel: the words do not depend on it
  const index_t panel = largest_tile(x.n_q, s.query, [&](index_t a) { return fits({true, a, b}); });
  const auto cost = [&](Words visits, index_t a) { return a_words * visits + b_words * c(x.n_q, a); };
  if (panel > 0 && (!tile || cost(1, panel) < cost(c(x.n_k, (*tile)[1]), (*tile)[0])))
    return ScoreTiling{true, balanced(x.n_q, panel, s.query), b};
  if (!tile) return std::nullopt;
  return ScoreTiling{false, (*tile)[0], (*tile)[1]};
}

/// finish(T, block of S) for every tile T = A[I,:] B[J,:]^T of the i-th row of blocks.
template <class W, class Finish>
void score_phase(W& w, const Residence& fast, const SlowMatrix& S_, index_t i, const SlowMatrix& A, const SlowMatrix& B,
                 ScoreTiling t, const Finish& finish) {
  const auto S = tiled(S_, t.a, t.b);
  if (t.panel) {
    const auto A_i = w.load(tiled(A, t.a)(i));
    for (index_t j = 0; j < S.cols(); ++j) {
      const auto T = w.alloc(S(i, j));
      w.compute(kernel::Zero{}, T);
      w.compute(kernel::Gemm{false, true}, T, A_i, w.stream(tiled(B, t.b)(j)));
      finish(T, S(i, j));
    }
  } else {
    for (index_t j = 0; j < S.cols(); ++j) {
      const auto T = w.alloc(S(i, j));
      w.compute(kernel::Zero{}, T);
      accumulate_product(w, fast, T, {A}, S(i, j).row, transposed(B), S(i, j).col);
      finish(T, S(i, j));
    }
  }
}

}  // namespace redblue::schedule
