#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/dense.hpp"
#include "redblue/schedule/parts/limits.hpp"
#include "redblue/schedule/parts/visible.hpp"

/// The d x d_v state of linear attention, the identity as score function: products are reassociated so that no score
/// is ever formed, O = scale Q (K^T V). Katharopoulos et al. 2020 (arXiv 2006.16236), without their feature map.
namespace redblue::schedule {

/// T (rows of one block) <- scale A_i op(state), A_i streaming past; written to its block.
template <class W>
void apply_state(W& w, const Block& T_i, const Block& A_i, const Tile<W>& state, bool transpose, double scale,
                 bool visible) {
  const auto T = w.alloc(T_i);
  w.compute(kernel::Zero{}, T);
  if (visible) {
    w.compute(kernel::Gemm{false, transpose}, T, w.stream(A_i), state);
    w.compute(kernel::Scale{scale}, T);
  }
  w.store(T, T_i);
}

/// state += A_i^T B_i, B_i streaming past.
template <class W>
void extend_state(W& w, const Tile<W>& state, const Block& A_i, const Block& B_i) {
  const auto A = w.load(A_i);
  w.compute(kernel::Gemm{true, false}, state, A, w.stream(B_i));
}

/// Z = K^T V block by block, and T_i = scale A_i op(Z) for the queries. Under a mask queries go one by one, and keys
/// enter the state just before the first query that sees them.
template <class M, class Operands>
void queries_on_state(M& m, const Operands& x, const SlowMatrix& T, const SlowMatrix& A, bool transpose,
                      index_t queries, index_t bc) {
  const Sizes& s = x.shape;
  const index_t br = s.mask.causal ? 1 : queries;
  const auto Z = m.alloc(SlowArray::Z, {s.d, s.d_v});
  m.compute(kernel::Zero{}, Z);
  index_t entered = 0;
  for (index_t i = 0; i < s.n_q; i += br) {
    const index_t rows = std::min(br, s.n_q - i), kappa = s.mask.visible(i, rows, s.n_k);
    for (index_t keys = 0; entered < kappa; entered += keys) {
      keys = std::min(bc, kappa - entered);
      extend_state(m, Z, x.K.rows(entered, keys), x.V.rows(entered, keys));
    }
    apply_state(m, T.rows(i, rows), A.rows(i, rows), Z, transpose, x.scale, kappa > 0);
  }
}

/// The most keys that enter the state at once.
inline index_t keys_entering(const Sizes& x, index_t bc) {
  const index_t seen = x.mask.visible(x.n_q - 1, x.n_k);
  return std::min(bc, std::max(x.mask.visible(0, x.n_k), std::min<index_t>(seen, 1)));
}
/// The state, and the larger of arriving keys and a block of rows of T, with one streamed word each. Second buffers:
/// the next keys and the next streamed word.
inline Phase queries_on_state_phase(const Sizes& x, SlowArray T, SlowArray A, index_t cols, index_t queries,
                                    index_t bc) {
  const index_t keys = keys_entering(x, bc), br = x.mask.causal ? 1 : std::min(queries, x.n_q);
  const Words arriving = x.tile(SlowArray::K, keys, x.d), V = x.word(SlowArray::V), word = x.word(A);
  const Words rows = x.tile(T, br, cols);
  return {x.tile(SlowArray::Z, x.d, x.d_v) + (keys > 0 ? std::max(arriving + V, rows + word) : rows),
          arriving + std::max(V, word)};
}
/// The number of queries that see a key.
inline Words queries_seeing_any(const Sizes& x) { return x.n_q - first_row_seeing(x.mask, x.n_q, x.n_k, 1); }

}  // namespace redblue::schedule
