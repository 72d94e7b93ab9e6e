#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "command_line.hpp"
#include "json.hpp"
#include "redblue/certificate.hpp"
#include "redblue/verify.hpp"

namespace redblue::cli {

/// --tolerance: exact attention, or the cheapest polynomial whose error is proved.
struct Decision {
  double tolerance = 0;
  std::shared_ptr<const Polynomial> polynomial;  ///< null: exact attention
  std::optional<index_t> degree;                 ///< the least that proves the tolerance
  Words exact_words;                             ///< without those that write lse
  std::optional<Words> polynomial_words;
  std::string reason;
};

/// Throws InvalidProblem unless the tolerance is a number above 0.
void require_tolerance(double tolerance);
/// `least` proves the tolerance for scores up to `range`; `plan` makes the plan of a polynomial, and what it throws is
/// a reason for exact attention.
Decision decide(double tolerance, double range, std::optional<Polynomial> least, const plan::Plan& exact,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan);
Json to_json(const Decision& d);

/// The file that scripts/check_certificate.py checks again: docs/certificates.md has its fields.
Json to_json(const Certificate& c, const Problem& p, std::optional<double> tolerance);
void print_text(const Certificate& c);

/// What --verify measured, beside what is proved, in the head where it comes closest.
struct MeasuredError {
  double measured = 0, proved = 0, rounding = 0;  ///< in units of the head's largest |V|
  bool ok = true;                                 ///< in every head, measured <= proved + rounding
};
MeasuredError measured_error(const Certificate& c, const Nearness& n);
Json to_json(const MeasuredError& m);

}  // namespace redblue::cli
