#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "redblue/core/polynomial.hpp"
#include "redblue/plan/planner.hpp"

namespace redblue {

/// What answers a tolerance: exact attention, or the polynomial of least degree whose error is proved.
struct Decision {
  double tolerance = 0;
  std::shared_ptr<const Polynomial> polynomial;  ///< null: exact attention
  std::optional<index_t> degree;                 ///< the least that proves the tolerance
  Words exact_words;                             ///< without those that write lse
  std::optional<Words> polynomial_words;
  std::string reason;
};

/// `least` proves the tolerance for scores up to `range`; `plan` makes the plan of a polynomial, and what it throws is
/// a reason for exact attention.
Decision decide(double tolerance, double range, std::optional<Polynomial> least, const plan::Plan& exact,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan);

}  // namespace redblue
