#pragma once
#include <optional>
#include <string>

#include "redblue/bounds/bound.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/problem/problem.hpp"

/// Where polynomial attention moves fewer words than exact attention, by plans of both
/// (docs/algorithms/polynomial.md#regimes).
namespace redblue::plan {

/// Words moved without those of the output lse, which approximations do not have: what else a schedule writes as lse is
/// its own affair, and counts.
Io without_lse(Io io, const Problem& problem);

/// Words of the best plan, without lse, and its schedule.
struct Moved {
  Words words;
  std::string schedule;
};

/// One point of the map. Words count reads and writes over batch and heads.
struct Regime {
  Problem problem;  ///< of exact attention
  Words M;          ///< words of fast memory
  index_t degree = 0;
  Words monomials;  ///< C(d + degree, degree), the rows of the state
  /// Each is empty where no schedule runs under M.
  std::optional<Moved> approximate, exact;
  /// The largest bound on schedules that keep one running state of all monomials: that one (status "restricted"), or
  /// the trivial one.
  bound::Bound bound;
  /// The least n_q = n_k from which polynomial attention moves no more words than exact attention at this M and degree,
  /// by bisection. It is empty where n_q and n_k differ, where either is refused under M, or where 2^32 is not enough.
  std::optional<index_t> break_even;

  bool approximation_wins() const { return approximate && (!exact || approximate->words < exact->words); }
};

/// The problem's own approximation is not looked at. Throws InvalidProblem for a problem that polynomial attention does
/// not solve, and unless 1 <= degree <= kernel::Monomials::kMostDegree.
Regime regime(const Problem& problem, Words M, index_t degree);

/// The largest range of scores in which every weight of the minimax polynomial of this degree is proved to be off by at
/// most the share `tolerance` of itself: rounded down to 3 digits, and at most 64, the largest range of near_exp.
/// Throws InvalidProblem unless 0 < tolerance < 1, and for degrees that regime() does not take.
double largest_range(index_t degree, double tolerance);

/// The least degree whose minimax polynomial is proved to be as near to e^z for scores up to `range`. Throws
/// InvalidProblem where schedules take none that is.
index_t least_degree(double range, double tolerance);

}  // namespace redblue::plan
