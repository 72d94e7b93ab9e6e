#include "redblue/pebbling/search/greedy.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

class GreedyPlayer {
 public:
  GreedyPlayer(const Graph& g, const Rules& rules, std::size_t M)
      : graph_(g), slide_(rules.compute == Rules::Compute::slide), M_(M), children_(children_of(g)), used_(g.size()) {
    const std::vector<bool> needed = needed_nodes(g);
    for (Node v = 0; v < g.size(); ++v) {
      std::erase_if(children_[v], [&](Node c) { return !needed[c]; });
      blue_.push_back(g.is_input(v));
    }
    is_red_.resize(g.size());
    if (rules.read_unused_inputs)
      for (Node v = 0; v < g.size(); ++v)
        if (g.is_input(v) && children_[v].empty()) {
          add(Move::Kind::read, v);
          add(Move::Kind::remove, v);
        }
    for (Node v = 0; v < g.size(); ++v)
      if (needed[v] && !g.is_input(v)) compute(v);
  }
  std::vector<Move> moves() && { return std::move(moves_); }

 private:
  static constexpr std::size_t kNoUse = std::numeric_limits<std::size_t>::max();
  void add(Move::Kind kind, Node v, Node parent = 0) { moves_.push_back({kind, v, parent}); }
  /// The next computation that needs it.
  std::size_t next_use(Node v) const { return used_[v] < children_[v].size() ? children_[v][used_[v]] : kNoUse; }
  void put_red(Node v) {
    is_red_[v] = true;
    red_.emplace(next_use(v), v);
  }
  void take_red(Node v) {
    is_red_[v] = false;
    red_.erase({next_use(v), v});
  }
  void save(Node v) {
    if (blue_[v] || (next_use(v) == kNoUse && !graph_.is_output(v))) return;
    add(Move::Kind::write, v);
    blue_[v] = true;
  }
  /// Takes the pebble of the node that is used again last, but of none that v is computed from.
  bool make_room(Node v) {
    while (red_.size() >= M_) {
      const auto last =
          std::ranges::find_if(red_.rbegin(), red_.rend(), [&](const auto& use) { return use.first != v; });
      if (last == red_.rend()) return false;
      const Node leaving = last->second;
      save(leaving);
      add(Move::Kind::remove, leaving);
      take_red(leaving);
    }
    return true;
  }

  void compute(Node v) {
    const std::vector<Node> parents = different_parents(graph_, v);
    for (const Node p : parents) {
      if (is_red_[p]) continue;
      make_room(v);
      add(Move::Kind::read, p);
      put_red(p);
    }
    // After this computation the parents' next uses are later ones.
    const bool has_room = make_room(v) || !slide_;
    for (const Node p : parents) {
      red_.erase({next_use(p), p});
      ++used_[p];
      red_.emplace(next_use(p), p);
    }
    if (has_room) {
      add(Move::Kind::compute, v);
    } else {
      const Node last = red_.rbegin()->second;
      save(last);
      add(Move::Kind::slide, v, last);
      take_red(last);
    }
    put_red(v);
    if (graph_.is_output(v) && next_use(v) == kNoUse) save(v);
    for (const Node x : parents)
      if (is_red_[x] && next_use(x) == kNoUse) drop(x);
    if (next_use(v) == kNoUse) drop(v);
  }
  void drop(Node x) {
    save(x);
    add(Move::Kind::remove, x);
    take_red(x);
  }

  const Graph& graph_;
  bool slide_;
  std::size_t M_;
  std::vector<std::vector<Node>> children_;
  std::vector<std::size_t> used_;  ///< how many of the children were computed
  std::vector<bool> blue_, is_red_;
  std::set<std::pair<std::size_t, Node>> red_;  ///< with their next uses
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> greedy_play(const Graph& g, const Rules& rules, std::size_t M) {
  check(rules);
  check_memory(g, rules, M);
  if (rules.compute == Rules::Compute::partial)
    throw Unsupported("a play of a large graph is made by placing or sliding, not by partial computations");
  return GreedyPlayer(g, rules, M).moves();
}

}  // namespace redblue::pebbling
