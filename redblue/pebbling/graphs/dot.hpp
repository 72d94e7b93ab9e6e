#pragma once
#include <string>
#include <string_view>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// Graphs in the language of Graphviz. Nodes have attributes of redblue: op and k as in Op, formula, output=true, and
/// their name as label; a node's parents are in the order of its edges.

/// A digraph of nodes and edges, without subgraphs and ports. Attributes that redblue does not know are passed over. A
/// node that has no op is unknown, one that has no parents an input. If no node says output=true, the outputs are the
/// nodes that have parents and no children. Throws Error, with the line, for other texts, and for a graph with a cycle.
Graph parse_dot(std::string_view text);

/// All of the graph: parse_dot() gives it back.
std::string to_dot(const Graph& g);

}  // namespace redblue::pebbling
