#pragma once
#include <initializer_list>
#include <utility>

#include "redblue/ranks/bias_blocks.hpp"
#include "redblue/ranks/meeting.hpp"
#include "redblue/ranks/steps.hpp"

namespace redblue::ranks {

/// Tiles that travel together: the same rows and, by side, the same heads.
struct Bundle {
  Rows rows;
  std::vector<int> tiles;
  bool empty() const { return rows.empty() || tiles.empty(); }
};

/// One rank as a schedule sees it: where it stands, and verbs, which write its program.
class Rank {
 public:
  Rank(const World& world, int number) : world(world), number(number) {}

  const World& world;
  const int number;
  int group() const { return world.group_of(number); }
  int place() const { return world.place_of(number); }
  int row() const { return world.row_of(place()); }
  int col() const { return world.col_of(place()); }

  /// Tensors of the caller on this rank.
  Bundle home(std::initializer_list<SlowArray> arrays);
  /// Tiles of this rank's group of heads.
  Bundle hold(const std::vector<SlowArray>& arrays, const Rows& rows) { return hold_heads(arrays, rows, group()); }
  /// Tiles of another group; of group -1: all heads.
  Bundle hold_heads(const std::vector<SlowArray>& arrays, const Rows& rows, int group);
  /// A bias, or its gradient, of these queries or, where one row of it serves all, of all queries; gradients of sinks.
  /// They are the caller's, or held here.
  Bundle modifier(SlowArray array, bool home);
  /// A block of a bias, or of its gradient.
  Bundle hold(SlowArray array, const BiasBlock& block);
  std::vector<SlowArray> arrays_of(const Bundle& b) const;
  /// What a forward pass keeps for its gradient, and the gradient has from there.
  void keep(const Bundle& b);

  void clear(const Bundle& b);
  /// These rows of both, on this rank.
  void copy(const Bundle& from, const Bundle& to, const Rows& rows);
  void send(int to, const Bundle& b, const Rows& rows, Cargo cargo);
  void receive(int from, const Bundle& b, const Rows& rows, Cargo cargo);
  /// They send and receive the heads of one group, where the tiles have more.
  void send_heads(int to, const Bundle& b, int group, Cargo cargo);
  void receive_heads(int from, const Bundle& b, int group, Cargo cargo);
  void copy_heads(const Bundle& from, const Bundle& to, const Rows& rows, int group);

  /// Blocks of a bias, or of its gradient.
  void send(int to, const Bundle& b, const BiasBlock& block, Cargo cargo);
  void receive(int from, const Bundle& b, const BiasBlock& block, Cargo cargo);
  void copy(const Bundle& from, const Bundle& to, const BiasBlock& block) { move(Verb::copy, from, to, block); }
  void add(const Bundle& part, const Bundle& into, const BiasBlock& block) { move(Verb::add, part, into, block); }

  /// Work on all pairs of these rows of tiles: forward q, k, v, o, lse; backward q, k, v, dO, o, lse, dq, dk, dv; and a
  /// bias and its gradient, where there are. Without a visible pair there is no step.
  void attend(std::vector<int> tiles, const Meeting& rows) { work(Verb::attend, std::move(tiles), rows); }
  void gradient(std::vector<int> tiles, const Meeting& rows) { work(Verb::gradient, std::move(tiles), rows); }
  /// These rows of results of other keys, or queries, join those of `into`, in the heads of `part`.
  void take_in(const Bundle& part, const Bundle& into, const Rows& rows);
  void sink(const Bundle& o_lse) { step({.verb = Verb::sink, .tiles = o_lse.tiles}); }
  void products(int dO, int o, int D) { step({.verb = Verb::products, .tiles = {dO, o, D}}); }
  void sinks(int lse, int D, int dSinks) { step({.verb = Verb::sinks, .tiles = {lse, D, dSinks}}); }
  void stand_in(int dO, int D, int o) { step({.verb = Verb::stand_in, .tiles = {dO, D, o}}); }

  Program program;

 private:
  const Tile& tile(int t) const { return program.tiles[static_cast<std::size_t>(t)]; }
  Side side(int t) const { return side_of(tile(t).array); }
  void step(Step s) { program.steps.push_back(std::move(s)); }
  std::vector<Piece> pieces(const Bundle& b, const Rows& rows) const;
  std::vector<Piece> pieces_of_heads(const Bundle& b, const Rows& rows, int group) const;
  void work(Verb verb, std::vector<int> tiles, const Meeting& rows);
  void move(Verb verb, const Bundle& from, const Bundle& to, const BiasBlock& block);
};

}  // namespace redblue::ranks
