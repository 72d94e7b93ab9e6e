#include "redblue/ranks/rank.hpp"

namespace redblue::ranks {

Bundle Rank::home(std::initializer_list<SlowArray> arrays) {
  Bundle b;
  for (const SlowArray a : arrays) {
    b.rows = world.rows_of(side_of(a), number);
    b.tiles.push_back(static_cast<int>(program.tiles.size()));
    program.tiles.push_back({a, b.rows, world.all_heads(side_of(a)), true});
  }
  return b;
}

Bundle Rank::hold_heads(const std::vector<SlowArray>& arrays, const Rows& rows, int group) {
  Bundle b{rows, {}};
  for (const SlowArray a : arrays) {
    const Side side = side_of(a);
    b.tiles.push_back(static_cast<int>(program.tiles.size()));
    program.tiles.push_back({a, rows, group < 0 ? world.all_heads(side) : world.heads_of(side, group), false});
  }
  return b;
}

Bundle Rank::modifier(SlowArray array, bool home) {
  const auto& bias = world.problem().bias;
  const bool like_bias = array != SlowArray::dSinks;
  Bundle b{like_bias && (*bias)[2] != 1 ? world.queries_of(number) : Rows::of({0, 1}),
           {static_cast<int>(program.tiles.size())}};
  program.tiles.push_back({array, b.rows, like_bias ? Range{0, (*bias)[1]} : world.all_heads(Side::queries), home});
  return b;
}

Bundle Rank::hold(SlowArray array, const BiasBlock& block) {
  program.tiles.push_back({array, block.rows, block.heads, false, block.cols});
  return {block.rows, {static_cast<int>(program.tiles.size()) - 1}};
}

std::vector<SlowArray> Rank::arrays_of(const Bundle& b) const {
  std::vector<SlowArray> arrays;
  arrays.reserve(b.tiles.size());
  for (const int t : b.tiles) arrays.push_back(tile(t).array);
  return arrays;
}

void Rank::keep(const Bundle& b) {
  for (const int t : b.tiles) program.tiles[static_cast<std::size_t>(t)].kept = true;
}

std::vector<Piece> Rank::pieces(const Bundle& b, const Rows& rows) const {
  std::vector<Piece> list;
  list.reserve(b.tiles.size());
  for (const int t : b.tiles) list.push_back({t, rows, tile(t).heads});
  return list;
}

std::vector<Piece> Rank::pieces_of_heads(const Bundle& b, const Rows& rows, int group) const {
  std::vector<Piece> list;
  list.reserve(b.tiles.size());
  for (const int t : b.tiles) list.push_back({t, rows, world.heads_of(side(t), group)});
  return list;
}

void Rank::clear(const Bundle& b) { step({.verb = Verb::clear, .tiles = b.tiles}); }

void Rank::copy(const Bundle& from, const Bundle& to, const Rows& rows) { copy_heads(from, to, rows, group()); }

void Rank::copy_heads(const Bundle& from, const Bundle& to, const Rows& rows, int group) {
  if (rows.empty() || from.tiles.empty()) return;
  Step s{.verb = Verb::copy};
  const auto x = pieces_of_heads(from, rows, group), y = pieces_of_heads(to, rows, group);
  for (std::size_t i = 0; i < x.size(); ++i) s.pieces.insert(s.pieces.end(), {x[i], y[i]});
  step(std::move(s));
}

void Rank::send(int to, const Bundle& b, const Rows& rows, Cargo cargo) {
  if (rows.empty() || b.tiles.empty()) return;
  step({.verb = Verb::send, .pieces = pieces(b, rows), .peer = to, .cargo = cargo});
}

void Rank::receive(int from, const Bundle& b, const Rows& rows, Cargo cargo) {
  if (rows.empty() || b.tiles.empty()) return;
  step({.verb = Verb::receive, .pieces = pieces(b, rows), .peer = from, .cargo = cargo});
}

void Rank::send_heads(int to, const Bundle& b, int group, Cargo cargo) {
  if (b.empty()) return;
  step({.verb = Verb::send, .pieces = pieces_of_heads(b, b.rows, group), .peer = to, .cargo = cargo});
}

void Rank::receive_heads(int from, const Bundle& b, int group, Cargo cargo) {
  if (b.empty()) return;
  step({.verb = Verb::receive, .pieces = pieces_of_heads(b, b.rows, group), .peer = from, .cargo = cargo});
}

void Rank::send(int to, const Bundle& b, const BiasBlock& block, Cargo cargo) {
  if (block.empty()) return;
  step({.verb = Verb::send, .pieces = {{b.tiles[0], block.rows, block.heads, block.cols}}, .peer = to, .cargo = cargo});
}

void Rank::receive(int from, const Bundle& b, const BiasBlock& block, Cargo cargo) {
  if (block.empty()) return;
  step({.verb = Verb::receive,
        .pieces = {{b.tiles[0], block.rows, block.heads, block.cols}},
        .peer = from,
        .cargo = cargo});
}

void Rank::move(Verb verb, const Bundle& from, const Bundle& to, const BiasBlock& block) {
  if (block.empty()) return;
  step({.verb = verb,
        .pieces = {{from.tiles[0], block.rows, block.heads, block.cols},
                   {to.tiles[0], block.rows, block.heads, block.cols}}});
}

void Rank::work(Verb verb, std::vector<int> tiles, const Meeting& rows) {
  if (world.sight().keys_seen(rows.queries, rows.keys).empty()) return;
  step({.verb = verb, .tiles = std::move(tiles), .queries = rows.queries, .keys = rows.keys});
}

void Rank::take_in(const Bundle& part, const Bundle& into, const Rows& rows) {
  if (rows.empty() || part.tiles.empty()) return;
  Step s{.verb = tile(part.tiles[0]).array == SlowArray::O ? Verb::merge : Verb::add};
  for (std::size_t i = 0; i < part.tiles.size(); ++i) {
    const Range heads = tile(part.tiles[i]).heads;
    s.pieces.insert(s.pieces.end(), {{part.tiles[i], rows, heads}, {into.tiles[i], rows, heads}});
  }
  step(std::move(s));
}

}  // namespace redblue::ranks
