#include "report/certificate.hpp"

#include <fmt/format.h>

#include <cmath>

namespace redblue::cli {

namespace {

std::string method_of(bool polynomial, bool by_rows) {
  return by_rows ? "polynomial rows" : polynomial ? "polynomial" : "exact";
}

}  // namespace

Json to_json(const Decision& d) {
  const auto words = [](const std::optional<Words>& n) { return n ? Json(to_json(*n)) : Json(nullptr); };
  Json j{{"tolerance", d.tolerance},
         {"method", method_of(d.polynomial != nullptr, d.rows != nullptr)},
         {"degree", d.degree ? Json(*d.degree) : Json(nullptr)},
         {"exact_words", words(d.exact_words)},
         {"polynomial_words", words(d.polynomial_words)},
         {"row_words", words(d.row_words)},
         {"reason", d.reason}};
  if (d.exact_seconds) j["exact_seconds"] = *d.exact_seconds;
  if (d.polynomial_seconds) j["polynomial_seconds"] = *d.polynomial_seconds;
  return j;
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

/// The coefficients of the polynomial, or of each polynomial of the rows up to the last that a row may take.
Json coefficients_of(const Certificate& c) {
  if (c.rows == nullptr) return c.polynomial.c;
  Json list = Json::array();
  for (index_t k = 0; k < std::ssize(c.row_errors); ++k) list.push_back((*c.rows)[k].c);
  return list;
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
    if (c.rows != nullptr) {
      j["longest"] = h.longest;
      j["radius"] = h.radius;
      j["exact_rows"] = h.exact_rows;
    }
    heads.push_back(std::move(j));
  }
  Json j{{"schema", "redblue.certificate/1"},
         {"method", method_of(polynomial, c.rows != nullptr)},
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
    j["coefficients"] = coefficients_of(c);
    j["output_error"] = number(c.output_error());
  }
  if (c.rows != nullptr)
    j["rows"] = {{"range", c.rows->range()},
                 {"centred", c.rows->centred},
                 {"exact_keys", c.rows->exact_keys},
                 {"exact_rows", c.rows->exact_rows}};
  j["per_head"] = std::move(heads);
  return j;
}

void print_text(const Certificate& c, std::optional<double> tolerance) {
  const std::string range = fmt::format("{:.4g}", c.range());
  if (!std::isfinite(c.output_error())) {
    fmt::print(
        "certificate: nothing is proved: {}\n",
        c.rows != nullptr
            ? "rows beyond the range are not exact; leave no-exact-rows out"
            : fmt::format("scores may reach {}, where weights may be off by all of themselves; give --tolerance, or "
                          "--approximate with that range",
                          range));
    return;
  }
  fmt::print(
      "certificate: no score beyond {}; {}each weight within {:.3g} of itself, o within {:.3g} max|V| of exact "
      "attention; {}\n",
      range, c.rows == nullptr ? "" : fmt::format("{} rows exact at most, of the others ", c.exact_rows()),
      c.weight_error(), c.output_error(),
      std::isfinite(c.rounding()) ? fmt::format("roundings add at most {:.3g} max|V|", c.rounding())
                                  : "nothing is proved of roundings");
  if (tolerance && c.rounding() > *tolerance)
    fmt::print(
        "certificate: the tolerance {:g} is of exact arithmetic; roundings in {} may add more than it: {:.3g} max|V| "
        "is "
        "proved of the numbers that are written{}\n",
        *tolerance, name_of(c.compute), c.output_error() + c.rounding(),
        c.compute == DType::f64 ? "" : "; --compute-dtype f64 rounds less");
}

MeasuredError measured_error(const Certificate& c, const Nearness& n) {
  MeasuredError m;
  double nearest = -1;
  for (std::size_t k = 0; k < c.heads.size(); ++k) {
    const HeadCertificate& h = c.heads[k];
    const double most = h.output_error + h.rounding, distance = n.distances.at(k);
    m.ok = m.ok && std::isfinite(distance) && distance <= most;
    if (std::isfinite(distance) && (h.largest_v == 0 || !(distance / most > nearest))) continue;
    nearest = distance / most;
    m.measured = distance / h.largest_v;
    m.proved = h.relative();
    m.rounding = h.rounding / h.largest_v;
  }
  return m;
}

void print_text(const MeasuredError& m) {
  if (!std::isfinite(m.measured))
    fmt::print("verify certificate: o has entries that are no finite numbers: WRONG\n");
  else if (!std::isfinite(m.proved))
    fmt::print("verify certificate: measured {:.3g} max|V|; nothing is proved of it\n", m.measured);
  else
    fmt::print("verify certificate: measured {:.3g} max|V|, proved {:.3g}, and {:.3g} for roundings: {}\n", m.measured,
               m.proved, m.rounding, m.ok ? "ok" : "WRONG");
}

Json to_json(const MeasuredError& m) {
  return {
      {"measured", number(m.measured)}, {"proved", number(m.proved)}, {"rounding", number(m.rounding)}, {"ok", m.ok}};
}

}  // namespace redblue::cli
