#pragma once
#include <rapidcheck.h>

#include <set>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::test {

/// A few nodes; each is an input, a constant, or has up to three parents, sometimes twice the same one. The last is an
/// output.
inline pebbling::Graph any_graph(int most = 9) {
  pebbling::Graph g;
  const int nodes = *rc::gen::inRange(2, most + 1);
  for (int v = 0; v < nodes; ++v) {
    const int parents = v == 0 ? 0 : *rc::gen::inRange(0, 4);
    std::vector<pebbling::Node> list;
    for (int k = 0; k < parents; ++k) list.push_back(*rc::gen::inRange<pebbling::Node>(0, g.size()));
    if (list.empty() && v > 0 && *rc::gen::inRange(0, 3) == 0)
      g.add(pebbling::Op::constant, list, "k" + std::to_string(v), 2);
    else if (list.empty())
      g.add_input("x" + std::to_string(v));
    else
      g.add(pebbling::Op::sum, list, "v" + std::to_string(v));
    if (v + 1 == nodes || *rc::gen::inRange(0, 4) == 0) g.mark_output(static_cast<pebbling::Node>(v));
  }
  return g;
}

}  // namespace redblue::test
