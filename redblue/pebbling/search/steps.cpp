#include "redblue/pebbling/search/steps.hpp"

#include <optional>

namespace redblue::pebbling {
namespace {

/// Lays a play out without its writes, then puts the writes before the moves that need them.
class StepLayout {
 public:
  StepLayout(const Board& b, std::span<const Step> steps, const Rules& rules, std::size_t M)
      : board_(b),
        steps_(steps),
        partial_(rules.compute == Rules::Compute::partial),
        slide_(rules.compute == Rules::Compute::slide),
        M_(M) {}

  std::vector<Move> moves() {
    for (std::size_t k = 0; k < steps_.size(); ++k) play(k);
    return with_writes();
  }

 private:
  Set needs(const Step& s) const { return partial_ ? only(s.node) | only(s.parent) : board_.parents[s.node]; }
  /// Is x red after step k for a later one? The next step that needs it comes before one that computes it.
  bool needed_after(std::size_t k, std::size_t x) const {
    for (std::size_t j = k + 1; j < steps_.size(); ++j) {
      if ((needs(steps_[j]) & only(x)) != 0) return true;
      if (steps_[j].node == x) return false;
    }
    return false;
  }
  void add(Move::Kind kind, std::size_t node, std::size_t parent = 0) {
    moves_.push_back({kind, static_cast<Node>(node), static_cast<Node>(parent)});
  }
  void remove(std::size_t x) {
    add(Move::Kind::remove, x);
    red_ &= ~only(x);
  }

  void play(std::size_t k) {
    const Step& s = steps_[k];
    for_each(s.evicted & red_, [&](std::size_t x) { remove(x); });
    Set missing = needs(s) & ~red_;
    if (partial_ && (started_ & only(s.node)) == 0) missing &= ~only(s.node);
    for_each(missing, [&](std::size_t x) {
      add(Move::Kind::read, x);
      red_ |= only(x);
    });
    const std::optional<std::size_t> slid = slid_parent(k);
    if (partial_ && s.node != s.parent)
      add(Move::Kind::update, s.node, s.parent);
    else if (slid)
      add(Move::Kind::slide, s.node, *slid);
    else
      add(Move::Kind::compute, s.node);
    if (slid) red_ &= ~only(*slid);
    red_ |= only(s.node);
    started_ |= only(s.node);
    for_each(red_, [&](std::size_t x) {
      if (!needed_after(k, x)) remove(x);
    });
  }
  std::optional<std::size_t> slid_parent(std::size_t k) const {
    const Step& s = steps_[k];
    if (!slide_) return std::nullopt;
    if (s.parent != kNone) return s.parent;
    if (static_cast<std::size_t>(number_in(red_)) < M_) return std::nullopt;
    std::optional<std::size_t> result;
    for_each(board_.parents[s.node], [&](std::size_t x) {
      if (!needed_after(k, x)) result = x;
    });
    return result;
  }

  std::vector<Move> with_writes() const {
    // read_next[i]: is the node that loses its pebble in move i read before it is computed again?
    std::vector<char> must_be_blue(moves_.size());
    Set read_later = 0, last = ~Set{0};
    for (std::size_t i = moves_.size(); i-- > 0;) {
      const Move& m = moves_[i];
      const Set node = only(m.node);
      switch (m.kind) {
        case Move::Kind::read:
          read_later |= node;
          last &= ~node;
          break;
        case Move::Kind::remove:
          must_be_blue[i] = (read_later & node) != 0 || (last & node & board_.outputs) != 0;
          break;
        case Move::Kind::slide:
          must_be_blue[i] = (read_later & only(m.parent)) != 0 || (last & only(m.parent) & board_.outputs) != 0;
          read_later &= ~node;
          last &= ~node;
          break;
        default:
          read_later &= ~node;
          last &= ~node;
      }
    }
    std::vector<Move> result;
    Set blue = board_.inputs;
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      const Move& m = moves_[i];
      const std::size_t leaving = m.kind == Move::Kind::slide ? m.parent : m.node;
      if (must_be_blue[i] != 0 && (blue & only(leaving)) == 0) {
        result.push_back({Move::Kind::write, static_cast<Node>(leaving)});
        blue |= only(leaving);
      }
      result.push_back(m);
      if (m.kind == Move::Kind::update) blue &= ~only(m.node);
    }
    for (Move& m : result) {
      m.node = board_.nodes[m.node];
      m.parent = m.kind == Move::Kind::slide || m.kind == Move::Kind::update ? board_.nodes[m.parent] : 0;
    }
    return result;
  }

  const Board& board_;
  std::span<const Step> steps_;
  bool partial_, slide_;
  std::size_t M_;
  Set red_ = 0, started_ = 0;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> moves_of(const Board& b, std::span<const Step> steps, const Rules& rules, std::size_t M) {
  return StepLayout(b, steps, rules, M).moves();
}

}  // namespace redblue::pebbling
