#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "redblue/ranks/ownership.hpp"
#include "redblue/ranks/sight.hpp"

namespace redblue::ranks {

/// How blocks of queries and of keys reach the ranks that need them.
enum class Transfer : std::uint8_t {
  exchange,  ///< each home sends a rank the rows that it needs, one home after the other while the rank works
  gather,    ///< likewise, all of them before the rank works
  ring,      ///< blocks go from neighbour to neighbour, whole, whoever needs them
};
inline constexpr std::array<std::string_view, 3> kTransferNames = {"exchange", "gather", "ring"};
constexpr const auto& names_of(Transfer /*any*/) { return kTransferNames; }

/// How attention is spread over ranks: theory in docs/ranks.md. Ranks number head_groups x grid_rows x grid_cols. Rank
/// v * head_groups + g works on the heads of group g; v = a * grid_cols + b stands in row a and column b of the grid.
/// It attends with the queries that row a has at home to the keys that column b has at home.
struct Layout {
  int head_groups = 1;
  int grid_rows = 1;
  int grid_cols = 1;
  Transfer transfer = Transfer::exchange;
  Ownership ownership = Ownership::contiguous;
  index_t block = 0;  ///< rows of a block, for Ownership::block_cyclic
  /// Above 0: results have the same bits for every number of ranks, whatever layout and ownership, if these too take
  /// blocks of this many rows. A rank has whole blocks, and works on one block of queries and one of keys at a time, in
  /// the order of their positions, in tiles that are always the same (parts.hpp). 0: no.
  index_t reproducible = 0;
  /// A forward pass leaves q, k and v of the heads of a rank's group on it (How::kept), and its gradient finds them
  /// there, so that these do not travel again. For 2 head groups or more.
  bool keeps_heads = false;

  int ranks() const { return head_groups * grid_rows * grid_cols; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// A problem whose rows are at home on ranks, which stand in groups of heads and in a grid.
class World {
 public:
  /// Throws InvalidProblem or Unsupported, naming the number, where the problem does not go with the layout.
  World(const Problem& problem, const Layout& layout);

  const Problem& problem() const { return problem_; }
  const Layout& layout() const { return layout_; }
  const Sight& sight() const { return sight_; }
  int ranks() const { return layout_.ranks(); }

  /// The rows that a rank has at home, with all heads.
  const Rows& queries_of(int rank) const { return owned_.queries[static_cast<std::size_t>(rank)]; }
  const Rows& keys_of(int rank) const { return owned_.keys[static_cast<std::size_t>(rank)]; }
  const Rows& rows_of(Side side, int rank) const { return side == Side::queries ? queries_of(rank) : keys_of(rank); }
  /// The rows of the ranks of place v of the grid, which have them for their heads once heads are exchanged.
  const Rows& rows_of_place(Side side, int v) const { return places_[index(side)][static_cast<std::size_t>(v)]; }
  /// The queries of a row of the grid, the keys of a column.
  const Rows& queries_of_row(int a) const { return blocks_[0][static_cast<std::size_t>(a)]; }
  const Rows& keys_of_col(int b) const { return blocks_[1][static_cast<std::size_t>(b)]; }

  /// The keys that place v attends to, or, where gathers_both(), those whose gradients it sums.
  const Rows& keys_for(int v) const { return gathers_both() ? rows_of_place(Side::keys, v) : keys_of_col(col_of(v)); }

  int group_of(int rank) const { return rank % layout_.head_groups; }
  int place_of(int rank) const { return rank / layout_.head_groups; }
  int row_of(int v) const { return v / layout_.grid_cols; }
  int col_of(int v) const { return v % layout_.grid_cols; }
  int rank_at(int group, int a, int b) const { return (a * layout_.grid_cols + b) * layout_.head_groups + group; }
  /// The heads of a group: query heads, or the key-value heads that these see. Where there are more groups than
  /// key-value heads, several groups have the same one.
  Range heads_of(Side side, int group) const;
  Range all_heads(Side side) const { return {0, side == Side::queries ? problem_.heads : kv_heads()}; }
  /// Do queries come to keys and keys to queries, so that a rank sums all gradients of its own rows by itself?
  bool gathers_both() const { return layout_.reproducible > 0 && problem_.op == Operation::backward; }
  index_t kv_heads() const { return problem_.kv_heads.value_or(problem_.heads); }

 private:
  static std::size_t index(Side side) { return side == Side::queries ? 0 : 1; }

  Problem problem_;
  Layout layout_;
  Sight sight_;
  Owned owned_;
  std::array<std::vector<Rows>, 2> places_, blocks_;  // queries, keys
};

}  // namespace redblue::ranks
