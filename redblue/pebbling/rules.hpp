#pragma once
#include <cstddef>
#include <string>

#include "redblue/pebbling/graphs/graph.hpp"

namespace redblue::pebbling {

/// The switches of the game. docs/pebbling.md says what each move asks for and costs under each of them.
struct Rules {
  enum class Compute {
    place,    ///< a computed node gets a pebble of its own, beside those of its parents (Hong & Kung 1981)
    slide,    ///< or it may take the pebble of exactly one of its parents
    partial,  ///< edges are computed one by one (Papp, Sobczyk & Yzelman, arXiv 2506.10854v2)
  };
  Compute compute = Compute::place;
  /// A node may be computed again. Partial computations exclude it.
  bool recompute = true;
  /// Inputs that no node needs must be read, too.
  bool read_unused_inputs = false;
  /// Each has fast memory of its own, with M red pebbles, and shares the blue ones. Partial computations are played by
  /// one.
  std::size_t processors = 1;

  friend bool operator==(const Rules&, const Rules&) = default;
};
inline constexpr std::size_t kMostProcessors = 64;

/// The least M with which a graph can be pebbled: the largest in-degree + 1 (place), the largest in-degree (slide),
/// 2 (partial), and at least 1. Nodes that no output needs do not count. With less the game is infeasible.
std::size_t least_memory(const Graph& g, const Rules& rules);
/// Throws CapacityError if M is less than that.
void check_memory(const Graph& g, const Rules& rules, std::size_t M);

/// Throws Error when switches contradict each other.
void check(const Rules& rules);

/// The rules in one line: "place", "slide" or "partial", then "once" without recomputation (which "partial" says
/// already), "unused-inputs" and "processors=P".
std::string to_text(const Rules& rules);
/// The rules that this line states. Throws Error.
Rules parse_rules(const std::string& text);

}  // namespace redblue::pebbling
