#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "redblue/language/error.hpp"
#include "redblue/schedules/schedule.hpp"

/// What redblue claims of every schedule, as functions that throw where it does not hold: its counts are its formulas,
/// it keeps the rules of the game, its numbers are right on every machine, no tiling is better than the one it chooses.
/// redblue's own tests run them over the registry; run them over a schedule of your own before you trust it:
///
///   redblue::claims::check(redblue::describe<MySchedule>());
namespace redblue::claims {

/// A claim that does not hold. what() names the claim, the schedule, the case and the failure.
class Broken : public Error {
 public:
  using Error::Error;
};

/// Draws a whole number from `least` to `most`.
using Draw = MethodKind::Draw;

/// A problem so small that every word of it can be looked at, with ragged edges more often than not, and limits under
/// which a schedule is to choose a tiling.
struct Case {
  Sizes sizes;
  schedule::Limits limits;
};
Case any_case(const Draw& draw);
/// Widths of 1 to 8 bytes, every second time with padded rows.
Residence any_residence(const Draw& draw);
/// A pattern of intervals whose ends go on in uneven steps, for problems of these sizes.
std::shared_ptr<const Sequences> uneven_intervals(const Sizes& sizes, const Draw& draw);
/// Any tiling that the schedule may run with on these sizes; none if 100 draws found none.
std::optional<plan::Tiling> any_tiling(const plan::Schedule& s, const Sizes& sizes, const Draw& draw);
/// Makes of it a problem that asks for the method of the schedule, its numbers at random.
void ask_for(const plan::Schedule& s, Sizes& sizes, const Draw& draw);
/// Can the schedule solve a problem of these sizes? (A schedule for A2 = A3 gets such arrays.)
bool can_solve(const plan::Schedule& s, const Sizes& sizes);

/// What must hold of a schedule that runs with a tiling on a problem that it can solve.
struct Claim {
  std::string name;
  std::function<void(const plan::Schedule&, const Sizes&, const plan::Tiling&)> check;
};
std::span<const Claim> all();

/// The tiling that it chooses fits, and costs no more than `other`, at the M that `other` occupies, whatever the prices
/// in the limits.
void chooses_no_dearer_tiling(const plan::Schedule& s, const Sizes& sizes, schedule::Limits limits,
                              const plan::Tiling& other);

/// All claims, and the choice of tilings, on this many random cases. Throws Broken, with the smallest case that was
/// found, at the first that does not hold. The same seed gives the same cases.
void check(const plan::Schedule& s, int cases = 200, unsigned seed = 1);
/// One claim, on random cases; `claim` by its place in all(), or past the end for the choice of tilings.
void check(const plan::Schedule& s, std::size_t claim, int cases, unsigned seed);
/// A claim of your own, on the same random cases; `share` of a hundred makes their sizes smaller.
void check(const plan::Schedule& s, const Claim& claim, int cases, unsigned seed, index_t share = 100);

}  // namespace redblue::claims
