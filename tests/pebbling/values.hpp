#pragma once
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::test {

/// The values of a graph by the names of its nodes, for inputs that are a function of their names.
class Values {
 public:
  explicit Values(const pebbling::Graph& g) {
    std::vector<double> values;
    for (pebbling::Node v = 0; v < g.size(); ++v) {
      std::vector<double> from;
      for (const pebbling::Node p : g.parents(v)) from.push_back(values[p]);
      values.push_back(g.is_input(v) ? input(g.name(v)) : g.evaluate(v, from));
      if (!g.name(v).empty()) repeated_ += !by_name_.emplace(g.name(v), values.back()).second;
      if (g.is_output(v)) outputs_.push_back(values.back());
    }
  }
  /// From -1 to 1.
  static double input(const std::string& name) {
    std::uint32_t hash = 7;
    for (const char c : name) hash = hash * 1000003U + static_cast<unsigned char>(c);
    hash ^= hash >> 15;
    return static_cast<double>(hash * 2654435761U) / 2147483648.0 - 1;
  }
  static double input(const char* name, std::size_t i, std::size_t j) {
    return input(fmt::format("{}[{},{}]", name, i, j));
  }
  double at(const std::string& name) const { return by_name_.at(name); }
  double at(const char* name, std::size_t i, std::size_t j) const { return at(fmt::format("{}[{},{}]", name, i, j)); }
  bool has(const char* name, std::size_t i, std::size_t j) const {
    return by_name_.contains(fmt::format("{}[{},{}]", name, i, j));
  }
  /// Of all outputs, in the order of the nodes.
  const std::vector<double>& outputs() const { return outputs_; }
  int repeated_names() const { return repeated_; }

 private:
  std::map<std::string, double> by_name_;
  std::vector<double> outputs_;
  int repeated_ = 0;
};

}  // namespace redblue::test
