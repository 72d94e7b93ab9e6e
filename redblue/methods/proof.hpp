#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "redblue/language/word_type.hpp"
#include "redblue/machines/ram/storage.hpp"
#include "redblue/methods/certificate.hpp"
#include "redblue/runtime/storage_of.hpp"

/// What certificates of one polynomial and of polynomials of each row are both made of.
namespace redblue::proof {

using Real = long double;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// At least x, which may be too small by `roundings` units of Real.
inline double rounded_up(Real x, index_t roundings) {
  const Real up = x * (1 + static_cast<Real>(roundings + 4) * std::numeric_limits<Real>::epsilon());
  return std::nextafter(static_cast<double>(up), kInfinity);
}

/// What is true of the numbers of a type: the largest share of itself that rounding takes from one, the largest of
/// them, and the most that rounding takes from one near 0, where it is more than that share.
struct Format {
  Real unit, largest, least;
};
inline Format format_of(DType t) {
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

/// What is called between rows, if anything.
using NowAndThen = std::function<void()>;

/// Row i of one instance of a tensor after the other: f(i, row).
template <class F>
void for_rows(const Problem& p, const Tensors& tensors, SlowArray a, index_t instance, const NowAndThen& now_and_then,
              const F& f) {
  constexpr index_t kEvery = 256;
  const Tensor& t = tensors[a];
  const Shape shape = plan::matrix_of(p.op, p.sizes(), a).shape;
  const index_t kv_heads = p.instances() / p.batch;
  const machine::Storage storage = storage_of(t, kv_heads, t.shape[1] / kv_heads, false);
  std::vector<double> row(static_cast<std::size_t>(shape.cols));
  for (index_t i = 0; i < shape.rows; ++i) {
    machine::gather<double>(storage, {a, instance, i, 0, {1, shape.cols}}, row.data(), shape.cols);
    for (const double x : row)
      if (!std::isfinite(x))
        throw InvalidProblem(fmt::format("{} has an entry {} in row {}: no error can be proved; give finite numbers",
                                         tensor_name(a), x, i));
    f(i, row);
    if (now_and_then && i % kEvery == 0) now_and_then();
  }
}

/// The Euclidean norm, rounded up. Entries are scaled by a power of two, so that squares neither overflow nor vanish
/// beside the largest.
inline double norm(const std::vector<double>& row) {
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

/// |c_0| + |c_1| x + ..
inline Real magnitude(const Polynomial& p, Real x) {
  Real sum = 0;
  for (std::size_t l = p.c.size(); l > 0; --l) sum = sum * x + std::abs(static_cast<Real>(p.c[l - 1]));
  return sum;
}

/// May a power of this degree, a product or a sum on the way leave the numbers of the arithmetic type, or come so near
/// to 0 that what it loses shows in O? 2^exponent bounds them all, and their inverses beside the sum of the weights.
inline bool may_leave_numbers(const Certificate& c, const HeadCertificate& h, index_t degree, double largest_k,
                              double range) {
  const double size = std::log2(std::max(1.0, std::abs(c.scale))) + std::log2(std::max(1.0, h.largest_q)) +
                      std::log2(std::max(1.0, largest_k)) + std::log2(static_cast<double>(c.d));
  const double of_values = h.largest_v > 0 ? std::abs(std::log2(h.largest_v)) : 0;
  const double exponent =
      static_cast<double>(degree) * size + of_values + std::log2(static_cast<double>(c.keys)) + 1.5 * range;
  return exponent > (c.compute == DType::f64 ? 900 : 90);
}

/// (1 + u)^steps - 1 at most; infinity where the bound breaks down.
inline Real gamma(Real steps, Real u) { return steps * u < 0.5L ? steps * u / (1 - steps * u) : kInfinity; }

/// HeadCertificate::output_error. Weights that may be off by all of themselves may add up to nothing: then nothing is
/// proved, also of values that are all the same.
inline double moved_values(double weight_error, double spread) {
  if (!(weight_error < 1)) return kInfinity;
  const bool moves = spread > 0 && weight_error > 0;
  return moves ? rounded_up(static_cast<Real>(moved_share(weight_error)) * spread, 1) : 0;
}

/// What roundings add to O, where its numerators and denominators are off by `share` of their terms without signs, and
/// something adds `more` max|V|.
inline double added_by(const Certificate& c, const HeadCertificate& h, Real share, Real more) {
  if (!(share < 0.5L)) return kInfinity;
  if (h.largest_v == 0) return 0;
  const Format stored = format_of(c.stored);
  const Real u = format_of(c.compute).unit, out = stored.unit;
  const Real most = (2 * share / (1 - share) * (1 + 2 * u + 2 * out) + u + out + more) * h.largest_v + stored.least;
  return h.largest_v + most > stored.largest ? kInfinity : rounded_up(most, 8 * c.polynomial.degree() + 64);
}

}  // namespace redblue::proof
