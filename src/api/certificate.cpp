#include "redblue/certificate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "redblue/core/word_type.hpp"
#include "redblue/machine/storage.hpp"
#include "storage_of.hpp"

namespace redblue {

namespace {

using Real = long double;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastRange = 0x1p-10;  // of a fit: below, coefficients in doubles would not do better

/// At least x, which may be too small by `roundings` units of Real.
double rounded_up(Real x, index_t roundings) {
  const Real up = x * (1 + static_cast<Real>(roundings + 4) * std::numeric_limits<Real>::epsilon());
  return std::nextafter(static_cast<double>(up), kInfinity);
}

/// Of the numbers of a type: the largest share of itself that rounding takes from one, the largest of them, and the
/// most that rounding takes from one near 0, where it is more than that share.
struct Format {
  Real unit, largest, least;
};
Format format_of(DType t) {
  switch (t) {
    case DType::f64:
      return {0x1p-53, std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min()};
    case DType::f32:
      return {0x1p-24, std::numeric_limits<float>::max(), 0x1p-150};
    case DType::f16:
      return {0x1p-11, 65504, 0x1p-25};
    default:
      return {0x1p-8, 0x1.FEp127, 0x1p-134};
  }
}

/// Row i of one instance of a tensor after the other: f(i, row).
template <class F>
void for_rows(const Problem& p, const Tensors& tensors, SlowArray a, index_t instance, const F& f) {
  const Tensor& t = tensors[a];
  const Shape shape = plan::matrix_of(p.op, p.sizes(), a).shape;
  const index_t kv_heads = p.instances() / p.batch;
  const machine::Storage storage = storage_of(t, kv_heads, t.shape[1] / kv_heads, false);
  std::vector<double> row(static_cast<std::size_t>(shape.cols));
  for (index_t i = 0; i < shape.rows; ++i) {
    machine::gather<double>(storage, {a, instance, i, 0, {1, shape.cols}}, row.data(), shape.cols);
    for (const double x : row)
      if (!std::isfinite(x))
        throw InvalidProblem(
            fmt::format("{} has an entry {} in row {}: nothing is proved of it", tensor_name(a), x, i));
    f(i, row);
  }
}

/// The Euclidean norm, rounded up. Entries are scaled by a power of two, so that squares neither overflow nor vanish
/// beside the largest.
double norm(const std::vector<double>& row) {
  double most = 0;
  for (const double x : row) most = std::max(most, std::abs(x));
  if (most == 0) return 0;
  const int power = std::ilogb(most);
  Real sum = 0;
  for (const double x : row) {
    const Real y = std::scalbn(static_cast<Real>(x), -power);
    sum += y * y;
  }
  return rounded_up(std::scalbn(std::sqrt(sum), power), static_cast<index_t>(row.size()));
}

struct Values {
  double largest = 0, spread = 0;
};
Values values_of(const Problem& p, const Tensors& tensors, index_t instance) {
  Values values;
  std::vector<double> least, most;
  for_rows(p, tensors, SlowArray::V, instance, [&](index_t i, const std::vector<double>& row) {
    if (i == 0) least = most = row;
    for (std::size_t t = 0; t < row.size(); ++t) {
      least[t] = std::min(least[t], row[t]);
      most[t] = std::max(most[t], row[t]);
      values.largest = std::max(values.largest, std::abs(row[t]));
    }
  });
  for (std::size_t t = 0; t < most.size(); ++t)
    if (most[t] > least[t])
      values.spread = std::max(values.spread, rounded_up(static_cast<Real>(most[t]) - least[t], 1));
  return values;
}

/// |c_0| + |c_1| x + ..
Real magnitude(const Polynomial& p, Real x) {
  Real sum = 0;
  for (std::size_t l = p.c.size(); l > 0; --l) sum = sum * x + std::abs(static_cast<Real>(p.c[l - 1]));
  return sum;
}

/// May a power, a product or a sum on the way leave the numbers of the arithmetic type, or come so near to 0 that what
/// it loses shows in O? 2^exponent bounds them all, and their inverses beside the sum of the weights.
bool may_leave_numbers(const Certificate& c, const HeadCertificate& h) {
  const double size = std::log2(std::max(1.0, std::abs(c.scale))) + std::log2(std::max(1.0, h.largest_q)) +
                      std::log2(std::max(1.0, h.largest_k)) + std::log2(static_cast<double>(c.d));
  const double of_values = h.largest_v > 0 ? std::abs(std::log2(h.largest_v)) : 0;
  const double exponent = static_cast<double>(c.polynomial.degree()) * size + of_values +
                          std::log2(static_cast<double>(c.keys)) + 1.5 * h.range;
  return exponent > (c.compute == DType::f64 ? 900 : 90);
}

/// HeadCertificate::rounding. A term w q^a k^a v takes in at most `steps` roundings on its way into a numerator, and
/// the sum of all terms without signs is at most n p+(range) max|V|; the sum of the weights is at least n (1 - e)
/// e^-range.
double rounding_of(const Certificate& c, const HeadCertificate& h) {
  if (may_leave_numbers(c, h)) return kInfinity;
  const index_t g = c.polynomial.degree();
  const Format stored = format_of(c.stored);
  const Real u = format_of(c.compute).unit, out = stored.unit;
  const Real steps = monomials(c.d, g).to_double() + static_cast<Real>(c.keys + 6 * g + 8);
  if (!(steps * u < 0.5L) || !(h.weight_error < 1)) return kInfinity;
  const Real gamma = steps * u / (1 - steps * u);
  const Real share = gamma * magnitude(c.polynomial, h.range) * std::exp(static_cast<Real>(h.range)) /
                     (1 - static_cast<Real>(h.weight_error));
  if (!(share < 0.5L)) return kInfinity;
  if (h.largest_v == 0) return 0;
  const Real most = (2 * share / (1 - share) * (1 + 2 * u + 2 * out) + u + out) * h.largest_v + stored.least;
  return h.largest_v + most > stored.largest ? kInfinity : rounded_up(most, 8 * g + 64);
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
      most = kInfinity;
    else if (h.rounding > 0)
      most = std::max(most, std::nextafter(h.rounding / h.largest_v, kInfinity));
  return most;
}

double Certificate::output_error() const {
  double most = 0;
  for (const HeadCertificate& h : heads) most = std::max(most, h.relative());
  return most;
}

double HeadCertificate::relative() const {
  return largest_v > 0 && output_error > 0 ? std::nextafter(output_error / largest_v, kInfinity) : 0;
}

void Certificate::prove(const Polynomial& p) {
  polynomial = p;
  for (std::size_t k = 0; k < heads.size(); ++k) {
    HeadCertificate& h = heads[k];  // a narrow head has a better bound than that of the fit
    const bool as_before = k > 0 && h.range == heads[k - 1].range;
    h.weight_error = as_before ? heads[k - 1].weight_error : h.range <= 700 ? proved_error(p.c, h.range) : kInfinity;
    const double share = moved_share(h.weight_error);
    h.output_error = h.spread > 0 ? rounded_up(static_cast<Real>(share) * h.spread, 1) : 0;
    h.rounding = rounding_of(*this, h);
  }
}

Certificate norms_of(const Problem& p, const Inputs& inputs, DType compute, std::optional<DType> stored) {
  if (p.row_polynomials != nullptr || (p.method_kind() != MethodKind::exact && p.approximation == nullptr))
    throw Unsupported(
        fmt::format("a certificate is of one polynomial for all rows; there is none of {} yet",
                    p.row_polynomials != nullptr ? "polynomials of each row" : std::string(name_of(p.method_kind()))));
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
  c.d = p.d;
  const index_t kv_heads = p.kv_heads.value_or(p.heads), group = p.group();
  // A score is off by at most (d + 4) roundings of SUM |scale q_t k_t|, that of the scale included.
  const Real sums = 1 + static_cast<Real>(p.d + 4) * format_of(compute).unit * 1.01L;
  c.heads.reserve(static_cast<std::size_t>(p.batch * p.heads));
  for (index_t instance = 0; instance < p.instances(); ++instance) {
    HeadCertificate h;
    h.batch = instance / kv_heads;
    for_rows(p, tensors, SlowArray::K, instance,
             [&](index_t, const std::vector<double>& row) { h.largest_k = std::max(h.largest_k, norm(row)); });
    const Values v = values_of(p, tensors, instance);
    h.largest_v = v.largest;
    h.spread = v.spread;
    std::vector<double> largest_q(static_cast<std::size_t>(group));
    for_rows(p, tensors, SlowArray::Q, instance, [&](index_t i, const std::vector<double>& row) {
      double& most = largest_q[static_cast<std::size_t>(i % group)];
      most = std::max(most, norm(row));
    });
    for (index_t k = 0; k < group; ++k) {
      h.head = instance % kv_heads * group + k;
      h.largest_q = largest_q[static_cast<std::size_t>(k)];
      const Real product = std::abs(static_cast<Real>(c.scale)) * h.largest_q * h.largest_k;
      h.range = product > 0 ? rounded_up(product * sums, 4) : 0;
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

Certificate certify(const Problem& p, const Inputs& inputs, DType compute, std::optional<DType> stored) {
  if (p.approximation == nullptr) throw InvalidProblem("a certificate: the problem has no approximation");
  Certificate c = norms_of(p, inputs, compute, stored);
  c.prove(*p.approximation);
  return c;
}

namespace {

/// Of the degrees from 1 on, the first that `does` finds near enough.
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
