#include "redblue/pebbling/search/solver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/referee.hpp"
#include "redblue/pebbling/search/beam.hpp"
#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/greedy.hpp"
#include "redblue/pebbling/search/one_shot.hpp"
#include "redblue/pebbling/search/partial.hpp"
#include "redblue/pebbling/search/processors.hpp"
#include "redblue/pebbling/search/recompute.hpp"
#include "redblue/pebbling/search/search.hpp"
#include "redblue/pebbling/search/steps.hpp"
#include "redblue/pebbling/search/symmetries.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::size_t kMostSymmetries = 200;
constexpr std::size_t kBeamWidth = 150;

class Solver {
 public:
  Solver(const Graph& g, const Rules& rules, std::size_t M, const SolverLimits& limits)
      : graph_(g),
        rules_(rules),
        limits_(limits),
        begin_(std::clock()),
        board_(board_of(g)),
        M_(static_cast<int>(std::min(M, kMostOnBoard))),
        floor_(unavoidable_io(g, rules)),
        unused_(unused_inputs()) {}

  Optimum solved() {
    optimum_.lower = floor_;
    const bool slide = rules_.compute == Rules::Compute::slide;
    if (rules_.compute == Rules::Compute::partial) {
      dive(Partial(board_, M_));
      narrow(Partial(board_, M_), limits_.seconds, true);
    } else if (rules_.processors > 1) {
      // What one processor does, or several without recomputation, is a play of the game, too.
      dive(OneShot(board_, M_, slide));
      dive(Processors(board_, M_, slide, false, rules_.processors));
      narrow(Processors(board_, M_, slide, rules_.recompute, rules_.processors), limits_.seconds, true);
    } else {
      const OneShot once(board_, M_, slide);
      dive(once);
      if (!rules_.recompute) {
        narrow(once, limits_.seconds, true);
      } else {
        // A play without recomputation is one with it, and often as good: the search need only show that none is
        // better.
        narrow(once, limits_.seconds / 4, false);
        narrow(Recompute(board_, M_, slide), limits_.seconds, true);
      }
    }
    optimum_.seconds = seconds();
    return std::move(optimum_);
  }

 private:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

  std::vector<Node> unused_inputs() const {
    std::vector<Node> result;
    if (!rules_.read_unused_inputs) return result;
    std::vector<bool> on_board(graph_.size());
    for (const Node v : board_.nodes) on_board[v] = true;
    for (Node v = 0; v < graph_.size(); ++v)
      if (graph_.is_input(v) && !on_board[v]) result.push_back(v);
    return result;
  }

  /// Takes a play as the best known. The referee has the last word on what it costs.
  void take(std::span<const Step> steps, bool of_processors) {
    std::vector<Move> moves;
    for (const Node v : unused_) {
      moves.push_back({Move::Kind::read, v});
      moves.push_back({Move::Kind::remove, v});
    }
    const std::vector<Move> play = of_processors ? moves_of_processors(board_, steps)
                                                 : moves_of(board_, steps, rules_, static_cast<std::size_t>(M_));
    moves.insert(moves.end(), play.begin(), play.end());
    Referee referee(graph_, rules_, static_cast<std::size_t>(M_));
    for (const Move& m : moves) referee.play(m);
    referee.finish();
    if (!optimum_.moves.empty() && referee.cost().io() >= optimum_.upper) return;
    optimum_.upper = referee.cost().io();
    optimum_.moves = std::move(moves);
    tell();
  }
  void tell() const {
    if (limits_.progress) limits_.progress(optimum_.lower, optimum_.upper);
  }

  template <class Game>
  void dive(const Game& game) {
    const auto play = beam_search(game, kBeamWidth);
    if (!play) throw std::logic_error("a graph has enough red pebbles and no play");
    take(play->second, std::is_same_v<Game, Processors>);
  }

  /// Looks for better plays of this game until this many seconds of the whole are over. `bounds`: is a lower bound of
  /// its plays one of all plays?
  template <class Game>
  void narrow(const Game& game, double until, bool bounds) {
    if (optimum_.upper == floor_) return;
    typename Search<Game>::Limits limits;
    limits.seconds = until - seconds();
    limits.bytes = limits_.bytes;
    limits.upper = static_cast<int>(optimum_.upper - floor_);
    limits.progress = [&](int lower) {
      if (bounds) optimum_.lower = floor_ + static_cast<std::size_t>(lower);
      tell();
    };
    const std::vector<Symmetry> symmetries = std::is_same_v<Game, Processors>
                                                 ? symmetries_of_places(board_, rules_.processors, kMostSymmetries)
                                                 : symmetries_of(board_, kMostSymmetries);
    const auto found = Search<Game>(game, symmetries).run(limits);
    optimum_.positions += found.positions;
    if (found.steps) take(*found.steps, std::is_same_v<Game, Processors>);
    const std::size_t lower = floor_ + static_cast<std::size_t>(found.lower);
    if (found.complete && lower != optimum_.upper)
      throw std::logic_error("the search of the least I/O and its play disagree");
    if (bounds) optimum_.lower = lower;
  }

  const Graph& graph_;
  Rules rules_;
  const SolverLimits& limits_;
  std::clock_t begin_;
  Board board_;
  int M_;
  std::size_t floor_;
  std::vector<Node> unused_;
  Optimum optimum_;
};

}  // namespace

std::size_t unavoidable_io(const Graph& g, const Rules& rules) {
  std::vector<bool> read(g.size(), rules.read_unused_inputs);
  const std::vector<bool> needed = needed_nodes(g);
  std::size_t total = 0;
  for (Node v = 0; v < g.size(); ++v) {
    if (!g.is_input(v) && needed[v])
      for (const Node p : g.parents(v)) read[p] = true;
    if (g.is_output(v) && !g.is_input(v)) ++total;
  }
  for (Node v = 0; v < g.size(); ++v)
    if (g.is_input(v) && read[v]) ++total;
  return total;
}

std::string why_not_searched(const Graph& g, const Rules& rules) {
  try {
    const Board board = board_of(g);
    if (rules.processors > 1 && board.size() * rules.processors > kMostOnBoard)
      return fmt::format("outputs of this graph need {} nodes; with {} processors the exact solver takes at most {}",
                         board.size(), rules.processors, kMostOnBoard / rules.processors);
    if (rules.compute == Rules::Compute::partial && board.edges.size() > kMostOnBoard)
      return fmt::format(
          "outputs of this graph need {} edges; with partial computations the exact solver takes at most "
          "{}",
          board.edges.size(), kMostOnBoard);
  } catch (const Unsupported& e) {
    return e.what();
  }
  return {};
}

Optimum bracket(const Graph& g, const Rules& rules, std::size_t M) {
  Optimum optimum;
  optimum.lower = unavoidable_io(g, rules);
  optimum.moves = greedy_play(g, rules, M);
  Referee referee(g, rules, M);
  for (const Move& m : optimum.moves) referee.play(m);
  referee.finish();
  optimum.upper = referee.cost().io();
  return optimum;
}

Optimum solve(const Graph& g, const Rules& rules, std::size_t M, const SolverLimits& limits) {
  check(rules);
  check_memory(g, rules, M);
  if (rules.compute == Rules::Compute::partial) {
    const std::vector<bool> needed = needed_nodes(g);
    for (Node v = 0; v < g.size(); ++v) {
      if (g.is_input(v)) continue;
      if (!needed[v])
        throw Unsupported(
            fmt::format("no output needs {}; with partial computations its edges would bind the pebbles of "
                        "its parents, so the exact solver wants a graph without it",
                        label(g, v)));
    }
  }
  const std::string obstacle = why_not_searched(g, rules);
  if (!obstacle.empty()) throw Unsupported(obstacle);
  return Solver(g, rules, M, limits).solved();
}

}  // namespace redblue::pebbling
