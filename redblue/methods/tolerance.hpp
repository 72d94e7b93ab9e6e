#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "redblue/methods/certificate.hpp"
#include "redblue/planner/planner.hpp"

namespace redblue {

/// What answers a tolerance: exact attention, or polynomial attention whose error is proved.
struct Decision {
  double tolerance = 0;
  std::shared_ptr<const Polynomial> polynomial;  ///< null: exact attention
  std::shared_ptr<const RowPolynomials> rows;    ///< in its place: each row has its polynomial, this one the last
  std::optional<index_t> degree;                 ///< the least of one polynomial for all rows that proves the tolerance
  std::optional<Words> exact_words;              ///< without those that write lse; nothing where it does not run
  std::optional<Words> polynomial_words;         ///< of that degree
  std::optional<double> exact_seconds, polynomial_seconds;  ///< modelled, of plans of least time
  bool cheaper = false;                                     ///< does exact attention cost less than that polynomial?
  std::optional<Words> row_words;                           ///< of `rows`, on the data at hand, at most
  Words M;                                                  ///< fast memory of the plans that were made; 0: none was
  std::string reason;

  /// For Problem::approximation.
  AnyApproximation approximation() const { return rows != nullptr ? AnyApproximation(rows) : polynomial; }
};

/// Plans are compared by what they were made for: words, words at a price, or modelled time.
/// `least` proves the tolerance for scores up to `range`; `plan` makes the plan of a polynomial, and what it throws is
/// a reason for exact attention. Where `exact` throws, as for a schedule of polynomials that is asked for by name, the
/// polynomial is taken at any cost, or what it threw is thrown.
Decision decide(double tolerance, double range, std::optional<Polynomial> least,
                const std::function<plan::Plan()>& exact,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan);

/// decide() for tensors: takes polynomials of each row in place of its answer where they prove the tolerance for
/// `problem`, which has no approximation, and move fewer words, if plans are of fewest words. `norms` are of it, `plan`
/// makes their plan; now_and_then is that of norms_of.
Decision decide_with_rows(const Problem& problem, const Certificate& norms, const Inputs& inputs, double tolerance,
                          const std::function<plan::Plan()>& exact,
                          const std::function<plan::Plan(const Problem&)>& plan,
                          const std::function<void()>& now_and_then = {});

}  // namespace redblue
