#include "redblue/pebbling/referee.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace redblue::pebbling {
namespace {

std::string_view verb_of(Move::Kind kind) {
  constexpr std::array<std::string_view, 6> kVerbs = {"read", "write", "compute", "slide", "update", "remove"};
  return kVerbs[static_cast<std::size_t>(kind)];
}

}  // namespace

Referee::Referee(const Graph& g, Rules rules, std::size_t M) : graph_(g), rules_(rules), M_(M) {
  check(rules_);
  red_.resize(rules_.processors);
  see_new_nodes();
}

void Referee::see_new_nodes() {
  const bool partial = rules_.compute == Rules::Compute::partial;
  while (nodes_.size() < graph_.size()) {
    const auto v = static_cast<Node>(nodes_.size());
    State& state = nodes_.emplace_back();
    state.blue = state.computed = graph_.is_input(v);
    if (!partial) continue;
    for (const Node p : graph_.parents(v))
      if (open_edges_.insert(edge(p, v)).second) {
        ++state.edges_in;
        ++nodes_[p].edges_out;
      }
  }
}

void Referee::play(const Move& move) {
  if (nodes_.size() < graph_.size()) see_new_nodes();
  if (move.node >= nodes_.size())
    throw IllegalMove(fmt::format("move {}: {} node {}: the graph has {} nodes", moves_ + 1, verb_of(move.kind),
                                  move.node, nodes_.size()),
                      moves_ + 1);
  if (move.processor >= rules_.processors)
    fail(move, fmt::format("there is no processor {}; the game has {}", move.processor, rules_.processors));
  switch (move.kind) {
    case Move::Kind::read:
      read(move);
      break;
    case Move::Kind::write:
      write(move);
      break;
    case Move::Kind::compute:
      compute(move);
      break;
    case Move::Kind::slide:
      slide(move);
      break;
    case Move::Kind::update:
      update(move);
      break;
    case Move::Kind::remove:
      remove(move);
      break;
  }
  ++moves_;
}

void Referee::read(const Move& move) {
  if (!nodes_[move.node].blue) fail(move, "it has no blue pebble");
  require_room(move);
  put_red(move);
  nodes_[move.node].was_read = true;
  ++cost_.reads;
}

void Referee::write(const Move& move) {
  if (!is_red(move.node, move.processor)) fail(move, "it has no red pebble");
  nodes_[move.node].blue = true;
  ++cost_.writes;
}

void Referee::compute(const Move& move) {
  if (rules_.compute == Rules::Compute::partial && !graph_.parents(move.node).empty())
    fail(move, "with partial computations edges are computed, by update");
  require_computable(move);
  require_parents(move);
  require_room(move);
  put_red(move);
  nodes_[move.node].computed = true;
  ++cost_.computed;
}

void Referee::slide(const Move& move) {
  if (rules_.compute != Rules::Compute::slide)
    fail(move, fmt::format("the rules '{}' do not allow it", to_text(rules_)));
  require_computable(move);
  if (!has_parent(move.node, move.parent)) fail(move, fmt::format("node {} is not a parent of it", move.parent));
  require_parents(move);
  take_red(move.parent, move.processor);
  put_red(move);
  nodes_[move.node].computed = true;
  ++cost_.computed;
}

void Referee::update(const Move& move) {
  if (rules_.compute != Rules::Compute::partial)
    fail(move, fmt::format("the rules '{}' do not allow it", to_text(rules_)));
  if (!open_edges_.contains(edge(move.parent, move.node)))
    fail(move, has_parent(move.node, move.parent)
                   ? fmt::format("its edge from {} is computed already", label(graph_, move.parent))
                   : fmt::format("node {} is not a parent of it", move.parent));
  State& state = nodes_[move.node];
  State& parent = nodes_[move.parent];
  if (parent.edges_in > 0) fail(move, fmt::format("{} is not whole yet", label(graph_, move.parent)));
  if (parent.red == 0) fail(move, fmt::format("{} is not red", label(graph_, move.parent)));
  if (state.red == 0 && state.blue) fail(move, "it is partly computed and blue only; it must be read first");
  require_room(move);
  open_edges_.erase(edge(move.parent, move.node));
  --parent.edges_out;
  if (--state.edges_in == 0) state.computed = true;
  put_red(move);
  state.blue = false;
  ++cost_.computed;
}

void Referee::remove(const Move& move) {
  const State& state = nodes_[move.node];
  if (!is_red(move.node, move.processor)) fail(move, "it has no red pebble");
  if (rules_.compute == Rules::Compute::partial && !state.blue) {
    if (state.edges_in > 0) fail(move, "it is partly computed and not blue");
    if (state.edges_out > 0) fail(move, "it is not blue, and an edge from it is not computed yet");
  }
  take_red(move.node, move.processor);
}

void Referee::finish() const {
  const auto missing = [&](Node v, std::string_view what) {
    throw IllegalMove(fmt::format("the end, after {} moves: {} {}", moves_, label(graph_, v), what), moves_);
  };
  for (Node v = 0; v < graph_.size(); ++v) {
    if (graph_.is_output(v) && !is_blue(v)) missing(v, "is an output and has no blue pebble");
    if (graph_.is_output(v) && !is_computed(v)) missing(v, "is an output and is not whole");
    if (rules_.read_unused_inputs && graph_.is_input(v) && (v >= nodes_.size() || !nodes_[v].was_read))
      missing(v, "is an input and was never read");
  }
}

bool Referee::is_computed(Node v) const {
  return v < nodes_.size() ? nodes_[v].computed : v < graph_.size() && graph_.is_input(v);
}

void Referee::require_computable(const Move& move) const {
  if (graph_.is_input(move.node)) fail(move, "it is an input");
  if (!rules_.recompute && nodes_[move.node].computed) fail(move, "it was computed before");
}

void Referee::require_parents(const Move& move) const {
  for (const Node p : graph_.parents(move.node))
    if (!is_red(p, move.processor)) fail(move, fmt::format("its parent {} is not red", label(graph_, p)));
}

void Referee::require_room(const Move& move) const {
  if (!is_red(move.node, move.processor) && red_[move.processor] >= M_)
    fail(move, fmt::format("all {} red pebbles are in use", M_));
}

void Referee::put_red(const Move& move) {
  if (is_red(move.node, move.processor)) return;
  nodes_[move.node].red |= std::uint64_t{1} << move.processor;
  cost_.peak = std::max(cost_.peak, ++red_[move.processor]);
}

void Referee::take_red(Node v, std::size_t processor) {
  nodes_[v].red &= ~(std::uint64_t{1} << processor);
  --red_[processor];
}

bool Referee::has_parent(Node v, Node parent) const {
  const auto parents = graph_.parents(v);
  return std::ranges::find(parents, parent) != parents.end();
}

void Referee::fail(const Move& move, const std::string& why) const {
  std::string who = label(graph_, move.node);
  if (rules_.processors > 1) who += fmt::format(" on processor {}", move.processor);
  throw IllegalMove(fmt::format("move {}: {} {}: {}", moves_ + 1, verb_of(move.kind), who, why), moves_ + 1);
}

}  // namespace redblue::pebbling
