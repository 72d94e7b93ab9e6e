#include "redblue/tolerance.hpp"

#include <fmt/format.h>

#include "redblue/kernel/polynomial.hpp"
#include "redblue/plan/regimes.hpp"

namespace redblue {

namespace {

/// Of some ranges the widest that the highest degree proves, whatever the values are; nothing if it proves none.
std::optional<double> widest_range(double tolerance) {
  for (const double range : {32.0, 24.0, 16.0, 12.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.2, 0.1})
    if (near_exp(Fit::minimax, kernel::Monomials::kMostDegree, range).output_error() <= tolerance) return range;
  return std::nullopt;
}

/// Why the plan of a polynomial moves no fewer words than exact attention.
std::string why_no_fewer(const plan::Plan& plan) {
  if (plan.row().schedule == "polynomial") return "neither moves a word more than once";
  const Words rows = monomials(plan.problem.d, plan.problem.approximation->degree());
  return fmt::format("the state of that polynomial, {} words, does not fit in fast memory",
                     (rows * (Words(plan.problem.d_v) + 1)).str());
}

}  // namespace

Decision decide(double tolerance, double range, std::optional<Polynomial> least, const plan::Plan& exact,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan) {
  Decision d;
  d.tolerance = tolerance;
  d.exact_words = plan::words_without_lse(exact.io(), exact.problem);
  const std::string wanted = fmt::format("{:.3g} max|V| for scores up to {:.4g}", tolerance, range);
  if (!least) {
    const std::optional<double> most = widest_range(tolerance);
    d.reason = fmt::format(
        "exact attention: no polynomial of degree {} or less proves {}; {}", kernel::Monomials::kMostDegree, wanted,
        most ? fmt::format("degree {} would for scores up to {:g}", kernel::Monomials::kMostDegree, *most)
             : "its coefficients, in doubles, are not precise enough");
    return d;
  }
  d.degree = least->degree();
  auto polynomial = std::make_shared<const Polynomial>(std::move(*least));
  std::optional<plan::Plan> made;
  try {
    made = plan(polynomial);
  } catch (const Error& e) {
    d.reason =
        fmt::format("exact attention: the polynomial of degree {}, the least that proves {}, does not run here: {}",
                    *d.degree, wanted, e.what());
    return d;
  }
  d.polynomial_words = made->io().total();
  if (d.exact_words <= *d.polynomial_words) {
    d.reason = fmt::format(
        "exact attention is {}: it moves {} words, and the polynomial of degree {}, the least that "
        "proves {}, {}; {}",
        d.exact_words < *d.polynomial_words ? "cheaper" : "as cheap", d.exact_words.str(), *d.degree, wanted,
        d.polynomial_words->str(), why_no_fewer(*made));
  } else {
    d.reason = fmt::format("degree {} is the least that proves {}; it moves {} words, exact attention {}", *d.degree,
                           wanted, d.polynomial_words->str(), d.exact_words.str());
    d.polynomial = std::move(polynomial);
  }
  return d;
}

}  // namespace redblue
