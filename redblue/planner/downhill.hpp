#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "redblue/planner/fastest.hpp"

/// Plans of least modelled time in some 0.1 ms: a search walks downhill where make_fastest_plan tries all tiles of all
/// schedules. O and lse of the problems are given, and the options ask for nothing but M and workspace.
namespace redblue {

/// A schedule that may be fastest for a kind of problems, and where the search for its tiles begins: places in the
/// lists of shares of M, multiples of queries and multiples of keys that candidates() tries; none: where all begin.
struct LikelySchedule {
  std::string_view schedule;
  std::optional<std::array<std::size_t, 3>> spot{};
};
/// The schedules that are fastest for most problems of one thread, or nearly so (docs/time-model.md has the shares):
/// others are compared only where none of these fits. The list is empty for problems of which none was measured.
std::vector<LikelySchedule> usual_contenders(const Problem& problem, const plan::Options& options,
                                             const TimeOptions& time);
/// The schedules that come close to the fastest one for this problem; none where nothing fits.
std::vector<LikelySchedule> contenders_for(const Problem& problem, const plan::Options& options,
                                           const TimeOptions& time);

/// What a search found, and what it walked for that.
struct Found {
  plan::Row row;
  std::size_t tilings, operations;
};
/// The fastest of these schedules and their tiles; nothing where none fits.
std::optional<Found> fastest_of(const std::vector<LikelySchedule>& contenders, const Problem& problem,
                                const plan::Options& options, const TimeOptions& time);

/// A walk of this many operations tells better tiles of a problem from worse ones. What several threads share must be
/// walked to its end.
std::size_t operations_that_tell(const Problem& problem, int threads);

}  // namespace redblue
