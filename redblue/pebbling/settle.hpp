#pragma once
#include <string>
#include <vector>

#include "redblue/pebbling/board.hpp"
#include "redblue/pebbling/express.hpp"

namespace redblue::pebbling {

/// A word that is to hold what a symbol says.
struct Target {
  Symbol value;
  std::string name{};   ///< of its node
  Node node = kNoNode;  ///< that it holds in the end
};

/// Computes the targets from what `from` holds, one node a word. Those of `ending` are old values that nobody needs
/// beyond these targets: each is released after its last use, or gives its pebble to the node that uses it last, and
/// leaves `from`. Where targets stand in each other's way, as the words of a softmax that all need all old ones do,
/// parts that several targets have get nodes of their own for that time.
void settle(Board& board, std::vector<Target>& targets, Holders& from, const std::vector<Expr>& ending);

}  // namespace redblue::pebbling
