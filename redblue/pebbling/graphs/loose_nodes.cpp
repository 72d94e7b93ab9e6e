#include "redblue/pebbling/graphs/loose_nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

std::string loose_label(const std::vector<LooseNode>& nodes, Node v) {
  return nodes[v].name.empty() ? fmt::format("{}", v) : file::printable(nodes[v].name);
}

/// A cycle among the nodes that are not placed, each of which has a parent that is not.
[[noreturn]] void throw_cycle(const std::vector<LooseNode>& nodes, const std::vector<bool>& placed) {
  const auto parent_of = [&](Node v) {
    return *std::ranges::find_if(nodes[v].parents, [&](Node p) { return !placed[p]; });
  };
  auto v = static_cast<Node>(std::ranges::find(placed, false) - placed.begin());
  for (std::size_t k = 0; k < nodes.size(); ++k) v = parent_of(v);  // now it is on a cycle
  constexpr std::size_t kShown = 8;
  std::string cycle = loose_label(nodes, v);
  std::size_t length = 0;
  for (Node u = parent_of(v);; u = parent_of(u)) {
    if (++length < kShown || u == v) cycle = fmt::format("{} -> {}", loose_label(nodes, u), cycle);
    if (length == kShown && u != v) cycle.insert(0, "... -> ");
    if (u == v) break;
  }
  throw Error(fmt::format("the graph has a cycle of {} node{}: {}", length, length == 1 ? "" : "s", cycle));
}

}  // namespace

Graph graph_of(std::vector<LooseNode> nodes) {
  std::vector<std::vector<Node>> children(nodes.size());
  std::vector<std::size_t> missing(nodes.size());
  std::priority_queue<Node, std::vector<Node>, std::greater<>> ready;
  bool any_output = false;
  for (Node v = 0; v < nodes.size(); ++v) {
    if (nodes[v].op == Op::unknown) {  // a function of a set of parents
      std::ranges::sort(nodes[v].parents);
      const auto repeated = std::ranges::unique(nodes[v].parents);
      nodes[v].parents.erase(repeated.begin(), repeated.end());
    }
    any_output |= nodes[v].output;
    missing[v] = nodes[v].parents.size();
    for (const Node p : nodes[v].parents) children[p].push_back(v);
    if (missing[v] == 0) ready.push(v);
  }
  Graph g;
  std::vector<Node> number(nodes.size());
  std::vector<bool> placed(nodes.size());
  while (!ready.empty()) {
    const Node v = ready.top();
    ready.pop();
    LooseNode& node = nodes[v];
    std::vector<Node> parents = node.parents;
    for (Node& p : parents) p = number[p];
    if (node.op == Op::unknown) std::ranges::sort(parents);
    if (parents.empty() && node.op != Op::constant)
      number[v] = g.add_input(node.name);
    else if (node.op == Op::formula)
      number[v] = g.add_formula(parents, node.formula, node.name);
    else
      number[v] = g.add(node.op, parents, node.name, node.k);
    if (any_output ? node.output : children[v].empty() && !parents.empty()) g.mark_output(number[v]);
    placed[v] = true;
    for (const Node c : children[v])
      if (--missing[c] == 0) ready.push(c);
  }
  if (g.size() < nodes.size()) throw_cycle(nodes, placed);
  return g;
}

}  // namespace redblue::pebbling
