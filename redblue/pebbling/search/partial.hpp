#pragma once
#include <algorithm>
#include <vector>

#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/one_shot.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// The game with partial computations, for Search. A position holds in `done` the computed edges, in `red` the red
/// nodes that are not dead, in `clean` those of them, neither inputs nor whole outputs, whose blue pebble holds their
/// value.
///
/// As in OneShot, the price of a value is paid when it leaves fast memory: 2 if it must be written for that, 1 if it is
/// blue or is written in any case (an input, a whole output).
class Partial {
 public:
  Partial(const Board& board, int M) : board_(board), M_(M) {}

  Position start() const { return {}; }
  bool finished(const Position& p) const { return p.done == all_edges(); }
  void close(Position& p, std::vector<Step>* steps) const;
  Position renamed(const Position& p, const Symmetry& s) const {
    return {s.edges(p.done), s.nodes(p.red), s.nodes(p.clean)};
  }
  int gap(const Position& a, const Position& b, int most) const {
    const Set extra = a.red & ~b.red;
    if (number_in(extra) > most) return kNever;
    return prices(extra, a) + number_in(a.red & b.red & b.clean & ~a.clean);
  }
  template <class F>
  int expand(const Position& p, int extra, F emit) const;

 private:
  Set all_edges() const { return board_.edges.size() == 64 ? ~Set{0} : only(board_.edges.size()) - 1; }
  bool whole(std::size_t v, Set done) const { return (board_.edges_in[v] & ~done) == 0; }
  bool dead(std::size_t v, Set done) const { return ((board_.edges_in[v] | board_.edges_out[v]) & ~done) == 0; }
  bool fresh(std::size_t v, Set done) const {
    return (only(v) & board_.inputs) == 0 && (board_.edges_in[v] & done) == 0;
  }
  int prices(Set s, const Position& p) const {
    int total = 0;
    for_each(s, [&](std::size_t x) {
      const bool once =
          ((board_.inputs | p.clean) & only(x)) != 0 || ((board_.outputs & only(x)) != 0 && whole(x, p.done));
      total += once ? 1 : 2;
    });
    return total;
  }
  /// Where computing this edge leads after these nodes lost their red pebbles.
  Position updated(const Position& p, std::size_t edge, Set evicted) const;
  /// Is computing this edge now never wrong?
  bool never_wrong(const Position& p, std::size_t edge) const;

  const Board& board_;
  int M_;
};

template <class F>
int Partial::expand(const Position& p, int extra, F emit) const {
  int more = kNever;
  for_each(all_edges() & ~p.done, [&](std::size_t edge) {
    const auto [from, to] = board_.edges[edge];
    if (from != to && !whole(from, p.done)) return;
    const Set ends = only(from) | only(to), candidates = p.red & ~ends;
    const int leaving = std::max(0, number_in(p.red | ends) - M_);
    if (number_in(candidates) < leaving) return;
    for_each_subset(candidates, leaving, [&](Set evicted) {
      const int cost = prices(evicted, p);
      if (cost > extra) more = std::min(more, cost);
      if (cost == extra) emit(Successor{updated(p, edge, evicted), cost, {to, from, evicted}});
    });
  });
  return more;
}

}  // namespace redblue::pebbling
