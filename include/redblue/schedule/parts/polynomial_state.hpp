#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/dense.hpp"
#include "redblue/kernel/polynomial.hpp"
#include "redblue/kernel/softmax.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/linear_state.hpp"
#include "redblue/schedule/parts/polynomial_groups.hpp"

/// A pass of polynomial attention: some monomials (a group) and some columns of the state resident, keys enter, queries
/// read.
namespace redblue::schedule {

/// Columns of the state: some of V, and in the first block the row sums of weights, whose value is 1 for every key.
struct StateColumns {
  index_t first = 0;
  index_t values = 0;
  index_t sums = 1;  ///< 1 or 0
};

/// The coordinates of a group, of some rows of Q or K.
template <class W>
class Coordinates {
 public:
  Coordinates(W& w, const MonomialGroup& g, const SlowMatrix& x, Range rows)
      : tile_(g.coordinates == x.shape.cols ? w.load(x.rows(rows), Layout::read_only)
                                            : w.alloc(x.array, {rows.size(), g.coordinates})) {
    if (g.coordinates == x.shape.cols) return;
    index_t at = 0;
    for (index_t k = 0; k < g.count; ++k) {
      const index_t first = g.blocks[static_cast<std::size_t>(k)] * g.monomials.block,
                    size = std::min(g.monomials.block, x.shape.cols - first);
      w.load_into(tile_.cols(at, size), x.block(rows, {first, first + size}));
      at += size;
    }
  }
  const Tile<W>& tile() const { return tile_; }

 private:
  Tile<W> tile_;
};

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

/// The one group of all monomials.
inline MonomialGroup all_monomials(const Sizes& x) {
  MonomialGroup g;
  g.count = 1;
  g.coordinates = x.d;
  g.rows = monomials(x.d, x.polynomial->degree()).to_index();
  g.monomials.degree = x.polynomial->degree();
  g.monomials.block = x.d;
  return g;
}

/// Z += phi(k) (x) (v, 1) over these keys.
template <class M, class Operands>
void keys_into_state(M& m, const Operands& x, const MonomialGroup& g, StateColumns c, Range J, const Tile<M>& Z,
                     const Tile<M>& z) {
  const Coordinates K_j(m, g, x.K, J);
  const auto V_j = m.load(x.V.block(J, {c.first, c.first + c.values}), Layout::read_only);
  const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
  m.compute(kernel::AddMonomials{g.monomials}, Z, z, stack, K_j.tile(), V_j, kNoWords);
}

/// What one pass takes: the state, and the larger of arriving keys and values, and queries with their sums; the stack
/// of monomials beside both. Second buffers: the next keys and values, or queries.
inline Phase polynomial_phase(const Sizes& x, StateColumns c, Words rows, index_t coordinates, index_t queries,
                              index_t keys) {
  const index_t bc = keys_entering(x, keys), br = x.mask.full() ? std::min(queries, x.n_q) : 1;
  const Words state = x.tile(SlowArray::Z, rows, c.values) + x.tile(SlowArray::Z, rows, c.sums);
  const Words stack = x.tile(SlowArray::den, x.polynomial->degree(), 1);  // what streams past after it is no larger
  const Words K = x.tile(SlowArray::K, bc, coordinates) + x.tile(SlowArray::V, bc, c.values);
  const Words Q = x.tile(SlowArray::Q, br, coordinates);
  const Words sums = x.tile(SlowArray::O, br, c.values) + x.tile(SlowArray::den, br, c.sums);
  const Words arriving = std::max(K, Q);
  return {state + std::max(K + stack, Q + sums + stack), arriving};
}
inline Words polynomial_macs(const Sizes& x) {
  return (Words(x.n_k) + x.n_q) * monomials(x.d, x.polynomial->degree()) * (Words(x.d_v) + 1);
}

/// One pass of the forward schedules: Z and z of this group and these columns, then the outputs of the queries. Partial
/// sums of the groups before come from O and den, and go there until the last group; den stays where other columns need
/// it, too. Under a mask queries go one by one, and keys enter just before the first query that sees them.
template <class M>
void polynomial_pass(M& m, const ForwardOperands& x, const MonomialGroup& g, StateColumns c, index_t queries,
                     index_t keys) {
  const Sizes& s = x.shape;
  const bool split = c.values < s.d_v;  // there are other columns
  const auto Z = m.alloc(SlowArray::Z, {g.rows, c.values}), z = m.alloc(SlowArray::Z, {g.rows, c.sums});
  m.compute(kernel::Zero{}, Z);
  m.compute(kernel::Zero{}, z);
  const kernel::ApplyMonomials apply{g.monomials.times(*s.polynomial, x.scale)};
  for_queries_after_keys(
      s, queries, keys, [&](Range J) { keys_into_state(m, x, g, c, J, Z, z); },
      [&](Range I) {
        const Block O_i = x.O.block(I, {c.first, c.first + c.values}), den_i = x.den.rows(I);
        const auto num = m.alloc(O_i), den = m.alloc(SlowArray::den, {I.size(), c.sums});
        m.compute(kernel::Zero{}, num);
        m.compute(kernel::Zero{}, den);
        const Coordinates Q_i(m, g, x.Q, I);
        {
          const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
          m.compute(apply, num, den, stack, Q_i.tile(), Z, z);
        }
        if (!g.first && c.values > 0) m.compute(kernel::Add{}, num, m.stream(O_i));
        if (!g.first && c.sums > 0) m.compute(kernel::Add{}, den, m.stream(den_i));
        if (g.last && c.sums > 0) m.compute(kernel::DivideRows{}, num, den);
        if (g.last && c.sums == 0) m.compute(kernel::DivideRows{}, num, m.stream(den_i));
        if (c.values > 0) m.store(num, O_i);
        if (c.sums > 0 && (!g.last || split)) m.store(den, den_i);
      });
}

}  // namespace redblue::schedule
