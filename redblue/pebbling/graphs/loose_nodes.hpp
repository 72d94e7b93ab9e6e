#pragma once
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// A node of a file, whose parents may come after it.
struct LooseNode {
  std::string name{};
  std::vector<Node> parents{};
  Op op = Op::unknown;
  double k = 1;
  std::string formula{};
  bool output = false;
};

/// The graph of these, in an order in which parents come first: the order of the file as far as that goes. Nodes
/// without parents are inputs, unless they are constants. If none is an output, those that have parents and no children
/// are. Throws Error for a cycle, and names it.
Graph graph_of(std::vector<LooseNode> nodes);

}  // namespace redblue::pebbling
