#include "certificate.hpp"

#include <fmt/format.h>

#include <cmath>

#include "redblue/kernel/polynomial.hpp"
#include "redblue/plan/regimes.hpp"

namespace redblue::cli {

void require_tolerance(double tolerance) {
  if (!(tolerance > 0 && tolerance < 1))
    throw InvalidProblem(fmt::format("--tolerance {}: give a number above 0 and below 1, as in 1e-3{}", tolerance,
                                     tolerance == 0 ? "; attention without --tolerance is exact" : ""));
}

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

Json to_json(const Decision& d) {
  return {{"tolerance", d.tolerance},
          {"method", d.polynomial ? "polynomial" : "exact"},
          {"degree", d.degree ? Json(*d.degree) : Json(nullptr)},
          {"exact_words", to_json(d.exact_words)},
          {"polynomial_words", d.polynomial_words ? Json(to_json(*d.polynomial_words)) : Json(nullptr)},
          {"reason", d.reason}};
}

namespace {

/// JSON knows no infinity.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

/// The masks that the script knows, to compare o with exact attention.
Json mask_of(const Problem& p) {
  const bool other = p.window_left || p.window_right || p.prefix > 0 || p.several() || !p.patterns.empty();
  if (other) return "other";
  if (p.causal) return {{"causal_offset", p.causal_offset.value_or(p.n_k - p.n_q)}};
  return "none";
}

}  // namespace

Json to_json(const Certificate& c, const Problem& p, std::optional<double> tolerance) {
  const bool polynomial = !c.polynomial.c.empty();
  Json heads = Json::array();
  for (const HeadCertificate& h : c.heads) {
    Json j{{"batch", h.batch},         {"head", h.head},     {"largest_q", h.largest_q}, {"largest_k", h.largest_k},
           {"largest_v", h.largest_v}, {"spread", h.spread}, {"range", h.range}};
    if (polynomial) {
      j["weight_error"] = number(h.weight_error);
      j["output_error"] = number(h.output_error);
      j["rounding"] = number(h.rounding);
    }
    heads.push_back(std::move(j));
  }
  Json j{{"schema", "redblue.certificate/1"},
         {"method", polynomial ? "polynomial" : "exact"},
         {"batch", p.batch},
         {"heads", p.heads},
         {"kv_heads", p.kv_heads.value_or(p.heads)},
         {"n_q", p.n_q},
         {"n_k", p.n_k},
         {"d", p.d},
         {"d_v", p.d_v},
         {"scale", c.scale},
         {"mask", mask_of(p)},
         {"compute_dtype", std::string(name_of(c.compute))},
         {"output_dtype", std::string(name_of(c.stored))},
         {"tolerance", tolerance ? Json(*tolerance) : Json(nullptr)},
         {"range", c.range()}};
  if (polynomial) {
    j["degree"] = c.polynomial.degree();
    j["coefficients"] = c.polynomial.c;
    j["output_error"] = number(c.output_error());
  }
  j["per_head"] = std::move(heads);
  return j;
}

void print_text(const Certificate& c) {
  if (!std::isfinite(c.output_error())) {
    fmt::print(
        "certificate: nothing is proved: scores may reach {:.4g}, where weights may be off by all of themselves; give "
        "--tolerance, or --approximate with that range\n",
        c.range());
    return;
  }
  fmt::print(
      "certificate: no score beyond {:.4g}; each weight within {:.3g} of itself, o within {:.3g} max|V| of exact "
      "attention; roundings add at most {:.3g} max|V|\n",
      c.range(), c.weight_error(), c.output_error(), c.rounding());
}

MeasuredError measured_error(const Certificate& c, const Nearness& n) {
  MeasuredError m;
  double nearest = -1;
  for (std::size_t k = 0; k < c.heads.size(); ++k) {
    const HeadCertificate& h = c.heads[k];
    const double most = h.output_error + h.rounding, distance = n.distances.at(k);
    m.ok = m.ok && distance <= most;
    if (h.largest_v == 0 || !(distance / most > nearest)) continue;
    nearest = distance / most;
    m.measured = distance / h.largest_v;
    m.proved = h.relative();
    m.rounding = h.rounding / h.largest_v;
  }
  return m;
}

Json to_json(const MeasuredError& m) {
  return {
      {"measured", number(m.measured)}, {"proved", number(m.proved)}, {"rounding", number(m.rounding)}, {"ok", m.ok}};
}

}  // namespace redblue::cli
