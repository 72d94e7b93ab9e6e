#pragma once
#include "redblue/kernel/backward.hpp"
#include "redblue/kernel/polynomial_weights.hpp"
#include "redblue/schedule/parts/polynomial_state.hpp"

/// Polynomial attention with queries in chunks under a mask, the whole state resident. The queries of a chunk read the
/// state of the keys that the first of them sees, and thus all. The keys that only later ones see (a chunk's own keys)
/// they meet as scores; then these keys enter the state, too.
namespace redblue::schedule {

inline index_t chunk_size(const Sizes& x, index_t br) { return std::min(br, x.n_q); }

/// Keys that enter the state: those that a chunk meets last do not, nobody reads them from there.
inline index_t keys_of_state(const Sizes& x, index_t br) {
  const Blocks chunks = x.pairs().row_blocks(chunk_size(x, br));
  const index_t last = chunks(chunks.count() - 1).begin;
  return x.pairs().keys_of({last, last + 1}).end;
}
inline Words chunked_macs(const Sizes& x, index_t br) {
  const Words fresh = x.pairs().pairs_with_fresh_keys(chunk_size(x, br));
  return (Words(keys_of_state(x, br)) + x.n_q) * monomials(x.d, x.polynomial->degree()) * (Words(x.d_v) + 1) +
         fresh * (Words(x.d) + x.d_v);
}

/// A chunk beside the state: its own keys and values, queries and their sums, and scores or the stack of monomials.
/// Second buffers: the next of what arrives.
inline Phase chunk_phase(const Sizes& x, index_t queries, index_t keys) {
  const Words own = x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v);
  const Words Q = x.tile(SlowArray::Q, queries, x.d);
  const Words sums = x.tile(SlowArray::O, queries, x.d_v) + x.tile(SlowArray::den, queries, 1);
  const Words stack = x.tile(SlowArray::den, x.polynomial->degree(), 1), scores = x.tile(SlowArray::S, queries, keys);
  return {own + Q + sums + std::max(stack, scores), own + Q};
}
/// The state with the largest chunk, or with keys that enter it.
inline Phase chunked_phase(const Sizes& x, index_t br, index_t bc) {
  const Pairs pairs = x.pairs();
  const index_t rows = chunk_size(x, br), ragged = x.n_q % rows;
  const Phase whole = chunk_phase(x, rows, pairs.most_fresh_keys(rows)),
              first =
                  chunk_phase(x, ragged, pairs.mask.full() ? 0 : pairs.fresh_keys({0, std::max<index_t>(1, ragged)}));
  const Words arriving =
      x.tile(SlowArray::K, keys_entering(x, bc), x.d) + x.tile(SlowArray::V, keys_entering(x, bc), x.d_v);
  const Words stack = x.tile(SlowArray::den, x.polynomial->degree(), 1);
  const Words r = monomials(x.d, x.polynomial->degree());
  const Words state = x.tile(SlowArray::Z, r, x.d_v) + x.tile(SlowArray::Z, r, 1);
  return {state + std::max({whole.footprint, first.footprint, arriving + stack}),
          std::max({whole.prefetch, first.prefetch, arriving})};
}

/// The outputs of the queries I: of the state, and of the keys J that it does not hold.
template <class M>
void chunk_outputs(M& m, const ForwardOperands& x, const kernel::ApplyMonomials& apply, Range I, Range J,
                   const Tile<M>& Z, const Tile<M>& z, const Tile<M>& K_j, const Tile<M>& V_j) {
  const Sizes& s = x.shape;
  const auto num = m.alloc(x.O.rows(I)), den = m.alloc(SlowArray::den, {I.size(), 1});
  m.compute(kernel::Zero{}, num);
  m.compute(kernel::Zero{}, den);
  const auto Q_i = m.load(x.Q.rows(I), Layout::read_only);
  {
    const auto stack = m.alloc(SlowArray::den, {apply.degree, 1});
    m.compute(apply, num, den, stack, Q_i, Z, z);
  }
  if (J.size() > 0) {
    const auto S = m.alloc(SlowArray::S, {I.size(), J.size()});
    const Place place{s.mask, I.begin, J.begin};
    m.compute(kernel::Scores{x.scale, place}, S, Q_i, K_j);
    m.compute(kernel::PolynomialWeights{*s.polynomial}, S, den);
    m.compute(kernel::GemmOver{.place = place}, num, S, V_j);
  }
  m.compute(kernel::DivideRows{}, num, den);
  m.store(num, x.O.rows(I));
}

/// One chunk: outputs, then its own keys J enter the state, unless it is the last.
template <class M>
void chunk(M& m, const ForwardOperands& x, const MonomialGroup& g, Range I, Range J, const Tile<M>& Z,
           const Tile<M>& z) {
  const Sizes& s = x.shape;
  const auto K_j = m.load(x.K.rows(J), Layout::read_only), V_j = m.load(x.V.rows(J), Layout::read_only);
  chunk_outputs(m, x, kernel::ApplyMonomials{g.monomials.times(*s.polynomial, x.scale)}, I, J, Z, z, K_j, V_j);
  if (J.size() == 0 || I.end == s.n_q) return;
  const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
  m.compute(kernel::AddMonomials{g.monomials}, Z, z, stack, K_j, V_j, kNoWords);
}

}  // namespace redblue::schedule
