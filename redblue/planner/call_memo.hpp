#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/masks/mask.hpp"
#include "redblue/masks/visible.hpp"

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
  /// How much more one takes than another, of the same tiles.
  friend Work operator-(Work a, const Work& b) {
    a.compute_s -= b.compute_s, a.exp_s -= b.exp_s, a.pass_s -= b.pass_s;
    a.macs -= b.macs, a.touched -= b.touched, a.passed -= b.passed;
    return a;
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

/// The scores of a tile between the first and the last that a row of a vector of `lanes` rows sees, of all vectors. The
/// mask is no list.
inline Words scores_of_vectors(const Place& place, Shape S, index_t lanes) {
  const index_t whole = S.rows / lanes;
  const Mask m = place.mask.from(0, place.col);
  const index_t shown = std::min(m.prefix, S.cols);
  const auto columns_before = [&](index_t row, index_t edge, index_t least) {
    return redblue::detail::clamped_sum({row, lanes, whole}, m.group, edge, least, S.cols);
  };
  const Words columns = columns_before(place.row + lanes - 1, m.hi, shown) - columns_before(place.row, m.lo, 0);
  const Range rest{whole * lanes, S.rows};
  return columns * lanes + (rest.size() == 0 ? Words(0) : Words(rest.size()) * place.cols_of(rest, S.cols).size());
}

/// The work of the calls that one walk of a schedule has met: most calls are like one before, and take as much. Kernels
/// of one kind differ in their places alone in one walk.
class CallMemo {
 public:
  /// `lanes`: the work of a call grows evenly with the scores that vectors of as many rows see; 0: it need not.
  explicit CallMemo(index_t lanes = 0) : lanes_(lanes) {}

  /// The work of a call like this one; null if there was none.
  const Work* find(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) {
    const Place* place = k.place();
    if (place != nullptr && place->mask.full()) place = nullptr;
    if (place != nullptr && !is_plain(*place)) return nullptr;
    Form* form = form_of(k, args, tiles);
    if (form == nullptr) return nullptr;
    if (place != nullptr) return form->work_at(*place, lanes_);
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
    if (!hides)
      form->sees_all = work;
    else if (lanes_ == 0)
      form->hides.insert_or_assign(diagonal_of(*place), work);
    else if (form->points.size() < 2)
      form->points.push_back({form->seen_at(*place, lanes_), work});
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
  /// The work of a call that takes these scores of its tile.
  struct Point {
    double scores;
    Work work;
  };
  /// Calls of one kernel on operands of the same shapes, which lie alike.
  struct Form {
    const kernel::Kind* kind = nullptr;
    bool first = false;
    Shape scores{};
    std::size_t next = 0;  ///< the form of the call that came after the last one like this
    std::vector<Operand> operands{};
    std::optional<Work> sees_all{};             ///< of a call whose rows see all columns of its tile
    Range all{0, 0};                            ///< diagonals of such calls: all between two of them are of such calls
    std::unordered_map<index_t, Work> hides{};  ///< of the others, by their diagonals; or two of them,
    std::vector<Point> points{};                ///< between which the work of all lies on one line
    Work between{};                             ///< of the last that was found so

    bool is_of(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) const {
      if (kind != &k.kind() || first != k.first() || operands.size() != args.size()) return false;
      for (std::size_t i = 0; i < args.size(); ++i)
        if (!operands[i].is_like(args[i], tiles)) return false;
      return true;
    }
    double seen_at(const Place& place, index_t lanes) const {
      return scores_of_vectors(place, scores, lanes).to_double();
    }
    const Work* work_at(const Place& place, index_t lanes) {
      const index_t diagonal = diagonal_of(place);
      if (sees_all && all.begin <= diagonal && diagonal < all.end) return &*sees_all;
      if (const auto known = hides.find(diagonal); known != hides.end()) return &known->second;
      if (place.sees_all(scores)) {
        if (!sees_all) return nullptr;
        const Range here{diagonal, diagonal + 1};
        all = all.size() == 0 ? here : Range{std::min(all.begin, here.begin), std::max(all.end, here.end)};
        return &*sees_all;
      }
      return lanes > 0 ? work_of(seen_at(place, lanes)) : nullptr;
    }
    /// The work of a call on this many scores; null where no two others are known.
    const Work* work_of(double seen) {
      if (points.empty()) return nullptr;
      if (points[0].scores == seen) return &points[0].work;
      const auto words = static_cast<double>(scores.words());
      const bool two = points.size() == 2;
      if (!two && (!sees_all || points[0].scores == words)) return nullptr;
      const Point other = two ? points[1] : Point{words, *sees_all};
      between = points[0].work;
      between += (seen - points[0].scores) / (other.scores - points[0].scores) * (other.work - points[0].work);
      return &between;
    }
  };
  /// The form of this call; null if there was none. Calls go in rounds: the form after the last one is most often what
  /// came after it before.
  Form* form_of(const kernel::AnyKernel& k, std::span<const Arg> args, std::span<const HeldTile> tiles) {
    const std::size_t before = last_;
    const auto found = [&](std::size_t i) {
      if (before < forms_.size()) forms_[before].next = i;
      last_ = i;
      return &forms_[i];
    };
    if (before < forms_.size())
      for (const std::size_t i : {forms_[before].next, before})
        if (i < forms_.size() && forms_[i].is_of(k, args, tiles)) return found(i);
    for (std::size_t i = 0; i < forms_.size(); ++i)
      if (forms_[i].is_of(k, args, tiles)) return found(i);
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

  index_t lanes_;
  std::size_t last_ = 0;  ///< the form of the last call
  std::vector<Form> forms_;
};

}  // namespace redblue::model
