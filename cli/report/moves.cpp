#include "report/moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace redblue::cli {

void print_moves(const pebbling::Graph& g, std::span<const pebbling::Move> moves) {
  using Kind = pebbling::Move::Kind;
  constexpr std::array<std::string_view, 6> kVerbs = {"read", "write", "compute", "slide", "update", "remove"};
  const bool several = std::ranges::any_of(moves, [](const pebbling::Move& m) { return m.processor > 0; });
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const pebbling::Move& m = moves[i];
    fmt::print("{:>5} {} {}", i + 1, kVerbs[static_cast<std::size_t>(m.kind)], label(g, m.node));
    if (m.kind == Kind::compute || m.kind == Kind::slide) {
      const pebbling::Op op = g.op(m.node);
      if (op == pebbling::Op::constant)
        fmt::print(" = {}", g.constant(m.node));
      else
        fmt::print(" = {}", op == pebbling::Op::formula ? g.formula(m.node) : name_of(op));
      for (const pebbling::Node p : g.parents(m.node)) fmt::print(" {}", label(g, p));
    }
    if (m.kind == Kind::slide) fmt::print(", on the pebble of {}", label(g, m.parent));
    if (m.kind == Kind::update) fmt::print(" by {}", label(g, m.parent));
    if (several) fmt::print(", processor {}", m.processor);
    fmt::print("\n");
  }
}

}  // namespace redblue::cli
