#pragma once
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "redblue/methods/kernels/polynomial.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/schedules/parts/limits.hpp"

/// The monomials of polynomial attention, in groups whose rows of the state are resident together. Coordinates are cut
/// into blocks of s. The monomials in which the blocks of a set T occur, and no others, need the coordinates of these
/// blocks only; a set that has too many is cut into pieces. The constant 1 joins the last piece of the first set that
/// has a row left; where none has, it is a group of its own.
namespace redblue::schedule {

/// Rows of the state, and what they are monomials of.
struct MonomialGroup {
  std::array<index_t, kernel::Monomials::kMostDegree> blocks{};  ///< of coordinates, ascending
  index_t count = 0;                                             ///< of blocks
  index_t coordinates = 0;
  index_t rows = 0;
  kernel::Monomials monomials{};
  bool first = true, last = true;  ///< of all groups
  /// f(place, columns): where the coordinates of each block lie in the group, and which columns of d they are.
  template <class F>
  void for_blocks(index_t d, const F& f) const {
    index_t at = 0;
    for (index_t k = 0; k < count; ++k) {
      const index_t begin = blocks[static_cast<std::size_t>(k)] * monomials.block,
                    end = std::min(begin + monomials.block, d);
      f(at, Range{begin, end});
      at += end - begin;
    }
  }
};

class MonomialGroups {
 public:
  /// Blocks of s coordinates of d, sets of at most `degree` blocks.
  MonomialGroups(index_t d, index_t degree, index_t s)
      : degree_(degree), s_(std::min(s, d)), blocks_(ceil_div(d, s_)), rest_(d - (blocks_ - 1) * s_) {
    for (index_t t = 1; t <= std::min(degree_, blocks_); ++t) {
      // By inclusion and exclusion over the blocks that occur; with the last block, which may be smaller, or without.
      const auto subsets = [&](index_t of, index_t extra) {
        Words sum;
        for (index_t u = 0; u <= of; ++u) {
          const Words ways = binomial(of, u) * monomials(u * s_ + extra, degree_);
          sum += (of - u) % 2 == 0 ? ways : Words(0) - ways;
        }
        return sum;
      };
      if (const Words sets = binomial(blocks_ - 1, t); sets > 0)
        kinds_.push_back({t, false, sets, t * s_, subsets(t, 0)});
      kinds_.push_back(
          {t, true, binomial(blocks_ - 1, t - 1), (t - 1) * s_ + rest_, subsets(t - 1, rest_) - subsets(t - 1, 0)});
    }
  }

  /// Sets of t blocks, all with as many monomials.
  struct Kind {
    index_t t;
    bool with_last;  ///< the last block is among them
    Words sets;
    index_t coordinates;
    Words rows;  ///< monomials of one set
  };

  /// Sums over all groups, and the largest size(rows, coordinates), where a group of that many coordinates has at most
  /// most(coordinates) rows.
  struct Totals {
    Words groups, coordinates, largest;
  };
  template <class Most, class Size>
  Totals totals(const Most& most, const Size& size) const {
    Totals sum;
    const Kind* joined = kind_with_room(most);
    for (const Kind& k : kinds_) {
      const Words room = most(k.coordinates), pieces = (k.rows + room - 1) / room;
      sum.groups += k.sets * pieces;
      sum.coordinates += k.sets * pieces * k.coordinates;
      const Words rows = std::min(room, k.rows + (joined == &k ? 1 : 0));  // of the largest piece
      sum.largest = std::max(sum.largest, size(rows, k.coordinates));
    }
    if (joined == nullptr) {
      sum.groups += 1;
      sum.largest = std::max(sum.largest, size(Words(1), index_t{0}));
    }
    return sum;
  }

  /// f(group), in order.
  template <class Most, class F>
  void for_each(const Most& most, const F& f) const {
    const index_t total = totals(most, [](Words, index_t) { return Words(0); }).groups.to_index();
    const Kind* joins = kind_with_room(most);
    MonomialGroup g;
    g.monomials.degree = degree_;
    g.monomials.block = s_;
    index_t done = 0;
    const auto visit = [&](index_t rows, index_t first, bool constant) {
      g.rows = rows + (constant ? 1 : 0);
      g.monomials.first = first;
      g.monomials.constant = constant;
      g.first = done == 0;
      g.last = ++done == total;
      f(static_cast<const MonomialGroup&>(g));
    };
    if (joins == nullptr) visit(0, 0, true);
    sets(g, 0, [&] {
      const Kind& k = kind_of(g);
      g.coordinates = k.coordinates;
      const index_t room = most(k.coordinates).to_index(), rows = k.rows.to_index();
      for (index_t first = 0; first < rows; first += room) {
        const index_t count = std::min(room, rows - first);
        const bool constant = joins == &k && first + count == rows;
        if (constant) joins = nullptr;
        visit(count, first, constant);
      }
    });
  }

 private:
  /// The first kind whose sets have a piece with a row left.
  template <class Most>
  const Kind* kind_with_room(const Most& most) const {
    for (const Kind& k : kinds_)
      if (const Words room = most(k.coordinates); k.rows - k.rows / room * room > 0) return &k;
    return nullptr;
  }
  const Kind& kind_of(const MonomialGroup& g) const {
    const bool with_last = g.blocks[static_cast<std::size_t>(g.count - 1)] == blocks_ - 1;
    for (const Kind& k : kinds_)
      if (k.t == g.count && k.with_last == with_last) return k;
    throw std::logic_error("a set of blocks of no kind");
  }
  /// Every set that adds blocks from `from` on.
  template <class F>
  void sets(MonomialGroup& g, index_t from, const F& f) const {
    if (g.count == degree_) return;
    for (index_t b = from; b < blocks_; ++b) {
      g.blocks[static_cast<std::size_t>(g.count++)] = b;
      f();
      sets(g, b + 1, f);
      --g.count;
    }
  }

  index_t degree_, s_, blocks_, rest_;
  std::vector<Kind> kinds_;
};

/// Why no schedule keeps a state of this many monomials, or nothing.
inline std::optional<std::string_view> state_of_monomials_unsupported(const Sizes& x) {
  if (polynomial_of(x) == nullptr) return std::nullopt;  // Schedule::obstacle
  if (polynomial_of(x)->degree() > kernel::Monomials::kMostDegree) return "keeps monomials of degree 12 or less";
  double log2 = 0;  // of C(d + g, g)
  for (index_t i = 1; i <= polynomial_of(x)->degree(); ++i)
    log2 += std::log2((static_cast<double>(x.d) + static_cast<double>(i)) / static_cast<double>(i));
  if (log2 + std::log2(static_cast<double>(x.d_v) + 1) > 60) return "has a state of more than 2^60 words";
  if (!x.mask.from_first_key()) return "needs every query to see keys from the first on";
  return std::nullopt;
}

}  // namespace redblue::schedule
