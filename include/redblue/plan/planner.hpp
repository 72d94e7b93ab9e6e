#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/bound/bound.hpp"
#include "redblue/core/cost.hpp"
#include "redblue/plan/schedules.hpp"
#include "redblue/problem.hpp"
#include "redblue/schedule/limits.hpp"

namespace redblue::plan {

/// Row::cost is in thousandths, the resolution of Options::write_cost.
inline constexpr int kCostUnit = 1000;

struct Options {
  Words M;                                   ///< words of fast memory
  bool quadratic_workspace = true;           ///< may a schedule keep n_q x n_k scores in slow memory?
  Words reserve = 0;                         ///< words of M to leave free (2: strict Hong-Kung play)
  bool double_buffer = false;                ///< leave room for second buffers of what the innermost loop brings in
  schedule::Multiples multiple{};            ///< tile sizes must be multiples of these
  std::array<index_t, kSlowArrays> width{};  ///< bytes per word of each array; all 0: count words
  double write_cost = 1;                     ///< what a write costs, in reads (resolution 1/1000)
  std::string schedule;                      ///< plan this one only, if not empty
};

/// One line of the ranked table. All counts are totals over batch and heads.
struct Row {
  std::string_view schedule;
  bool stable = true;  ///< false: overflows on large scores; ranked, never chosen unless asked for by name
  ForwardChoice choice;
  std::vector<schedule::Knob> tiling;
  Io io;
  Words footprint;  ///< peak resident words
  Words prefetch;   ///< words of second buffers, if double buffering was asked for
  Words workspace;  ///< extra words of slow memory, per instance in flight
  Words flops;      ///< 2 x multiply-adds of the two products
  Words cost;       ///< what was minimised: words, or bytes and weighted writes as the options say (in 1/kCostUnit)
  std::optional<Words> bytes;   ///< moved, when widths were given
  std::optional<double> ratio;  ///< I/O over the best proved bound
};

/// A schedule that is not in the table, and why.
struct Refusal {
  std::string_view schedule;
  std::string why;
  std::optional<Words> smallest_M;  ///< words that would do
};

struct Plan {
  Problem problem;
  Options options;
  std::vector<bound::Bound> bounds;
  bound::Bound bound;     ///< the largest proved one
  std::vector<Row> rows;  ///< cheapest first
  std::vector<Refusal> refused;
  std::size_t chosen = 0;
  std::string reason;  ///< one sentence

  const Row& row() const { return rows[chosen]; }
};

/// Ranks every schedule with its best tiling under M. Throws InvalidProblem for sizes or options that make no sense,
/// and CapacityError with the smallest M of each schedule when none fits.
Plan make_plan(const Problem& problem, const Options& options);

/// Names of all forward schedules.
std::vector<std::string_view> schedule_names();

}  // namespace redblue::plan
