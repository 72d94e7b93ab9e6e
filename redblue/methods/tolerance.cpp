#include "redblue/methods/tolerance.hpp"

#include <fmt/format.h>

#include <cmath>

#include "redblue/methods/kernels/polynomial.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/regimes.hpp"
#include "redblue/methods/row_tolerance.hpp"

namespace redblue {

namespace {

/// The widest range that the highest degree proves, whatever the values are, rounded down; nothing below 0.01.
std::optional<double> widest_range(double tolerance) {
  const auto proves = [&](double range) {
    return near_exp(Fit::minimax, kernel::Monomials::kMostDegree, range).output_error() <= tolerance;
  };
  double below = 0.01, above = 64;
  if (!proves(below)) return std::nullopt;
  if (proves(above)) return above;
  while (above > 1.005 * below) {
    const double middle = std::sqrt(below * above);
    (proves(middle) ? below : above) = middle;
  }
  return std::floor(below * 100) / 100;
}

/// What the plan of a polynomial and that of exact attention are compared by: what they were made for. Words are
/// without lse, which a polynomial does not have.
struct Price {
  std::optional<double> seconds;  ///< modelled, of a plan of least time
  Words cost, words;
  bool weighted = false;  ///< are some words dearer than others?

  bool of_words() const { return !seconds && !weighted; }
  std::string text() const {
    if (seconds) return fmt::format("takes {:.3g} ms of modelled time", 1e3 * *seconds);
    if (weighted)
      return fmt::format("costs {:.9g} at the given widths and write cost", cost.to_double() / plan::kCostUnit);
    return fmt::format("moves {} words", words.str());
  }
};
Price price_of(const plan::Plan& plan) {
  Price price;
  if (plan.row().time) price.seconds = plan.row().time->total_s;
  const Io io = plan::without_lse(plan.io(), plan.problem);
  price.cost = plan::cost_of(io, plan.options, plan.problem.op);
  price.words = io.total();
  price.weighted = plan::is_priced(plan.options);
  return price;
}
bool is_less(const Price& a, const Price& b) {
  return a.seconds && b.seconds ? *a.seconds < *b.seconds : a.cost < b.cost;
}

/// Why the plan of a polynomial moves no fewer words than exact attention.
std::string why_no_fewer(const plan::Plan& plan) {
  if (plan.row().schedule == "polynomial") return "neither moves a word more than once";
  const Words rows = monomials(plan.problem.d, polynomial_of(plan.problem)->degree());
  return fmt::format("the state of that polynomial, {} words, does not fit in fast memory",
                     (rows * (Words(plan.problem.d_v) + 1)).str());
}

/// What would do where no polynomial proves the tolerance.
std::string tolerance_hint(double tolerance) {
  const std::optional<double> most = widest_range(tolerance);
  return most ? fmt::format("degree {} would for scores up to {:g}", kernel::Monomials::kMostDegree, *most)
              : "its coefficients, in doubles, are not precise enough";
}

/// A plan, or why there is none.
struct Trial {
  std::optional<plan::Plan> plan;
  std::string refused;
  std::optional<Price> price() const { return plan ? std::optional(price_of(*plan)) : std::nullopt; }
};
Trial plan_or_reason(const std::function<plan::Plan()>& plan) {
  try {
    return {plan(), ""};
  } catch (const Error& e) {
    return {std::nullopt, e.what()};
  }
}

/// Looks at one polynomial for all rows. The reason does not yet say what it is the reason for.
void look_at_one_polynomial(Decision& d, const std::optional<Price>& exact, double range,
                            std::optional<Polynomial> least,
                            const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan) {
  const std::string wanted = fmt::format("{:.3g} max|V| for scores up to {:.4g}", d.tolerance, range);
  if (!least) {
    d.reason = fmt::format("no polynomial of degree {} or less proves {}", kernel::Monomials::kMostDegree, wanted);
    return;
  }
  d.degree = least->degree();
  auto polynomial = std::make_shared<const Polynomial>(std::move(*least));
  const Trial made = plan_or_reason([&] { return plan(polynomial); });
  if (!made.plan) {
    d.reason = fmt::format("the polynomial of degree {}, the least that proves {}, does not run here: {}", *d.degree,
                           wanted, made.refused);
    return;
  }
  d.M = made.plan->options.M;
  const Price price = price_of(*made.plan);
  d.polynomial_words = price.words;
  d.polynomial_seconds = price.seconds;
  if (exact && !is_less(price, *exact)) {
    d.cheaper = is_less(*exact, price);
    d.reason =
        fmt::format("it {}, and the polynomial of degree {}, the least that proves {}, {}{}", exact->text(), *d.degree,
                    wanted, price.text(), price.of_words() ? "; " + why_no_fewer(*made.plan) : std::string());
  } else {
    d.reason = fmt::format("degree {} is the least that proves {}; it {}", *d.degree, wanted, price.text());
    d.polynomial = std::move(polynomial);
  }
}

/// Takes polynomials of each row where they move fewer words than what was decided, of plans of fewest words.
void look_at_rows(Decision& d, const std::optional<Price>& exact, const Problem& problem, const Certificate& norms,
                  const Inputs& inputs, const std::function<plan::Plan(const Problem&)>& plan,
                  const std::function<void()>& now_and_then) {
  const index_t pair = problem.d + problem.d_v, shared = problem.instances() * problem.n_k;
  const Words once = Words(shared) * pair + Words(problem.batch * problem.heads * problem.n_q) * pair;
  if ((exact && !exact->of_words()) || d.polynomial_seconds) return;
  std::optional<Words> fewest = d.polynomial != nullptr ? d.polynomial_words : d.exact_words;
  if (!problem.sizes().mask.from_first_key() || problem.dilation > 1 || problem.several() ||
      !problem.patterns.empty() || problem.modifiers().any() || problem.lse_required || (fewest && *fewest <= once))
    return;
  const RowAnswer answer =
      fewest_words_by_rows(problem, norms, lengths_of(problem, inputs, now_and_then), d.tolerance, fewest, d.M, plan);
  if (answer.rows == nullptr) {
    if (d.polynomial == nullptr) d.reason += "; nor does a polynomial for each row that proves it move fewer words";
    return;
  }
  const RowPolynomials& rows = *answer.rows;
  const std::string before = d.degree ? fmt::format("degree {} is the least of one polynomial for all", *d.degree)
                                      : fmt::format("no polynomial of degree {} or less proves it for all of them",
                                                    kernel::Monomials::kMostDegree);
  d.reason = fmt::format(
      "a polynomial of degree {} for each row up to {:.4g}{}{}, exact attention for {} of {} rows, proves {:.3g} "
      "max|V| and moves {} words at most; {}{}",
      rows.degree(), rows.range(), rows.centred ? ", keys less their mean" : "",
      rows.exact_keys > 0 ? fmt::format(", {} exact keys", rows.exact_keys) : "", answer.exact_rows,
      problem.batch * problem.heads * problem.n_q, d.tolerance, answer.words.str(), before,
      d.polynomial_words ? fmt::format(", which moves {}", d.polynomial_words->str()) : "");
  d.rows = answer.rows;
  d.polynomial = std::make_shared<const Polynomial>(rows.last());
  d.row_words = answer.words;
}

/// Says what the reason is for; throws where nothing is left.
Decision settled(Decision d, const Trial& exact) {
  if (d.polynomial != nullptr) {
    const std::optional<Price> price = exact.price();
    d.reason += !price              ? fmt::format("; exact attention does not run here: {}", exact.refused)
                : price->of_words() ? fmt::format(", exact attention {}", price->words.str())
                                    : fmt::format(", and exact attention {}", price->text());
    return d;
  }
  if (!d.degree) d.reason += "; " + tolerance_hint(d.tolerance);
  if (!d.exact_words)
    throw Unsupported(fmt::format("{}; and exact attention does not run here: {}", d.reason, exact.refused));
  const bool compared = d.polynomial_words.has_value();
  d.reason = fmt::format("exact attention{}: {}",
                         !compared   ? ""
                         : d.cheaper ? " is cheaper"
                                     : " is as cheap",
                         d.reason);
  return d;
}

Decision begun(double tolerance, const Trial& exact) {
  Decision d;
  d.tolerance = tolerance;
  if (!exact.plan) return d;
  d.exact_words = exact.price()->words;
  d.exact_seconds = exact.price()->seconds;
  d.M = exact.plan->options.M;
  return d;
}

}  // namespace

Decision decide(double tolerance, double range, std::optional<Polynomial> least,
                const std::function<plan::Plan()>& exact,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan) {
  const Trial trial = plan_or_reason(exact);
  Decision d = begun(tolerance, trial);
  look_at_one_polynomial(d, trial.price(), range, std::move(least), plan);
  return settled(std::move(d), trial);
}

Decision decide_with_rows(const Problem& problem, const Certificate& norms, const Inputs& inputs, double tolerance,
                          const std::function<plan::Plan()>& exact,
                          const std::function<plan::Plan(const Problem&)>& plan,
                          const std::function<void()>& now_and_then) {
  const Trial trial = plan_or_reason(exact);
  Decision d = begun(tolerance, trial);
  look_at_one_polynomial(
      d, trial.price(), norms.range(), least_polynomial(norms, tolerance),
      [&](const std::shared_ptr<const Polynomial>& polynomial) {
        Problem p = problem;
        p.approximation = polynomial;
        p.validate();
        Certificate c = norms;
        c.prove(*polynomial);
        for (const HeadCertificate& h : c.heads)
          if (!std::isfinite(h.rounding))
            throw Unsupported(fmt::format("nothing is proved of its roundings in {}", name_of(c.compute)));
        return plan(p);
      });
  look_at_rows(d, trial.price(), problem, norms, inputs, plan, now_and_then);
  return settled(std::move(d), trial);
}

}  // namespace redblue
