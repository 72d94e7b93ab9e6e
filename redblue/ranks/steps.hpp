#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/ranks/layout.hpp"

/// What a rank does, as data: its tiles, and steps on them in order. A schedule over ranks (schedules.hpp) writes it
/// without looking at a number of any tensor. So one list is counted, drawn, simulated, and executed over any
/// transport.
namespace redblue::ranks {

/// Rows and heads of one array in the memory of one rank.
struct Tile {
  SlowArray array{};
  Rows rows;
  Range heads;
  /// Is it a tensor that the caller has here: an input, or an output? Otherwise the rank holds it from its first step
  /// to its last.
  bool home = false;
  Rows cols{};        ///< columns, keys, of a bias or its gradient; none: all there are
  bool kept = false;  ///< Does it stay after a forward pass (Kept)? A gradient has it from there.
};

/// Some rows and heads of a tile.
struct Piece {
  int tile = 0;
  Rows rows;
  Range heads;
  Rows cols{};  ///< as those of a tile
};

enum class Verb : std::uint8_t {
  clear,     ///< tiles: o = 0 and lse = -inf, gradients 0
  copy,      ///< pieces: the first to the second, third to fourth, ... on this rank
  send,      ///< pieces, as one message to `peer`
  receive,   ///< pieces, as one message from `peer`
  attend,    ///< tiles q, k, v into o, lse; a bias is one more tile
  merge,     ///< tiles o, lse of other keys into o, lse, which have their rows and maybe more
  sink,      ///< tiles o, lse: the sink joins the keys of each row
  products,  ///< tiles dO, o -> D, the sums of products of their rows
  stand_in,  ///< tiles dO, D -> an o whose products with dO sum to D: one word of D travels in place of a row of o
  gradient,  ///< tiles q, k, v, dO, o, lse into dq, dk, dv; a bias and its gradient are more tiles; tile -1: nobody
             ///< wants that one
  add,       ///< tile x into y, which has its rows and maybe more
  sinks,     ///< tiles lse, D of some rows into dSinks
};
inline constexpr std::array<std::string_view, 12> kVerbNames = {
    "clear", "copy", "send", "receive", "attend", "merge", "sink", "products", "stand_in", "gradient", "add", "sinks"};
constexpr std::string_view name_of(Verb v) { return kVerbNames[static_cast<std::size_t>(v)]; }

/// What a message carries: inputs, or results of a part of the keys or queries, which their home takes in.
enum class Cargo : std::uint8_t { inputs, partials };
constexpr std::string_view name_of(Cargo c) { return c == Cargo::inputs ? "inputs" : "partials"; }

struct Step {
  Verb verb{};
  std::vector<int> tiles{};
  std::vector<Piece> pieces{};
  int peer = -1;
  Cargo cargo = Cargo::inputs;
  Rows queries{}, keys{};  ///< attend, gradient: the rows of q, k and v that are worked on
};

struct Program {
  std::vector<Tile> tiles;
  std::vector<Step> steps;
};

/// The steps that name a tile first and last; kNever both where none does.
struct Lifetime {
  static constexpr std::size_t kNever = static_cast<std::size_t>(-1);
  std::size_t first = kNever, last = kNever;
};
std::vector<Lifetime> lifetimes_of(const Program& program);

/// Batches of an array, and columns of a row; all batches together have gradients of sinks, and may have a bias.
index_t batches_of(const Problem& problem, SlowArray array);
index_t cols_of(const Problem& problem, SlowArray array);
Words words_of(const Problem& problem, SlowArray array, const Rows& rows, Range heads, const Rows& cols = {});
/// The words of all pieces of a message.
Words words_of(const World& world, const Program& program, const std::vector<Piece>& pieces);

/// What each rank does, by its number.
Program program_of(const World& world, int rank);

}  // namespace redblue::ranks
