#pragma once
#include <optional>
#include <string>

#include "options/options.hpp"
#include "redblue/levels/nest.hpp"

namespace redblue::cli {

/// --levels: the memories of a nest, the slowest first.
struct LevelsOptions {
  std::optional<std::string> levels;

  void add_to(const Command& command);
  bool given() const { return levels.has_value(); }
  /// The nest for this problem. Throws InvalidProblem for levels that cannot be read, and for options that are about
  /// one fast memory; what make_nest throws.
  levels::Nest nest(const ProblemOptions& problem) const;
};

}  // namespace redblue::cli
