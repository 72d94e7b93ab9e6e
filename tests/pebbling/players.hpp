#pragma once
#include <algorithm>
#include <vector>

#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/referee.hpp"

namespace redblue::test {

/// A play that reads the parents of each needed node, computes it, and writes it.
inline std::vector<pebbling::Move> plain_play(const pebbling::Graph& g, const pebbling::Rules& rules) {
  using pebbling::Move;
  using pebbling::Node;
  using Kind = Move::Kind;
  std::vector<Move> moves;
  const std::vector<bool> needed = needed_nodes(g);
  const auto last = static_cast<std::uint16_t>(rules.processors - 1);
  for (Node v = 0; v < g.size(); ++v) {
    if (g.is_input(v) || (!needed[v] && rules.compute != pebbling::Rules::Compute::partial)) continue;
    const std::vector<Node> parents = different_parents(g, v);
    const bool partial = rules.compute == pebbling::Rules::Compute::partial && !parents.empty();
    for (const Node p : parents) {
      moves.push_back({Kind::read, p, 0, last});
      if (!partial) continue;
      moves.push_back({Kind::update, v, p});
      moves.push_back({Kind::remove, p});
    }
    const bool slide = rules.compute == pebbling::Rules::Compute::slide && !parents.empty();
    if (slide) moves.push_back({Kind::slide, v, parents[0], last});
    if (!partial && !slide) moves.push_back({Kind::compute, v, 0, last});
    moves.push_back({Kind::write, v, 0, last});
    moves.push_back({Kind::remove, v, 0, last});
    for (std::size_t k = slide ? 1 : 0; k < parents.size() && !partial; ++k)
      moves.push_back({Kind::remove, parents[k], 0, last});
  }
  if (rules.read_unused_inputs)
    for (Node v = 0; v < g.size(); ++v)
      if (g.is_input(v)) {
        moves.push_back({Kind::read, v});
        moves.push_back({Kind::remove, v});
      }
  return moves;
}

/// A certificate of that play, with the least M, and the names of its graph.
inline pebbling::Certificate plain_certificate(pebbling::Graph g, const pebbling::Rules& rules,
                                               const std::string& text = "any", const std::string& problem = "none") {
  pebbling::Certificate c{"plain", text, problem, rules, least_memory(g, rules), std::move(g), {}, {}};
  c.moves = plain_play(c.graph, rules);
  pebbling::Referee referee(c.graph, c.rules, 1000);
  for (const pebbling::Move& move : c.moves) referee.play(move);
  referee.finish();
  c.cost = referee.cost();
  c.M = std::max(c.M, c.cost.peak);
  return c;
}

}  // namespace redblue::test
