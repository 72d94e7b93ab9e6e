#pragma once
#include "redblue/methods/kernels/polynomial_weights.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_state.hpp"

/// Polynomial attention with queries in chunks under a mask, the whole state resident. The queries of a chunk read the
/// state of the keys that the first of them sees, and thus all. The keys that only later ones see (a chunk's own keys)
/// they meet as scores; then these keys enter the state, too, together with the one that the next chunk begins with.
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
  return (Words(keys_of_state(x, br)) + x.n_q) * monomials(x.d, polynomial_of(x)->degree()) * (Words(x.d_v) + 1) +
         fresh * (Words(x.d) + x.d_v);
}

/// A chunk's own keys, and those that enter the state after it: its own, and what the next chunk's first query sees
/// first. A chunk that has none of its own leaves all to that query.
struct ChunkKeys {
  index_t own, entering;
  ChunkKeys(index_t own, index_t to_next) : own(own), entering(own > 0 ? to_next : 0) {}
};

/// A chunk beside the state: keys and values, queries and their sums, and scores or the stack of monomials. Second
/// buffers: the next of what arrives.
inline Phase chunk_phase(const Sizes& x, index_t queries, ChunkKeys keys) {
  const Words own = x.tile(SlowArray::K, keys.entering, x.d) + x.tile(SlowArray::V, keys.entering, x.d_v);
  const Words Q = x.tile(SlowArray::Q, queries, x.d);
  const Words sums = x.tile(SlowArray::O, queries, x.d_v) + x.tile(SlowArray::den, queries, 1);
  const Words stack = x.tile(SlowArray::den, polynomial_of(x)->degree(), 1),
              scores = x.tile(SlowArray::S, queries, keys.own);
  return {own + Q + sums + std::max(stack, scores), own + Q};
}
/// The state with the largest chunk, or with keys that enter it.
inline Phase chunked_phase(const Sizes& x, index_t br, index_t bc) {
  const Pairs pairs = x.pairs();
  const index_t rows = chunk_size(x, br), ragged = x.n_q % rows;
  const Range begin{0, std::max<index_t>(1, ragged)};
  const ChunkKeys none{0, 0}, of_begin{pairs.fresh_keys(begin), pairs.keys_to_next(begin)};
  // One whole chunk has the most keys of both kinds: the second number exceeds the first by one at most.
  const Phase whole = chunk_phase(x, rows, {pairs.most_fresh_keys(rows), pairs.most_keys_to_next(rows)}),
              first = chunk_phase(x, ragged, pairs.mask.full() ? none : of_begin);
  const Words arriving =
      x.tile(SlowArray::K, keys_entering(x, bc), x.d) + x.tile(SlowArray::V, keys_entering(x, bc), x.d_v);
  const Words stack = x.tile(SlowArray::den, polynomial_of(x)->degree(), 1);
  const Words r = monomials(x.d, polynomial_of(x)->degree());
  const Words state = x.tile(SlowArray::Z, r, x.d_v) + x.tile(SlowArray::Z, r, 1);
  return {state + std::max({whole.footprint, first.footprint, arriving + stack}),
          std::max({whole.prefetch, first.prefetch, arriving})};
}

/// The outputs of the queries I: of the state, and of `own` keys from J.begin on that it does not hold.
template <class M>
void chunk_outputs(M& m, const ForwardOperands& x, const kernel::ApplyMonomials& apply, Range I, Range J, index_t own,
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
  if (own > 0) {
    const auto S = m.alloc(SlowArray::S, {I.size(), own});
    const kernel::Scores scores{x.scale, {s.mask, I.begin, J.begin}};
    m.compute(kernel::PolynomialAttention{scores, kernel::PolynomialWeights{*polynomial_of(s)}}, S, num, den, Q_i,
              K_j.rows(0, own), V_j.rows(0, own));
  }
  m.compute(kernel::DivideRows{}, num, den);
  m.store(num, x.O.rows(I));
}

/// One chunk: outputs, then keys enter the state, unless it is the last. Returns the first key that does not.
template <class M>
index_t chunk(M& m, const ForwardOperands& x, const MonomialGroup& g, Range I, index_t entered, const Tile<M>& Z,
              const Tile<M>& z) {
  const Pairs pairs = x.shape.pairs();
  const ChunkKeys keys{pairs.keys_of(I).end - entered, pairs.keys_to_next(I)};
  const Range J{entered, entered + keys.entering};
  const auto K_j = m.load(x.K.rows(J), Layout::read_only), V_j = m.load(x.V.rows(J), Layout::read_only);
  chunk_outputs(m, x, kernel::ApplyMonomials{g.monomials.times(*polynomial_of(x.shape), x.scale)}, I, J, keys.own, Z, z,
                K_j, V_j);
  if (J.size() > 0 && I.end < x.shape.n_q) {
    const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
    m.compute(kernel::AddMonomials{g.monomials}, Z, z, stack, K_j, V_j, kNoWords);
  }
  return J.end;
}

}  // namespace redblue::schedule
