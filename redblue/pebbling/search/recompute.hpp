#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/one_shot.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// The ancestors of each node, and the node.
std::vector<Set> ancestors_of(const Board& board);

/// The least price of reads that give these nodes if fast memory had no limit: each needed node is red, is read at its
/// price, or its parents are needed.
int least_price_of_reads(const Board& board, Set red, const std::array<int, kMostOnBoard>& price, Set roots);

/// The game in which a node may be computed again, for Search. A position holds in `done` the inputs that were read and
/// the nodes that were computed, in `red` the red nodes that may be used again, in `clean` those computed nodes, no
/// outputs, that are written.
///
/// Whether a value that leaves is written for a later read is decided, and paid, when it is read: 2 the first time,
/// then
/// 1. An output is written as soon as it is computed. The bound ahead is the least price of the reads that are left if
/// fast memory had no limit: a minimum cut.
class Recompute {
 public:
  Recompute(const Board& board, int M, bool slide);

  Position start() const;
  bool finished(const Position& p) const { return (board_.outputs & ~p.done) == 0; }
  void close(Position&, std::vector<Step>*) const {}
  Position renamed(const Position& p, const Symmetry& s) const {
    return {s.nodes(p.done), s.nodes(p.red), s.nodes(p.clean), p.ahead};
  }
  int gap(const Position& a, const Position& b, int most) const;
  template <class F>
  int expand(const Position& p, int extra, F emit) const;

 private:
  /// What reading x costs beyond the unavoidable, or kNever.
  int price_of_reading(const Position& p, std::size_t x) const {
    const Set s = only(x);
    if ((board_.inputs & s) != 0) return (p.done & s) != 0 ? 1 : 0;
    if ((p.done & s) == 0) return kNever;
    return ((p.clean | board_.outputs) & s) != 0 ? 1 : 2;
  }
  /// The nodes that outputs still to compute are or come from.
  Set needed(Set done) const {
    Set result = 0;
    for_each(board_.outputs & ~done, [&](std::size_t o) { result |= ancestors_[o]; });
    return result;
  }
  /// Drops what is of no use any more, and finds the bound ahead.
  void settle(Position& p) const;
  int bound_ahead(const Position& p) const;

  const Board& board_;
  int M_;
  bool slide_;
  std::vector<Set> ancestors_;
};

template <class F>
int Recompute::expand(const Position& p, int extra, F emit) const {
  if (extra > 0) return kNever;  // all successors were emitted at once: their bounds must be found before they can wait
  const Set useful = needed(p.done);
  for_each(useful & board_.computed & ~p.red, [&](std::size_t v) {
    const Set parents = board_.parents[v];
    int price = 0;
    for_each(parents & ~p.red, [&](std::size_t x) { price = std::min(kNever, price + price_of_reading(p, x)); });
    if (price >= kNever) return;
    const Set candidates = p.red & ~parents;
    const int held = number_in(p.red | parents), own = number_in(parents);
    const auto with = [&](int leaving, std::size_t slid) {
      if (number_in(candidates) < leaving) return;
      for_each_subset(candidates, leaving, [&](Set evicted) {
        Position next = p;
        next.done |= only(v) | (parents & board_.inputs);
        next.clean |= parents & ~p.red & board_.computed & ~board_.outputs;
        next.red = ((p.red | parents) & ~evicted) | only(v);
        if (slid != kNone) next.red &= ~only(slid);
        settle(next);
        emit(Successor{next, price, {v, slid, evicted}});
      });
    };
    if (own + 1 <= M_) with(std::max(0, held + 1 - M_), kNone);
    if (slide_ && own <= M_ && held + 1 > M_)
      for_each(parents, [&](std::size_t x) { with(std::max(0, held - M_), x); });
  });
  return kNever;
}

}  // namespace redblue::pebbling
