#pragma once
#include "redblue/kernels/dense.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// The d x d_v state of linear attention, the identity as score function: products are reassociated so that no score
/// is ever formed, O = scale Q (K^T V). Katharopoulos et al. 2020 (arXiv 2006.16236), without their feature map.
namespace redblue::schedule {

/// T (rows of one block) <- scale A_i op(state), A_i streaming past; written to its block.
template <class W>
void apply_state(W& w, const Block& T_i, const Block& A_i, const Tile<W>& state, bool transpose, double scale) {
  const auto T = w.alloc(T_i);
  w.compute(kernel::Zero{}, T);
  w.compute(kernel::Gemm{false, transpose}, T, w.stream(A_i), state);
  w.compute(kernel::Scale{scale}, T);
  w.store(T, T_i);
}

/// state += A_i^T B_i, B_i streaming past.
template <class W>
void extend_state(W& w, const Tile<W>& state, const Block& A_i, const Block& B_i) {
  const auto A = w.load(A_i);
  w.compute(kernel::Gemm{true, false}, state, A, w.stream(B_i));
}

/// Keys, `bc` at a time, then the queries that see no others, `br` at a time (one under a mask), then more keys.
template <class Keys, class Queries>
void for_queries_after_keys(const Sizes& s, index_t queries, index_t bc, const Keys& enter, const Queries& read) {
  const index_t br = s.mask.full() ? queries : 1;
  index_t entered = 0;
  for (index_t i = 0; i < s.n_q; i += br) {
    const Range I{i, std::min(i + br, s.n_q)};
    const index_t seen = s.pairs().keys_of(I).end;
    for (index_t keys = 0; entered < seen; entered += keys) {
      keys = std::min(bc, seen - entered);
      enter(Range{entered, entered + keys});
    }
    read(I);
  }
}

/// Z = K^T V block by block, and T_i = scale A_i op(Z) for the queries. Under a mask queries go one by one, and keys
/// enter the state just before the first query that sees them.
template <class M, class Operands>
void queries_on_state(M& m, const Operands& x, const SlowMatrix& T, const SlowMatrix& A, bool transpose,
                      index_t queries, index_t bc) {
  const auto Z = m.alloc(SlowArray::Z, {x.shape.d, x.shape.d_v});
  m.compute(kernel::Zero{}, Z);
  for_queries_after_keys(
      x.shape, queries, bc, [&](Range J) { extend_state(m, Z, x.K.rows(J), x.V.rows(J)); },
      [&](Range I) { apply_state(m, T.rows(I), A.rows(I), Z, transpose, x.scale); });
}

/// The most keys that enter the state at once.
inline index_t keys_entering(const Sizes& x, index_t bc) {
  return std::min(bc, x.pairs().keys_of({0, 1}).end);  // later queries see one more each
}
/// The state, and the larger of arriving keys and a block of rows of T, with one streamed word each. Second buffers:
/// the next keys and the next streamed word.
inline Phase queries_on_state_phase(const Sizes& x, SlowArray T, SlowArray A, index_t cols, index_t queries,
                                    index_t bc) {
  const index_t keys = keys_entering(x, bc), br = x.mask.full() ? std::min(queries, x.n_q) : 1;
  const Words arriving = x.tile(SlowArray::K, keys, x.d), V = x.word(SlowArray::V), word = x.word(A);
  const Words rows = x.tile(T, br, cols);
  return {x.tile(SlowArray::Z, x.d, x.d_v) + std::max(arriving + V, rows + word), arriving + std::max(V, word)};
}
/// A state holds all keys up to one.
inline std::optional<std::string_view> state_unsupported(const Sizes& x) {
  if (!x.mask.from_first_key()) return "needs every query to see keys from the first on";
  return std::nullopt;
}

}  // namespace redblue::schedule
