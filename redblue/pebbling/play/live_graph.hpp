#pragma once
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/referee.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::pebbling {

inline constexpr Node kNoNode = std::numeric_limits<Node>::max();

/// How a node comes from its parents.
struct Recipe {
  Op op = Op::copy;
  std::vector<Node> parents{};
  double k = 1;
  std::string formula{};  ///< of Op::formula
};

/// A graph that grows while it is played, with the values of its nodes. A node is red as long as a word holds it; words
/// that are copies of each other hold one node.
class LiveGraph {
 public:
  LiveGraph(const Rules& rules, std::size_t M) : rules_(rules), referee_(graph_, rules, M) {}

  Node add_input(std::string name, double value);
  /// Its name is `kind` and its number, or none.
  Node add(const Recipe& recipe, const std::string& kind = {});
  /// One more word holds the node, which is read.
  void read(Node v);
  void write(Node v) { play({.kind = Move::Kind::write, .node = v}); }
  /// A word holds the node, which is computed. With a parent that `ends`, one word less holds that one; the rules may
  /// let its pebble slide.
  void compute(Node v, Node ends = kNoNode);
  /// One word less holds the node.
  void release(Node v);

  const Graph& graph() const { return graph_; }
  Graph& graph() { return graph_; }
  const Referee& referee() const { return referee_; }
  const std::vector<Move>& moves() const { return moves_; }
  double value(Node v) const { return values_[v]; }

 private:
  void play(const Move& move);

  Rules rules_;
  Graph graph_;
  Referee referee_;
  std::vector<Move> moves_;
  std::vector<double> values_;
  std::vector<std::uint32_t> words_;  ///< that hold each node
};

}  // namespace redblue::pebbling
