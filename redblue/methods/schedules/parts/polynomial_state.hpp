#pragma once
#include "redblue/language/machine.hpp"
#include "redblue/methods/kernels/polynomial.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_groups.hpp"
#include "redblue/methods/schedules/parts/state_passes.hpp"

/// A pass of polynomial attention: some monomials (a group) and some columns of the state resident, keys enter, queries
/// read.
namespace redblue::schedule {

/// The coordinates of a group, of some rows of Q or K.
template <class W>
class Coordinates {
 public:
  Coordinates(W& w, const MonomialGroup& g, const SlowMatrix& x, Range rows, Layout layout = Layout::read_only)
      : tile_(g.coordinates == x.shape.cols ? w.load(x.rows(rows), layout)
                                            : w.alloc(x.array, {rows.size(), g.coordinates})) {
    if (g.coordinates == x.shape.cols) return;
    g.for_blocks(x.shape.cols, [&](index_t at, Range columns) {
      w.load_into(tile_.cols(at, columns.size()), x.block(rows, columns));
    });
  }
  const Tile<W>& tile() const { return tile_; }

 private:
  Tile<W> tile_;
};

/// The one group of all monomials of this degree.
inline MonomialGroup all_monomials(const Sizes& x, index_t degree) {
  MonomialGroup g;
  g.count = 1;
  g.coordinates = x.d;
  g.rows = monomials(x.d, degree).to_index();
  g.monomials.degree = degree;
  g.monomials.block = x.d;
  return g;
}

inline MonomialGroup all_monomials(const Sizes& x) { return all_monomials(x, polynomial_of(x)->degree()); }

/// Z += phi(k) (x) (v, 1) over these keys, less their mean if there is one.
template <class M, class Operands>
void keys_into_state(M& m, const Operands& x, const MonomialGroup& g, StateColumns c, Range J, const Tile<M>& Z,
                     const Tile<M>& z, const Tile<M>* mean = nullptr) {
  const Coordinates K_j(m, g, x.K, J, mean == nullptr ? Layout::read_only : Layout::row_major);
  if (mean != nullptr)
    g.for_blocks(x.shape.d, [&](index_t at, Range columns) {
      m.compute(kernel::SubtractFromRows{}, K_j.tile().cols(at, columns.size()),
                mean->cols(columns.begin, columns.size()));
    });
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
  const Words stack = x.tile(SlowArray::den, polynomial_of(x)->degree(), 1);  // what streams past after it is no larger
  const Words K = x.tile(SlowArray::K, bc, coordinates) + x.tile(SlowArray::V, bc, c.values);
  const Words Q = x.tile(SlowArray::Q, br, coordinates);
  const Words sums = x.tile(SlowArray::O, br, c.values) + x.tile(SlowArray::den, br, c.sums);
  const Words arriving = std::max(K, Q);
  return {state + std::max(K + stack, Q + sums + stack), arriving};
}
inline Words polynomial_macs(const Sizes& x) {
  return (Words(x.n_k) + x.n_q) * monomials(x.d, polynomial_of(x)->degree()) * (Words(x.d_v) + 1);
}

/// One pass of the forward schedules: Z and z of this group and these columns, then the sums of the queries, which take
/// polynomial(rows). Under a mask queries go one by one, and keys enter just before the first query that sees them.
template <class M, class Of>
void polynomial_pass(M& m, const ForwardOperands& x, const MonomialGroup& g, StateColumns c, index_t queries,
                     index_t keys, const Of& polynomial, const Tile<M>* mean = nullptr) {
  const Sizes& s = x.shape;
  const auto Z = m.alloc(SlowArray::Z, {g.rows, c.values}), z = m.alloc(SlowArray::Z, {g.rows, c.sums});
  m.compute(kernel::Zero{}, Z);
  m.compute(kernel::Zero{}, z);
  for_queries_after_keys(
      s, queries, keys, [&](Range J) { keys_into_state(m, x, g, c, J, Z, z, mean); },
      [&](Range I) {
        const kernel::ApplyMonomials apply{g.monomials.times(polynomial(I), x.scale)};
        const auto num = m.alloc(x.O.block(I, {c.first, c.first + c.values})),
                   den = m.alloc(SlowArray::den, {I.size(), c.sums});
        m.compute(kernel::Zero{}, num);
        m.compute(kernel::Zero{}, den);
        const Coordinates Q_i(m, g, x.Q, I);
        {
          const auto stack = m.alloc(SlowArray::den, {g.monomials.degree, 1});
          m.compute(apply, num, den, stack, Q_i.tile(), Z, z);
        }
        add_to_sums(m, x, c, g.first, g.last, I, num, den);
      });
}

}  // namespace redblue::schedule
