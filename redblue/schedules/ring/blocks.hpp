#pragma once
#include <vector>

#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/score_phase.hpp"
#include "redblue/schedules/ring/steps.hpp"

/// What a block forms of all that a ring holds for it, with no gradient resident: these leave some columns at a time
/// (theory notes 2g, ringB3). Words of pairs lie without gaps, whatever the ring holds beside.
namespace redblue::schedule {

/// Columns of what passes, and of gradients.
struct ColumnsAtATime {
  index_t d, d_v;
};

/// dQ and D of the queries I, which see these keys. A tile of pairs has a column for each of them.
template <class M>
void query_block(M& m, const BackwardOperands& x, const Arg& K, const Arg& V, Range I,
                 const std::vector<RingPart>& seen, ColumnsAtATime t) {
  const auto at = [&](const Arg& tile, const RingPart& j) { return part_of(tile, {}, {0, I.size()}, j.columns); };
  const auto dS = m.alloc(SlowArray::P, {I.size(), columns_of(seen)});
  {
    const auto P = m.alloc(SlowArray::P, dS.shape());
    m.compute(kernel::Zero{}, P);
    for_columns(x.shape.d, t.d, [&](Range columns) {  // S = scale Q K^T
      const auto Q_i = m.load(x.Q.block(I, columns));
      for (const RingPart& j : seen)
        m.compute(kernel::Gemm{false, true}, at(P.arg(), j), Q_i, part_of(K, {}, j.rows, columns));
    });
    m.compute(kernel::Scale{x.scale}, P);
    for (const RingPart& j : seen) hide(m, x.shape, at(P.arg(), j), {I, j.items});
    {
      const auto lse_i = m.alloc(x.lse.rows(I));
      m.compute(kernel::BlockSoftmax{}, P, lse_i);
    }
    m.compute(kernel::Zero{}, dS);
    for_columns(x.shape.d_v, t.d_v, [&](Range columns) {  // dP = dO V^T
      const auto dO_i = m.load(x.dO.block(I, columns));
      for (const RingPart& j : seen)
        m.compute(kernel::Gemm{false, true}, at(dS.arg(), j), dO_i, part_of(V, {}, j.rows, columns));
    });
    const auto D_i = m.alloc(x.D.rows(I));
    m.compute(kernel::RowDots{}, D_i, P, dS);
    subtract_lse_gradient(m, x, D_i, I);
    m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, dS, P, D_i);  // dS = scale P o (dP - D)
    m.store(D_i, x.D.rows(I));
  }
  for_columns(x.shape.d, t.d, [&](Range columns) {
    const auto dQ_i = m.alloc(x.dQ.block(I, columns));
    m.compute(kernel::Zero{}, dQ_i);
    for (const RingPart& j : seen) m.compute(kernel::Gemm{}, dQ_i, at(dS.arg(), j), part_of(K, {}, j.rows, columns));
    m.store(dQ_i, x.dQ.block(I, columns));
  });
}

/// The rings of queries.
template <class M>
struct RingOfQueries {
  Tile<M> Q, dO, lse, D;
};
/// dK and dV of the keys J, which these queries see. A tile of pairs has a row for each of them.
template <class M>
void key_block(M& m, const BackwardOperands& x, const RingOfQueries<M>& ring, Range J,
               const std::vector<RingPart>& seeing, ColumnsAtATime t) {
  const auto at = [&](const Arg& tile, const RingPart& i) { return part_of(tile, {}, i.columns, {0, J.size()}); };
  const auto of = [](const Tile<M>& tile, const RingPart& i) { return tile.rows(i.rows.begin, i.rows.size()); };
  const auto columns_of_ring = [](const Tile<M>& tile, const RingPart& i, Range columns) {
    return part_of(tile.arg(), {}, i.rows, columns);
  };
  const auto dS = m.alloc(SlowArray::P, {columns_of(seeing), J.size()});
  {
    const auto P = m.alloc(SlowArray::P, dS.shape());
    m.compute(kernel::Zero{}, P);
    m.compute(kernel::Zero{}, dS);
    for_columns(x.shape.d, t.d, [&](Range columns) {  // S = scale Q K^T
      const auto K_j = m.load(x.K.block(J, columns));
      for (const RingPart& i : seeing)
        m.compute(kernel::Gemm{false, true}, at(P.arg(), i), columns_of_ring(ring.Q, i, columns), K_j);
    });
    m.compute(kernel::Scale{x.scale}, P);
    for (const RingPart& i : seeing) {
      hide(m, x.shape, at(P.arg(), i), {i.items, J});
      m.compute(kernel::Weights{x.shape.score}, at(P.arg(), i), of(ring.lse, i));  // P = exp(S - lse)
    }
    for_columns(x.shape.d_v, t.d_v, [&](Range columns) {
      {
        const auto dV_j = m.alloc(x.dV.block(J, columns));  // dV = P^T dO
        m.compute(kernel::Zero{}, dV_j);
        for (const RingPart& i : seeing)
          m.compute(kernel::Gemm{true, false}, dV_j, at(P.arg(), i), columns_of_ring(ring.dO, i, columns));
        m.store(dV_j, x.dV.block(J, columns));
      }
      const auto V_j = m.load(x.V.block(J, columns));  // dP = dO V^T
      for (const RingPart& i : seeing)
        m.compute(kernel::Gemm{false, true}, at(dS.arg(), i), columns_of_ring(ring.dO, i, columns), V_j);
    });
    for (const RingPart& i : seeing)
      m.compute(kernel::ScoreGradient{x.shape.score, x.scale}, at(dS.arg(), i), at(P.arg(), i), of(ring.D, i));
  }
  for_columns(x.shape.d, t.d, [&](Range columns) {  // dK = dS^T Q
    const auto dK_j = m.alloc(x.dK.block(J, columns));
    m.compute(kernel::Zero{}, dK_j);
    for (const RingPart& i : seeing)
      m.compute(kernel::Gemm{true, false}, dK_j, at(dS.arg(), i), columns_of_ring(ring.Q, i, columns));
    m.store(dK_j, x.dK.block(J, columns));
  });
}

}  // namespace redblue::schedule
