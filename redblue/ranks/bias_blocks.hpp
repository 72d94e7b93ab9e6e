#pragma once
#include "redblue/ranks/layout.hpp"

/// A bias whose rows are at home: which block of it a rank needs that works on rows of other ranks.
namespace redblue::ranks {

/// Rows, heads and columns of a bias; no columns: all there are.
struct BiasBlock {
  Rows rows, cols;
  Range heads;
  bool empty() const { return rows.empty(); }
};

/// The ranks of a row of the grid, of all groups, which have the queries of the row at home; and, from a rank's own
/// number, the one that is `s` steps further.
inline int ranks_of_row(const World& world) { return world.layout().head_groups * world.layout().grid_cols; }
inline int row_peer(const World& world, int rank, int s) {
  const int ranks = ranks_of_row(world), first = rank / ranks * ranks;
  return first + ((rank - first + s) % ranks + ranks) % ranks;
}

/// Do blocks of the bias travel? Rows that all queries share are on every rank, and queries of one head group and one
/// column stay at home.
inline bool bias_travels(const World& world) {
  const auto& bias = world.problem().bias;
  return bias && (*bias)[2] != 1 && ranks_of_row(world) > 1;
}

/// What `user` needs of the rows that `home` has: those whose queries see keys of its column, and these keys.
inline BiasBlock bias_block(const World& world, int home, int user) {
  const auto& [batches, heads, n_q, n_k] = *world.problem().bias;
  const Rows& keys = world.keys_of_col(world.col_of(world.place_of(user)));
  BiasBlock block;
  block.rows = world.sight().queries_seeing(world.queries_of(home), keys);
  if (n_k != 1) block.cols = world.sight().keys_seen(block.rows, keys);
  block.heads = heads == 1 ? Range{0, 1} : world.heads_of(Side::queries, world.group_of(user));
  return block;
}

inline Words words_of(const Problem& problem, const BiasBlock& block) {
  const index_t cols = block.cols.empty() ? (*problem.bias)[3] : block.cols.count();
  return Words((*problem.bias)[0]) * block.heads.size() * block.rows.count() * cols;
}

}  // namespace redblue::ranks
