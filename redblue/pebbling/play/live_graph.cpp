#include "redblue/pebbling/play/live_graph.hpp"

#include <fmt/format.h>

#include <utility>

namespace redblue::pebbling {

Node LiveGraph::add_input(std::string name, double value) {
  values_.push_back(value);
  words_.push_back(0);
  return graph_.add_input(std::move(name));
}

Node LiveGraph::add(const Recipe& recipe, const std::string& kind) {
  std::string name = kind.empty() ? kind : fmt::format("{}.{}", kind, graph_.size());
  const Node v = recipe.op == Op::formula ? graph_.add_formula(recipe.parents, recipe.formula, std::move(name))
                                          : graph_.add(recipe.op, recipe.parents, std::move(name), recipe.k);
  std::vector<double> parents;
  parents.reserve(recipe.parents.size());
  for (const Node p : recipe.parents) parents.push_back(values_[p]);
  values_.push_back(graph_.evaluate(v, parents));
  words_.push_back(0);
  return v;
}

void LiveGraph::play(const Move& move) {
  referee_.play(move);
  moves_.push_back(move);
}

void LiveGraph::read(Node v) {
  play({.kind = Move::Kind::read, .node = v});
  ++words_[v];
}

void LiveGraph::compute(Node v, Node ends) {
  ++words_[v];
  if (ends != kNoNode && rules_.compute == Rules::Compute::slide && words_[ends] == 1) {
    play({.kind = Move::Kind::slide, .node = v, .parent = ends});
    words_[ends] = 0;
    return;
  }
  play({.kind = Move::Kind::compute, .node = v});
  if (ends != kNoNode) release(ends);
}

void LiveGraph::release(Node v) {
  if (--words_[v] == 0) play({.kind = Move::Kind::remove, .node = v});
}

}  // namespace redblue::pebbling
