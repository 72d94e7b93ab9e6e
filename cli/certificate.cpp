#include "certificate.hpp"

#include <fmt/format.h>

#include <cmath>

#include "redblue/file/atomic_file.hpp"
#include "redblue/kernel/polynomial.hpp"

namespace redblue::cli {

void require_tolerance(double tolerance) {
  if (!(tolerance > 0 && std::isfinite(tolerance)))
    throw InvalidProblem(fmt::format("--tolerance {}: give a number above 0, as in 1e-3", tolerance));
}

Decision decide(double tolerance, double range, std::optional<Polynomial> least, Words exact_words,
                const std::function<plan::Plan(const std::shared_ptr<const Polynomial>&)>& plan) {
  Decision d;
  d.tolerance = tolerance;
  d.exact_words = exact_words;
  if (!least) {
    d.reason =
        fmt::format("exact attention: no polynomial of degree {} or less proves {:.3g} max|V| for scores up to {:.4g}",
                    kernel::Monomials::kMostDegree, tolerance, range);
    return d;
  }
  d.degree = least->degree();
  auto polynomial = std::make_shared<const Polynomial>(std::move(*least));
  try {
    d.polynomial_words = plan(polynomial).io().total();
  } catch (const Error& e) {
    d.reason = fmt::format("exact attention: degree {} would prove it, but {}", *d.degree, e.what());
    return d;
  }
  const std::string words = fmt::format("{} words, exact attention {}", d.polynomial_words->str(), exact_words.str());
  if (exact_words <= *d.polynomial_words) {
    d.reason = fmt::format(
        "exact attention: a polynomial of degree {}, the least that proves {:.3g} max|V| for scores up "
        "to {:.4g}, moves {}",
        *d.degree, tolerance, range, words);
  } else {
    d.reason = fmt::format("degree {} is the least that proves {:.3g} max|V| for scores up to {:.4g}; it moves {}",
                           *d.degree, tolerance, range, words);
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

void write(const Certificate& c, const Problem& p, std::optional<double> tolerance, const std::string& path) {
  file::AtomicFile out(path);
  out.write(to_json(c, p, tolerance).dump(1) + "\n");
  out.commit();
}

void print_text(const Certificate& c) {
  double weights = 0, rounding = 0;
  for (const HeadCertificate& h : c.heads) {
    weights = std::max(weights, h.weight_error);
    if (h.largest_v > 0) rounding = std::max(rounding, h.rounding / h.largest_v);
  }
  fmt::print(
      "certificate: no score beyond {:.4g}; each weight within {:.3g} of itself, o within {:.3g} max|V| of exact "
      "attention; roundings add at most {:.3g} max|V|\n",
      c.range(), weights, c.output_error(), rounding);
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
