#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/masks/mask.hpp"

namespace redblue::model {

/// The work of calls of kernels.
struct Work {
  double compute_s = 0, exp_s = 0, pass_s = 0;
  double macs = 0;      ///< multiply-adds of products
  double touched = 0;   ///< words of tiles read and written
  double passed = 0;    ///< words that come, or go, while a kernel works on them
  double streamed = 0;  ///< the most of them in a call

  double seconds() const { return compute_s + exp_s + pass_s; }
  Work& operator+=(const Work& w) {
    compute_s += w.compute_s, exp_s += w.exp_s, pass_s += w.pass_s;
    macs += w.macs, touched += w.touched, passed += w.passed;
    streamed = std::max(streamed, w.streamed);
    return *this;
  }
};

/// A tile of fast memory.
struct HeldTile {
  double words;
  index_t rows;
  Layout layout;
};

/// The work of the calls that one walk of a schedule has met: most calls are like one before, and take as much. Kernels
/// of one kind differ in their places alone in one walk.
class CallMemo {
 public:
  /// The work of a call like this one; null if there was none.
  const Work* find(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) const {
    const Place* place = k.place();
    if (place != nullptr && place->mask.full()) place = nullptr;
    if (place != nullptr && !is_plain(*place)) return nullptr;
    for (const Known& known : known_)
      if (known.is_like(k, args, tiles) && known.lies_like(place)) return &known.work;
    return nullptr;
  }
  /// `scores`: the shape of the call's tile of scores. `hides`: does some row not see some column of it?
  void keep(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles, Shape scores,
            bool hides, const Work& work) {
    const Place* place = k.place();
    if (hides && (place == nullptr || !is_plain(*place))) return;
    Known known{.kind = &k.kind(), .first = k.first(), .scores = scores, .hides = hides, .work = work};
    if (hides) known.diagonal = diagonal_of(*place);
    for (const Arg& a : args) known.operands.push_back(operand_of(a, tiles));
    if (known_.size() < kMost) {
      known_.push_back(std::move(known));
    } else {
      known_[oldest_] = std::move(known);
      oldest_ = (oldest_ + 1) % kMost;
    }
  }

 private:
  static constexpr std::size_t kMost = 32;
  struct Operand {
    Arg::Kind kind;
    SlowArray array;
    Shape shape;
    index_t tile_rows;
    Layout layout;
    friend bool operator==(const Operand&, const Operand&) = default;
  };
  struct Known {
    const kernel::Kind* kind = nullptr;
    bool first = false;
    std::vector<Operand> operands{};
    index_t diagonal = 0;
    Shape scores{};
    bool hides = false;
    Work work{};

    bool is_like(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) const {
      if (kind != &k.kind() || first != k.first() || operands.size() != args.size()) return false;
      for (std::size_t i = 0; i < args.size(); ++i)
        if (operands[i] != operand_of(args[i], tiles)) return false;
      return true;
    }
    bool lies_like(const Place* place) const {
      if (hides) return place != nullptr && diagonal_of(*place) == diagonal;
      return place == nullptr || place->sees_all(scores);
    }
  };
  static Operand operand_of(const Arg& a, std::span<const HeldTile> tiles) {
    if (a.kind == Arg::Kind::stream) return {a.kind, a.block.array, a.shape(), 0, {}};
    const HeldTile& tile = tiles[static_cast<std::size_t>(a.depth)];
    return {a.kind, a.block.array, a.shape(), tile.rows, tile.layout};
  }
  /// Does it depend on the distance from the diagonal alone what a tile there sees?
  static bool is_plain(const Place& p) {
    return !p.mask.is_listed() && p.mask.prefix == 0 && p.row % p.mask.group == 0;
  }
  static index_t diagonal_of(const Place& p) { return p.row / p.mask.group - p.col; }

  std::vector<Known> known_;
  std::size_t oldest_ = 0;
};

}  // namespace redblue::model
