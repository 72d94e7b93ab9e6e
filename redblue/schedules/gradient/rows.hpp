#pragma once
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/passes/query_pass.hpp"

namespace redblue::schedule {

/// U_i = SUM_j p_ij A2_j for a block of queries, over the keys of each part that has queries in it. D_i is formed from
/// O. pass_of(operands of a part) is how its keys pass (passes/query_pass.hpp).
template <class W, class PassOf>
void pass_keys(W& w, const GradientXOperands& x, index_t bc, const Shared& shared, Range I, const Tile<W>& U_i,
               const Tile<W>& S_i, const Tile<W>& dO_i, const Tile<W>& lse_i, const Tile<W>& D_i,
               const PassOf& pass_of) {
  shared.for_parts(I, [&](const Sizes& sizes, Range own, Range in_block) {
    const GradientXOperands part(sizes, x.scale, x.instance());
    const auto rows = [&](const Tile<W>& tile) { return tile.arg().rows(in_block); };
    query_pass(w, part, QueryTiles{own, rows(U_i), rows(S_i), rows(dO_i), rows(lse_i), rows(D_i), part.O.rows(own)}, bc,
               pass_of(part));
  });
}

}  // namespace redblue::schedule
