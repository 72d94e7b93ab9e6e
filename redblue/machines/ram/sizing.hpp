#pragma once
#include <limits>

#include "redblue/language/data_machine.hpp"
#include "redblue/machines/ram/routes.hpp"

namespace redblue::machine {

/// Learns how much memory the arena of a worker takes, by walking through all operations of a schedule without data:
/// the same decisions as those of Ram (TileStack, kernel::place, routes.hpp), so what it says is what Ram takes,
/// whatever the loops are. Where the schedule asks for decisions, one walk takes all the worst, another all the least.
/// Words have `word_bytes` bytes. docs/machines.md says what a walk costs.
template <class Slow>
class Sizing : public MachineFace<Sizing<Slow>> {
 public:
  /// Thrown where a schedule has more than `most` kernel calls.
  struct TooMany {};

  /// What it is given must outlive it. `slow` has no data.
  Sizing(index_t M, std::size_t word_bytes, const Slow& slow, const kernel::ImplementationTraits& implementations,
         index_t most = std::numeric_limits<index_t>::max(), bool worst = true)
      : tiles_(M, word_bytes), slow_(slow), implementations_(implementations), calls_left_(most), worst_(worst) {}

  index_t open(SlowArray, Shape s, Layout layout) { return tiles_.open(s, kernel::place(implementations_, s, layout)); }
  void close(index_t depth, SlowArray, Shape s) { tiles_.close(depth, s); }
  void read(const Arg& tile, const Block& b) {
    if (is_staged(tiles_[tile.depth], slow_, b)) words_.stage(0, b.shape);
  }
  void write(const Block& b, const Arg& tile) { read(tile, b); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    stage(k, args, 0);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    if (!slow_.can_view(args[0].block)) words_.stage(0, args[0].shape());
    stage(k, args, 1);
  }
  index_t read_index(Question question, const Arg&, index_t worst) {
    if (question == Question::index) return worst;
    asked_ = true;
    return worst_ ? worst : 0;
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

  bool asked() const { return asked_; }  ///< for a decision
  ArenaWords words() const {
    ArenaWords words = words_;
    words.tiles = tiles_.most();
    return words;
  }

 private:
  template <class K>
  void stage(const K& k, std::span<const Arg> args, std::size_t from) {
    if (calls_left_-- == 0) throw TooMany{};
    for_routes(k, args, from, implementations_, slow_, [&](std::size_t i, Route route) {
      if (route.copied) words_.stage(i, args[i].shape());
      if (route.layout == Layout::int8_rows) words_.stage(i, {1, args[i].shape().rows});
      if (is_paired(route.layout)) words_.stage(0, shape_of_pairs(args[i].shape(), route.layout));
    });
  }

  TileStack tiles_;
  const Slow& slow_;
  const kernel::ImplementationTraits& implementations_;
  ArenaWords words_;
  index_t calls_left_;
  bool worst_;
  bool asked_ = false;
};

}  // namespace redblue::machine
