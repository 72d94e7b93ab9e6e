#include "redblue/pebbling/search/recompute.hpp"

namespace redblue::pebbling {
namespace {

/// A flow from the needed outputs through edges to parents, through each node no more than its price; augmented one by
/// one, as it is small.
class ReadCut {
 public:
  ReadCut(const Board& board, Set red, const std::array<int, kMostOnBoard>& price)
      : board_(board), red_(red), price_(price) {}

  int value(Set roots) {
    int total = 0;
    for_each(roots & ~red_, [&](std::size_t root) {
      for (;;) {
        seen_ = left_ = 0;
        if (!reach(root)) return;
        ++total;
      }
    });
    return total;
  }

 private:
  /// Finds a way for one more unit that arrives at v, which is not red.
  bool reach(std::size_t v) {
    if ((seen_ & only(v)) != 0) return false;
    seen_ |= only(v);
    if (through_[v] < price_[v] && pass(v)) {
      ++through_[v];
      return true;
    }
    // Turn a unit away that comes from a child and send it on from there by another way.
    Set from = 0;
    for_each(board_.children[v], [&](std::size_t c) {
      if (flow_[c][v] > 0) from |= only(c);
    });
    for (; from != 0; from &= from - 1) {
      const std::size_t c = first_of(from);
      --flow_[c][v];
      if (leave(c)) return true;
      ++flow_[c][v];
    }
    return false;
  }
  bool pass(std::size_t v) { return (board_.inputs & only(v)) != 0 || leave(v); }
  /// One unit has passed through v (no input) and goes to a parent, or back through v.
  bool leave(std::size_t v) {
    if ((left_ & only(v)) != 0) return false;
    left_ |= only(v);
    for (Set to = board_.parents[v] & ~red_; to != 0; to &= to - 1) {
      const std::size_t parent = first_of(to);
      ++flow_[v][parent];
      if (reach(parent)) return true;
      --flow_[v][parent];
    }
    if (through_[v] == 0) return false;
    --through_[v];
    if (returned(v)) return true;
    ++through_[v];
    return false;
  }
  /// A unit that came to v and no longer passes it goes back to a child.
  bool returned(std::size_t v) {
    if ((seen_ & only(v)) != 0) return false;
    seen_ |= only(v);
    for (Set from = board_.children[v]; from != 0; from &= from - 1) {
      const std::size_t c = first_of(from);
      if (flow_[c][v] == 0) continue;
      --flow_[c][v];
      if (leave(c)) return true;
      ++flow_[c][v];
    }
    return false;
  }

  const Board& board_;
  Set red_;
  const std::array<int, kMostOnBoard>& price_;
  std::array<int, kMostOnBoard> through_{};
  std::array<std::array<std::uint8_t, kMostOnBoard>, kMostOnBoard> flow_{};
  Set seen_ = 0, left_ = 0;
};

}  // namespace

std::vector<Set> ancestors_of(const Board& board) {
  std::vector<Set> ancestors(board.size());
  for (std::size_t round = 0; round < board.size(); ++round)
    for (std::size_t v = 0; v < board.size(); ++v) {
      ancestors[v] |= only(v);
      for_each(board.parents[v], [&](std::size_t p) { ancestors[v] |= ancestors[p]; });
    }
  return ancestors;
}

int least_price_of_reads(const Board& board, Set red, const std::array<int, kMostOnBoard>& price, Set roots) {
  return ReadCut(board, red, price).value(roots);
}

Recompute::Recompute(const Board& board, int M, bool slide)
    : board_(board), M_(M), slide_(slide), ancestors_(ancestors_of(board)) {}

Position Recompute::start() const { return {}; }

int Recompute::gap(const Position& a, const Position& b, int most) const {
  int total = 0;
  for (Set s = b.red & ~a.red; s != 0 && total <= most; s &= s - 1) {
    const std::size_t x = first_of(s);
    total += price_of_reading(a, x);
  }
  // What b has written and a has not, a writes too: but once if it has just read it.
  return total + number_in(b.clean & ~a.clean & ~(b.red & ~a.red));
}

void Recompute::settle(Position& p) const {
  const Set useful = needed(p.done);
  Set live = 0;
  for_each(p.red | p.done, [&](std::size_t x) {
    if ((board_.children[x] & useful) != 0) live |= only(x);
  });
  p.red &= live;
  p.done &= live | board_.outputs;
  p.clean &= live;
  p.ahead = bound_ahead(p);
}

int Recompute::bound_ahead(const Position& p) const {
  std::array<int, kMostOnBoard> price{};
  for (std::size_t x = 0; x < board_.size(); ++x) price[x] = std::min(price_of_reading(p, x), 1 << 20);
  return least_price_of_reads(board_, p.red, price, board_.outputs & ~p.done);
}

}  // namespace redblue::pebbling
