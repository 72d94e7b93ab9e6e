#include "redblue/methods/certificate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/proof.hpp"

namespace redblue {

namespace {

constexpr double kLeastRange = 0x1p-10;  // of a fit: below, coefficients in doubles would not do better

struct Values {
  double largest = 0, spread = 0;
};
Values values_of(const Problem& p, const Tensors& tensors, index_t instance, const proof::NowAndThen& now_and_then) {
  Values values;
  std::vector<double> least, most;
  proof::for_rows(p, tensors, SlowArray::V, instance, now_and_then, [&](index_t i, const std::vector<double>& row) {
    if (i == 0) least = most = row;
    for (std::size_t t = 0; t < row.size(); ++t) {
      least[t] = std::min(least[t], row[t]);
      most[t] = std::max(most[t], row[t]);
      values.largest = std::max(values.largest, std::abs(row[t]));
    }
  });
  for (std::size_t t = 0; t < most.size(); ++t)
    if (most[t] > least[t])
      values.spread = std::max(values.spread, proof::rounded_up(static_cast<proof::Real>(most[t]) - least[t], 1));
  return values;
}

/// HeadCertificate::rounding. A term w q^a k^a v takes in at most `steps` roundings on its way into a numerator, and
/// the sum of all terms without signs is at most n p+(range) max|V|; the sum of the weights is at least n (1 - e)
/// e^-range.
double rounding_of(const Certificate& c, const HeadCertificate& h) {
  const index_t g = c.polynomial.degree();
  if (proof::may_leave_numbers(c, h, g, h.largest_k, h.range) || !(h.weight_error < 1)) return proof::kInfinity;
  const proof::Real steps = monomials(c.d, g).to_double() + static_cast<proof::Real>(c.keys + 6 * g + 8);
  const proof::Real share = proof::gamma(steps, proof::format_of(c.compute).unit) *
                            proof::magnitude(c.polynomial, h.range) * std::exp(static_cast<proof::Real>(h.range)) /
                            (1 - static_cast<proof::Real>(h.weight_error));
  return proof::added_by(c, h, share, 0);
}

}  // namespace

double Certificate::range() const {
  double most = 0;
  for (const HeadCertificate& h : heads) most = std::max(most, h.range);
  return most;
}

double Certificate::weight_error() const {
  double most = 0;
  for (const HeadCertificate& h : heads) most = std::max(most, h.weight_error);
  return most;
}

double Certificate::rounding() const {
  double most = 0;
  for (const HeadCertificate& h : heads)
    if (h.rounding > 0 && !(h.largest_v > 0))
      most = proof::kInfinity;
    else if (h.rounding > 0)
      most = std::max(most, std::nextafter(h.rounding / h.largest_v, proof::kInfinity));
  return most;
}

index_t Certificate::exact_rows() const {
  index_t all = 0;
  for (const HeadCertificate& h : heads) all += h.exact_rows;
  return all;
}

double Certificate::output_error() const {
  double most = 0;
  for (const HeadCertificate& h : heads) most = std::max(most, h.relative());
  return most;
}

double HeadCertificate::relative() const {
  if (output_error == 0 || std::isinf(output_error)) return output_error;
  return std::nextafter(output_error / largest_v, proof::kInfinity);
}

void Certificate::prove(const Polynomial& p) {
  polynomial = p;
  rows = nullptr;
  row_errors.clear();
  for (std::size_t k = 0; k < heads.size(); ++k) {
    HeadCertificate& h = heads[k];  // a narrow head has a better bound than that of the fit
    const bool as_before = k > 0 && h.range == heads[k - 1].range;
    h.weight_error = as_before        ? heads[k - 1].weight_error
                     : h.range <= 700 ? proved_error(p.c, h.range)
                                      : proof::kInfinity;
    h.output_error = proof::moved_values(h.weight_error, h.spread);
    h.rounding = rounding_of(*this, h);
  }
}

Certificate norms_of(const Problem& p, const Inputs& inputs, DType compute, std::optional<DType> stored,
                     const std::function<void()>& now_and_then) {
  if (p.approximation != nullptr && polynomial_of(p) == nullptr)
    throw Unsupported(
        fmt::format("nothing is proved of {}: certificates are of polynomials", name_of(p.method_kind())));
  if (!is_forward(p.op) || p.op != Operation::forward)
    throw Unsupported(fmt::format("operation {}: certificates are of the forward pass", name_of(p.op)));
  if (compute != DType::f32 && compute != DType::f64)
    throw Unsupported(fmt::format("compute type {}: a certificate is for f32 or f64", name_of(compute)));
  p.validate();
  const Tensors tensors = tensors_of(inputs, Outputs{});
  require_shapes(p, {SlowArray::Q, SlowArray::K, SlowArray::V}, tensors);
  Certificate c;
  c.compute = compute;
  c.stored = stored.value_or(inputs.q.dtype);
  c.scale = p.scale_or_default();
  c.keys = p.n_k;
  c.masked = !p.sizes().mask.full();
  c.d = p.d;
  const index_t kv_heads = p.kv_heads.value_or(p.heads), group = p.group();
  // A score is off by at most (d + 4) roundings of SUM |scale q_t k_t|, that of the scale included.
  const proof::Real sums = 1 + static_cast<proof::Real>(p.d + 4) * proof::format_of(compute).unit * 1.01L;
  c.heads.reserve(static_cast<std::size_t>(p.batch * p.heads));
  for (index_t instance = 0; instance < p.instances(); ++instance) {
    HeadCertificate h;
    h.batch = instance / kv_heads;
    proof::for_rows(p, tensors, SlowArray::K, instance, now_and_then, [&](index_t, const std::vector<double>& row) {
      h.largest_k = std::max(h.largest_k, proof::norm(row));
    });
    const Values v = values_of(p, tensors, instance, now_and_then);
    h.largest_v = v.largest;
    h.spread = v.spread;
    std::vector<double> largest_q(static_cast<std::size_t>(group));
    proof::for_rows(p, tensors, SlowArray::Q, instance, now_and_then, [&](index_t i, const std::vector<double>& row) {
      double& most = largest_q[static_cast<std::size_t>(i % group)];
      most = std::max(most, proof::norm(row));
    });
    for (index_t k = 0; k < group; ++k) {
      h.head = instance % kv_heads * group + k;
      h.largest_q = largest_q[static_cast<std::size_t>(k)];
      const proof::Real product = std::abs(static_cast<proof::Real>(c.scale)) * h.largest_q * h.largest_k;
      h.range = product > 0 ? proof::rounded_up(product * sums, 4) : 0;
      if (!std::isfinite(h.range + h.largest_q + h.largest_k + h.spread))
        throw InvalidProblem(fmt::format(
            "numbers too large: queries up to {:.3g}, keys up to {:.3g}, values that differ by up to {:.3g}; "
            "nothing is proved of what may be beyond 1.8e308",
            h.largest_q, h.largest_k, h.spread));
      c.heads.push_back(h);
    }
  }
  return c;
}

Certificate certify(const Problem& p, const Inputs& inputs, DType compute, std::optional<DType> stored,
                    const std::function<void()>& now_and_then) {
  if (p.approximation == nullptr)
    throw InvalidProblem("a certificate: the problem has no approximation, and exact attention no error to prove");
  const auto rows = shared_row_polynomials_of(p.approximation);
  if (rows != nullptr)
    if (const auto why = rows->uncertified()) throw Unsupported(fmt::format("a certificate: {}", *why));
  Certificate c = norms_of(p, inputs, compute, stored, now_and_then);
  if (rows != nullptr)
    c.prove(rows, lengths_of(p, inputs, now_and_then));
  else
    c.prove(*polynomial_of(p));
  return c;
}

namespace {

/// The polynomial of least degree, from 1 on, that `does` finds near enough.
template <class Does>
std::optional<Polynomial> first(double range, index_t most, const Does& does) {
  if (!(range <= 64)) return std::nullopt;
  for (index_t degree = 1; degree <= most; ++degree)
    if (Polynomial p = near_exp(Fit::minimax, degree, std::max(range, kLeastRange)); p.error < 1 && does(p)) return p;
  return std::nullopt;
}

}  // namespace

std::optional<Polynomial> least_polynomial(const Certificate& norms, double tolerance, index_t most) {
  if (norms.heads.empty()) return std::nullopt;
  Certificate widest = norms;  // the head that needs most, so that a degree that will not do is soon known
  widest.heads = {*std::max_element(norms.heads.begin(), norms.heads.end(),
                                    [](const auto& a, const auto& b) { return a.range < b.range; })};
  return first(norms.range(), most, [&](const Polynomial& p) {
    widest.prove(p);
    if (!(widest.output_error() <= tolerance)) return false;
    Certificate all = norms;
    all.prove(p);
    return all.output_error() <= tolerance;
  });
}

std::optional<Polynomial> least_polynomial(double range, double tolerance, index_t most) {
  return first(range, most, [&](const Polynomial& p) { return p.output_error() <= tolerance; });
}

}  // namespace redblue
