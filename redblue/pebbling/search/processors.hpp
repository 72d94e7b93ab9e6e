#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/one_shot.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// The game of several processors, for Search. Its places are pairs of a processor and a node, p * nodes + v. A
/// position holds in `done` the inputs that were read and the nodes that were computed, in `red` the places with a red
/// pebble that may be used again, in `clean` those computed nodes, no outputs, that are written. Steps name places.
///
/// As in Recompute, whether a value is written is decided, and paid, when it is first read: 2, then 1. An output is
/// written as soon as it is computed. The bound ahead lets all processors share their red pebbles.
class Processors {
 public:
  Processors(const Board& board, int M, bool slide, bool recompute, std::size_t processors);

  Position start() const { return {}; }
  bool finished(const Position& p) const { return (board_.outputs & ~p.done) == 0; }
  void close(Position&, std::vector<Step>*) const {}
  Position renamed(const Position& p, const Symmetry& s) const {
    return {s.edges(p.done), s.nodes(p.red), s.edges(p.clean), p.ahead};
  }
  int gap(const Position& a, const Position& b, int most) const;
  template <class F>
  int expand(const Position& p, int extra, F emit) const;

 private:
  Set red_of(const Position& p, std::size_t processor) const {
    return (p.red >> (processor * board_.size())) & (board_.inputs | board_.computed);
  }
  Set at(std::size_t processor, Set nodes) const { return nodes << (processor * board_.size()); }
  Set red_anywhere(const Position& p) const {
    Set red = 0;
    for (std::size_t k = 0; k < processors_; ++k) red |= red_of(p, k);
    return red;
  }
  /// What reading x costs beyond the unavoidable, or kNever.
  int price_of_reading(const Position& p, std::size_t x) const {
    const Set s = only(x);
    if ((p.done & s) == 0) return (board_.inputs & s) != 0 ? 0 : kNever;
    return ((board_.inputs | p.clean | board_.outputs) & s) != 0 ? 1 : 2;
  }
  /// The nodes that are to be computed still, or may be.
  Set useful(Set done) const;
  /// Drops what is of no use any more, and finds the bound ahead.
  void settle(Position& p) const;

  const Board& board_;
  int M_;
  bool slide_, recompute_;
  std::size_t processors_;
  std::vector<Set> ancestors_;
};

template <class F>
int Processors::expand(const Position& p, int extra, F emit) const {
  if (extra > 0) return kNever;  // all successors were emitted at once
  const Set to_compute = useful(p.done);
  for (std::size_t processor = 0; processor < processors_; ++processor) {
    const Set red = red_of(p, processor);
    bool as_another = false;
    for (std::size_t k = 0; k < processor; ++k) as_another = as_another || red_of(p, k) == red;
    if (as_another) continue;
    for_each(to_compute & ~red, [&](std::size_t v) {
      const Set parents = board_.parents[v], candidates = red & ~parents;
      int price = 0;
      for_each(parents & ~red, [&](std::size_t x) { price = std::min(kNever, price + price_of_reading(p, x)); });
      if (price >= kNever) return;
      const int held = number_in(red | parents), own = number_in(parents);
      const auto with = [&](int leaving, std::size_t slid) {
        if (number_in(candidates) < leaving) return;
        for_each_subset(candidates, leaving, [&](Set evicted) {
          Set after = ((red | parents) & ~evicted) | only(v);
          if (slid != kNone) after &= ~only(slid);
          Position next = p;
          next.done |= only(v) | (parents & board_.inputs);
          next.clean |= parents & ~red & board_.computed & ~board_.outputs;
          next.red = (p.red & ~at(processor, red)) | at(processor, after);
          settle(next);
          const std::size_t place = processor * board_.size();
          emit(Successor{next, price, {place + v, slid == kNone ? kNone : place + slid, at(processor, evicted)}});
        });
      };
      if (own + 1 <= M_) with(std::max(0, held + 1 - M_), kNone);
      if (slide_ && own <= M_ && held + 1 > M_)
        for_each(parents, [&](std::size_t x) { with(std::max(0, held - M_), x); });
    });
  }
  return kNever;
}

/// Symmetries of the game of several processors: its places in `nodes`, its nodes in `edges`. Processors change places,
/// and the board's symmetries rename nodes; at most `most` of them.
std::vector<Symmetry> symmetries_of_places(const Board& b, std::size_t processors, std::size_t most);

/// The moves of a play of these steps. A value is written as soon as it is computed if it is read later or is an
/// output, and leaves a processor when no step there needs it any more.
std::vector<Move> moves_of_processors(const Board& b, std::span<const Step> steps);

}  // namespace redblue::pebbling
