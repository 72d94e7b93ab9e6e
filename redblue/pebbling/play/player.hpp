#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/masks/order.hpp"
#include "redblue/pebbling/play/expand.hpp"
#include "redblue/pebbling/play/live_graph.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue::pebbling {

/// A machine that plays: each word of a tile that holds something has a red pebble, each kernel becomes the moves of
/// its scalar graph, and a referee looks on. docs/pebbling.md says what a node is.
class Player : public MachineFace<Player> {
 public:
  /// `rooms`: a word of a tile that holds nothing yet has a pebble all the same, as the model charges it.
  Player(const Rules& rules, std::size_t M, bool rooms = true) : live_(rules, M), rooms_(rooms) {}

  /// Words get the names that their rows have where they come from: rows stand in this order, `group` query heads at
  /// each position. The order outlives the player; null where rows stay where they are.
  void name_by(const Order* order, index_t group) {
    order_ = order;
    group_ = group;
  }
  /// Words of slow memory that are given.
  void give(const SlowMatrix& matrix, std::span<const double> words);

  index_t open(SlowArray array, Shape s, Layout layout);
  void close(index_t depth, SlowArray array, Shape s) noexcept;
  void read(const Arg& tile, const Block& b);
  void write(const Block& b, const Arg& tile);
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto& part, std::span<const Arg> a) { call(kernel::erase(part), a, false); });
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    call(kernel::erase(k), args, true);
  }
  /// Throws Error: what such a schedule does depends on the data, and so does its graph.
  static index_t read_index(Question question, const Arg& word, index_t worst);
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

  /// The words of this matrix are outputs; they get its name. Throws Error if one was never written.
  void ask_for(const SlowMatrix& matrix);
  bool has(SlowArray array, index_t row, index_t col) const {
    return slow_[index_of(array)].contains(place_of(row, col));
  }
  /// What slow memory holds there.
  double value(SlowArray array, index_t row, index_t col) const;

  const LiveGraph& live() const { return live_; }
  LiveGraph& live() { return live_; }

 private:
  using Matrix = std::unordered_map<std::uint64_t, Word>;

  static std::uint64_t place_of(index_t row, index_t col) {
    return (static_cast<std::uint64_t>(row) << 32U) | static_cast<std::uint64_t>(col);
  }
  Word& slow(SlowArray array, index_t row, index_t col);
  std::string name_of_word(SlowArray array, index_t row, index_t col) const;
  WordTile& tile(const Arg& a) { return tiles_[static_cast<std::size_t>(a.depth)]; }
  void call(const kernel::AnyKernel& k, std::span<const Arg> args, bool updates);
  Operand operand_of(const Arg& a);

  LiveGraph live_;
  bool rooms_;
  const Order* order_ = nullptr;
  index_t group_ = 1;
  std::array<Matrix, kSlowArrays> slow_;
  std::vector<WordTile> tiles_;
};

/// A play of a schedule from beginning to end.
struct Play {
  Rules rules;
  std::size_t M = 0;
  Graph graph;
  std::vector<Move> moves;
  Cost cost;
  std::map<SlowArray, std::vector<double>> outputs;  ///< their values, row by row
};

/// Words of slow memory, row by row.
using WordsOf = std::map<SlowArray, std::vector<double>>;

/// Plays one instance of the schedule with this tiling on these inputs, and on outputs where they are given; `rooms` as
/// for a Player. Throws Error if it
/// cannot be played: the schedule asks for decisions, the score function is relu, whose graph depends on the data, or a
/// kernel has no scalar graph; IllegalMove if the rules forbid a move.
Play play(const plan::Schedule& schedule, const Sizes& sizes, double scale, const WordsOf& given,
          const plan::Tiling& tiling, const Rules& rules, std::size_t M, bool rooms = true);

}  // namespace redblue::pebbling
