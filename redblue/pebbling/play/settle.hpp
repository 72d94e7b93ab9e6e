#pragma once
#include <string>
#include <vector>

#include "redblue/pebbling/play/express.hpp"
#include "redblue/pebbling/play/live_graph.hpp"

namespace redblue::pebbling {

/// A word that is to hold what a symbol says.
struct Target {
  Symbol value;
  std::string kind{};   ///< of its word
  Node node = kNoNode;  ///< that it holds in the end
};

/// Computes the targets from what `from` holds, one node a word. Nobody needs the old values in `ending`
/// beyond these targets: each is released after its last use, or gives its pebble to the node that uses it last, and
/// leaves `from`. Where targets stand in each other's way, as the words of a softmax that all need all old ones do,
/// parts that several targets have get nodes of their own for that time.
void settle(LiveGraph& live, std::vector<Target>& targets, Holders& from, const std::vector<Expr>& ending);

}  // namespace redblue::pebbling
