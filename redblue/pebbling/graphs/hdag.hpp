#pragma once
#include <string>
#include <string_view>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// Graphs in the format of HyperDAG_DB, version 1 (github.com/Algebraic-Programming/HyperDAG_DB): comments after %, a
/// line `M N P`, M lines that begin with a hyperedge, N lines that begin with a node, and P pins `hyperedge node`. A
/// hyperedge is the node of its first pin with its children. Weights are not read. Nodes with parents have unknown
/// operations. Where parents do not come first nodes are numbered anew, and have their numbers in the file as names.

/// Throws Error, with the line, for a text that is not in the format, and for a graph with a cycle.
Graph parse_hdag(std::string_view text);

/// Loses names, operations, and repeated parents. Throws Error unless the outputs are the nodes that have parents and
/// no children, which is what the format can say.
std::string to_hdag(const Graph& g);

}  // namespace redblue::pebbling
