#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::pebbling {

/// A move that the rules forbid, or an end at which something is missing.
class IllegalMove : public RuleError {
 public:
  IllegalMove(const std::string& what, std::size_t number) : RuleError(what), number(number) {}
  std::size_t number;  ///< of the move, from 1; at the end, the number of all moves
};

/// Plays moves by the rules, with at most M red pebbles. The graph may grow while it plays: nodes that came since the
/// last move have no pebble, and inputs a blue one. Throws IllegalMove at the first move that the rules forbid, with
/// its number, the node's name and the rule, and the state stays as it was.
class Referee {
 public:
  /// The graph outlives the referee. Throws Error when the rules contradict each other.
  Referee(const Graph& g, Rules rules, std::size_t M);
  void play(const Move& move);
  /// Throws IllegalMove unless each output has a blue pebble (and, if the rules ask for it, each input was read).
  void finish() const;

  const Cost& cost() const { return cost_; }
  std::size_t moves() const { return moves_; }
  bool is_red(Node v, std::size_t processor = 0) const {
    return v < nodes_.size() && ((nodes_[v].red >> processor) & 1) != 0;
  }
  bool is_blue(Node v) const { return v < nodes_.size() ? nodes_[v].blue : v < graph_.size() && graph_.is_input(v); }
  /// Is its value whole? With partial computations it is when all edges to it are computed.
  bool is_computed(Node v) const;
  /// Red pebbles now.
  std::size_t red_pebbles(std::size_t processor = 0) const { return red_[processor]; }

 private:
  struct State {
    std::uint64_t red = 0;  ///< a bit for each processor
    bool blue = false;
    bool computed = false;
    bool was_read = false;
    std::uint32_t edges_in = 0;   ///< partial: not computed yet, each parent once
    std::uint32_t edges_out = 0;  ///< partial: not computed yet
  };

  void see_new_nodes();
  void read(const Move& move);
  void write(const Move& move);
  void compute(const Move& move);
  void slide(const Move& move);
  void update(const Move& move);
  void remove(const Move& move);
  void require_computable(const Move& move) const;
  void require_parents(const Move& move) const;
  void require_room(const Move& move) const;
  void put_red(const Move& move);
  void take_red(Node v, std::size_t processor);
  bool has_parent(Node v, Node parent) const;
  static std::uint64_t edge(Node from, Node to) { return (std::uint64_t{from} << 32) | to; }
  [[noreturn]] void fail(const Move& move, const std::string& why) const;

  const Graph& graph_;
  Rules rules_;
  std::size_t M_;
  Cost cost_;
  std::size_t moves_ = 0;
  std::vector<State> nodes_;
  std::vector<std::size_t> red_;                  ///< of each processor
  std::unordered_set<std::uint64_t> open_edges_;  ///< partial: not computed yet
};

}  // namespace redblue::pebbling
