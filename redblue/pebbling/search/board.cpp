#include "redblue/pebbling/search/board.hpp"

#include <fmt/format.h>

#include "redblue/language/error.hpp"

namespace redblue::pebbling {

Board board_of(const Graph& g) {
  const std::vector<bool> needed = needed_nodes(g);
  Board b;
  std::vector<std::size_t> place(g.size());
  for (Node v = 0; v < g.size(); ++v) {
    if (!needed[v] || (g.is_input(v) && g.is_output(v))) continue;
    place[v] = b.nodes.size();
    b.nodes.push_back(v);
  }
  // An input that is an output is blue already. It is on the board only if another output needs it.
  const std::vector<std::vector<Node>> children = children_of(g);
  for (Node v = 0; v < g.size(); ++v) {
    if (!g.is_input(v) || !g.is_output(v)) continue;
    bool used = false;
    for (const Node c : children[v]) used = used || needed[c];
    if (!used) continue;
    place[v] = b.nodes.size();
    b.nodes.push_back(v);
  }
  if (b.size() > kMostOnBoard)
    throw Unsupported(
        fmt::format("outputs of this graph need {} nodes; the exact solver takes at most {}", b.size(), kMostOnBoard));
  b.parents.resize(b.size());
  b.children.resize(b.size());
  for (std::size_t v = 0; v < b.size(); ++v) {
    const Node node = b.nodes[v];
    (g.is_input(node) ? b.inputs : b.computed) |= only(v);
    if (g.is_output(node) && !g.is_input(node)) b.outputs |= only(v);
    for (const Node parent : different_parents(g, node)) {
      const std::size_t p = place[parent];
      b.parents[v] |= only(p);
      b.children[p] |= only(v);
      b.edges.push_back({p, v});
    }
    if (b.parents[v] == 0 && !g.is_input(node)) b.edges.push_back({v, v});
  }
  if (b.edges.size() > kMostOnBoard) return b;
  b.edges_in.resize(b.size());
  b.edges_out.resize(b.size());
  for (std::size_t e = 0; e < b.edges.size(); ++e) {
    if (b.edges[e].from != b.edges[e].to) b.edges_out[b.edges[e].from] |= only(e);
    b.edges_in[b.edges[e].to] |= only(e);
  }
  return b;
}

}  // namespace redblue::pebbling
