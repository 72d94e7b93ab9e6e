#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
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
  /// The work of calls like these, that many times.
  friend Work operator*(double times, Work w) {
    w.compute_s *= times, w.exp_s *= times, w.pass_s *= times;
    w.macs *= times, w.touched *= times, w.passed *= times;
    return w;
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
  const Work* find(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) {
    const Place* place = k.place();
    if (place != nullptr && place->mask.full()) place = nullptr;
    if (place != nullptr && !is_plain(*place)) return nullptr;
    Form* form = form_of(k, args, tiles);
    if (form == nullptr) return nullptr;
    if (place != nullptr) return form->work_at(*place);
    return form->sees_all ? &*form->sees_all : nullptr;
  }
  /// `scores`: the shape of the call's tile of scores. `hides`: does some row not see some column of it?
  void keep(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles, Shape scores,
            bool hides, const Work& work) {
    const Place* place = k.place();
    if (hides && (place == nullptr || !is_plain(*place))) return;
    Form* form = form_of(k, args, tiles);
    if (form == nullptr) {
      form = &new_form();
      *form = {.kind = &k.kind(), .first = k.first(), .scores = scores};
      form->operands.reserve(args.size());
      for (const Arg& a : args) form->operands.push_back(operand_of(a, tiles));
    }
    if (hides)
      form->hides.insert_or_assign(diagonal_of(*place), work);
    else
      form->sees_all = work;
  }

 private:
  static constexpr std::size_t kMost = 32;
  struct Operand {
    Arg::Kind kind;
    SlowArray array;
    Shape shape;
    index_t tile_rows;
    Layout layout;

    bool is_like(const Arg& a, std::span<const HeldTile> tiles) const {
      if (shape != a.block.shape || array != a.block.array || kind != a.kind) return false;
      if (kind == Arg::Kind::stream) return true;
      const HeldTile& tile = tiles[static_cast<std::size_t>(a.depth)];
      return tile_rows == tile.rows && layout == tile.layout;
    }
  };
  /// Calls of one kernel on operands of the same shapes, which lie alike.
  struct Form {
    const kernel::Kind* kind = nullptr;
    bool first = false;
    Shape scores{};
    std::vector<Operand> operands{};
    std::optional<Work> sees_all{};             ///< of a call whose rows see all columns of its tile
    Range all{0, 0};                            ///< diagonals of such calls: all between two of them are of such calls
    std::unordered_map<index_t, Work> hides{};  ///< of the others, by their diagonals

    bool is_of(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) const {
      if (kind != &k.kind() || first != k.first() || operands.size() != args.size()) return false;
      for (std::size_t i = 0; i < args.size(); ++i)
        if (!operands[i].is_like(args[i], tiles)) return false;
      return true;
    }
    const Work* work_at(const Place& place) {
      const index_t diagonal = diagonal_of(place);
      if (sees_all && all.begin <= diagonal && diagonal < all.end) return &*sees_all;
      if (const auto known = hides.find(diagonal); known != hides.end()) return &known->second;
      if (!sees_all || !place.sees_all(scores)) return nullptr;
      const Range here{diagonal, diagonal + 1};
      all = all.size() == 0 ? here : Range{std::min(all.begin, here.begin), std::max(all.end, here.end)};
      return &*sees_all;
    }
  };
  /// The form of this call; null if there was none. Most calls have the form of a call not long before.
  Form* form_of(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) {
    for (std::size_t i = 0; i < forms_.size(); ++i)
      if (forms_[i].is_of(k, args, tiles)) {
        if (i > 0) std::swap(forms_[i], forms_[i / 2]);
        return &forms_[i / 2];
      }
    return nullptr;
  }
  /// A new one, in place of the last where there are many.
  Form& new_form() { return forms_.size() < kMost ? forms_.emplace_back() : forms_.back(); }
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

  std::vector<Form> forms_;
};

}  // namespace redblue::model
