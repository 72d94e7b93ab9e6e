#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// Calls f with each subset of `from` that has `count` members.
template <class F>
void for_each_subset(Set from, int count, F&& f, Set chosen = 0) {
  if (count <= 0) {
    f(chosen);
    return;
  }
  for (; number_in(from) >= count; from &= from - 1)
    for_each_subset(from & (from - 1), count - 1, f, chosen | only(first_of(from)));
}

/// The game in which each node is computed once, for Search. A position holds in `done` the computed nodes, in `red`
/// the red nodes that are not dead, in `clean` those of them which are written and neither inputs nor outputs.
///
/// A value that is not dead and leaves fast memory will be read again, so its price is paid when it leaves: 2 if it
/// must be written for that, 1 if it is blue or is written in any case (an input, an output). Reads and computations
/// cost nothing more.
class OneShot {
 public:
  OneShot(const Board& board, int M, bool slide) : board_(board), M_(M), slide_(slide) {}

  Position start() const { return {}; }
  bool finished(const Position& p) const { return p.done == board_.computed; }
  void close(Position& p, std::vector<Step>* steps) const;
  Position renamed(const Position& p, const Symmetry& s) const {
    return {s.nodes(p.done), s.nodes(p.red), s.nodes(p.clean)};
  }
  int gap(const Position& a, const Position& b, int most) const {
    const Set extra = a.red & ~b.red;
    if (number_in(extra) > most) return kNever;
    return prices(extra, a.clean) + number_in(a.red & b.red & b.clean & ~a.clean);
  }
  template <class F>
  int expand(const Position& p, int extra, F emit) const;

 private:
  int prices(Set s, Set clean) const {
    return 2 * number_in(s) - number_in(s & (board_.inputs | board_.outputs | clean));
  }
  Set ready(Set done) const;
  /// The members of `s` whose children are all computed.
  Set dead(Set s, Set done) const {
    Set result = 0;
    for_each(s, [&](std::size_t x) {
      if ((board_.children[x] & ~done) == 0) result |= only(x);
    });
    return result;
  }
  /// Where the computation of v leads after these nodes lost their red pebbles.
  Position computed(const Position& p, std::size_t v, Set evicted, Set dying) const {
    const Set parents = board_.parents[v];
    const Set read_again = parents & ~p.red & ~board_.inputs & ~board_.outputs;
    Position next{.done = p.done | only(v), .red = (p.red | parents) & ~evicted & ~dying};
    if (board_.children[v] != 0) next.red |= only(v);
    next.clean = (p.clean | read_again) & next.red;
    return next;
  }
  /// Is there no set that is as good as `evicted` in any case: one with x in place of y, where x leaves for 1 and has
  /// no uses that y has not?
  bool worth_evicting(const Position& p, Set candidates, Set evicted) const;

  const Board& board_;
  int M_;
  bool slide_;
};

template <class F>
int OneShot::expand(const Position& p, int extra, F emit) const {
  int more = kNever;
  for_each(ready(p.done), [&](std::size_t v) {
    const Set parents = board_.parents[v], candidates = p.red & ~parents;
    const Set dying = dead(parents, p.done | only(v));
    const int held = number_in(p.red | parents), own = number_in(parents);
    const auto with = [&](int leaving, std::size_t slid, int price) {
      if (number_in(candidates) < leaving || price > extra + 2) return;
      for_each_subset(candidates, leaving, [&](Set evicted) {
        const int cost = price + prices(evicted, p.clean);
        if (cost < extra || (cost > extra && cost >= more) || !worth_evicting(p, candidates, evicted)) return;
        if (cost > extra) {
          more = cost;
          return;
        }
        const Set gone = slid == kNone ? evicted : evicted | only(slid);
        emit(Successor{computed(p, v, gone, dying), cost, {v, slid, evicted}});
      });
    };
    if (own + 1 <= M_ && !(slide_ && dying != 0)) with(std::max(0, held + 1 - M_), kNone, 0);
    if (!slide_ || own > M_) return;
    if (dying != 0) {
      with(std::max(0, held - M_), kNone, 0);
    } else if (held + 1 > M_) {
      const Set written = p.clean | (parents & ~p.red);
      for_each(parents, [&](std::size_t x) { with(std::max(0, held - M_), x, prices(only(x), written)); });
    }
  });
  return more;
}

}  // namespace redblue::pebbling
