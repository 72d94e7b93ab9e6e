#pragma once
#include <optional>
#include <string_view>

#include "redblue/language/cost.hpp"
#include "redblue/problem/sizes.hpp"

namespace redblue::schedule {

/// What a planner, a run and a test must know of a schedule beside its costs. A schedule S names what differs from
/// these defaults: static constexpr Traits traits{.masks = true};
struct Traits {
  bool stable = true;             ///< false: overflows on large scores; ranked, chosen only when asked for by name
  bool keeps_scores = false;      ///< keeps scores, not queries or keys, in fast memory (for the planner's sentence)
  bool windows = false;           ///< for masks with a left edge: of others the planner does not speak
  bool narrow = false;            ///< for rows that see few keys: without a left edge or packed sequences the planner
                                  ///< speaks of it only where it is chosen
  bool own_softmax = false;       ///< gradients: forms softmax itself and reads no O, and lse at most for dK and dV;
                                  ///< chosen only where a forward pass of ours made them, or by name
  bool masks = false;             ///< runs where a mask hides keys
  bool patterns = false;          ///< under masks that are no interval, too
  bool intervals = false;         ///< with patterns: is given an interval mask in place of uneven intervals
  bool hides = false;             ///< under patterns, by forming all pairs of an interval mask that leaves out none;
                                  ///< those that are not there are hidden (Masked, parts/cores.hpp)
  bool lists_pairs = false;       ///< goes over lists of pairs, under any mask; without a pattern the planner speaks of
                                  ///< it only where it is chosen, and tries it only where lists are short and fast
                                  ///< memory is small
  bool modifiers = false;         ///< takes a bias, softcap, ALiBi, sinks and dropout (masks/modifiers.hpp)
  bool any_score = false;         ///< knows score functions besides softmax
  bool rewrites_outputs = false;  ///< revisits an output: a run holds it in the arithmetic type until the end
  bool lse_gradient = false;      ///< takes the gradient of lse (Sizes::lse_gradient)
  bool accumulates = false;       ///< adds to given outputs (Sizes::accumulate)
  bool printed = false;           ///< a published algorithm as printed: its tiling may not fit M; never chosen
  bool shared_source = false;     ///< for A2 = A3 only
  std::optional<Score> only_score{};      ///< for this score function only
  MethodKind method = MethodKind::exact;  ///< what it computes: others than exact attention for problems that ask
  bool by_rows = false;  ///< with numbers of its own for each row (Approximation::by_rows), and only then
  int products = 0;      ///< n_q x n_k products of attention (backward: 5, or 7 in two passes); 0: not said
};

/// What a run costs, where it is known what its schedule decided.
struct Costs {
  Io io;
  Words footprint, macs;
};

/// What most schedules leave as it is: they derive from this.
struct Defaults {
  static constexpr std::string_view label{};  ///< what papers or the theory notes call it; --schedule takes it too
  /// Why it cannot solve a problem of these sizes, in words that follow its name; nothing if it can.
  static std::optional<std::string_view> unsupported(const Sizes&) { return std::nullopt; }
  /// The bound for some schedules only (status "restricted") that binds this one at these sizes; empty: none.
  static constexpr std::string_view restricted_bound(const Sizes&) { return {}; }
  /// What a user should know of its numbers with this tiling; the planner says it with its choice. Empty: nothing.
  static constexpr std::string_view caveat(const Sizes&, const auto&) { return {}; }
  /// May it run with this tiling? Some tilings make sense for certain values only.
  static constexpr bool allows(const Sizes&, const auto&) { return true; }
  /// Does it need all queries in one core (parts/cores.hpp)?
  static constexpr bool one_core = false;
  /// May that core have several parts (problem/sequences.hpp)? It then goes over them itself.
  static constexpr bool knows_parts = false;
  /// Is it given the tilings of all cores (Tilings, parts/tile_sizes.hpp), for parts of its own? It then chooses them,
  /// too.
  static constexpr bool takes_tilings = false;
  /// Does its choice of tiles count the words of a bias under a mask?
  static constexpr bool counts_bias = false;
  /// Does it write this output at these sizes?
  static constexpr bool writes(const Sizes&, SlowArray) { return true; }
  /// The words of a list of a pattern's pairs (pairs/index_words.hpp), for a schedule that runs under patterns.
  static constexpr IndexWords index(const Sizes&, const auto&) { return {}; }
  /// Does it need this array of its workspace at these sizes?
  static constexpr bool needs(const Sizes&, SlowArray) { return true; }
  /// How many copies of a partial array (parts/workspace.hpp) lie below each other in the workspace.
  static constexpr index_t copies(const auto&) { return 1; }
};

}  // namespace redblue::schedule
