#pragma once
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "runtime/arrays.hpp"
#include "runtime/problems.hpp"
#include "support/generators.hpp"

/// Cases for certificates, drawn to be hard.
namespace redblue::test {

using Real = long double;
using Doubles = std::vector<double>;

struct DrawOfCase {
  std::mt19937_64 random;
  explicit DrawOfCase(std::uint64_t seed) : random(seed) {}
  index_t number(index_t least, index_t most) {
    return least + static_cast<index_t>(random() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(index_t n) { return number(1, n) == 1; }
  double real(double least, double most) { return std::uniform_real_distribution<double>(least, most)(random); }
  template <class T, std::size_t n>
  T of(const std::array<T, n>& list) {
    return list[random() % n];
  }
};

enum class RowKind : std::uint8_t { normal, aligned, repeated, dominant, zero, one_hot, spread, some_zero };
constexpr std::array kRowKinds{RowKind::normal, RowKind::aligned, RowKind::repeated, RowKind::dominant,
                               RowKind::zero,   RowKind::one_hot, RowKind::spread,   RowKind::some_zero};

/// RowKind of d numbers. Those that are aligned follow `direction`, or its opposite.
inline Doubles drawn_rows(DrawOfCase& draw, RowKind kind, index_t rows, index_t d, const Doubles& direction) {
  Doubles x = normal(rows * d, draw.random);
  const index_t hot = draw.number(0, rows - 1);
  for (index_t i = 0; i < rows; ++i)
    for (index_t t = 0; t < d; ++t) {
      double& e = x[static_cast<std::size_t>(i * d + t)];
      const double along = direction[static_cast<std::size_t>(t)];
      if (kind == RowKind::aligned) e = i % 2 == 0 ? along : -along;
      if (kind == RowKind::repeated) e = along;
      if (kind == RowKind::dominant && i != hot) e *= 1e-5;
      if (kind == RowKind::zero) e = 0;
      if (kind == RowKind::one_hot) e = t == i % d ? e : 0;
      if (kind == RowKind::spread) e = std::copysign(std::exp2(draw.real(-60, 0)), e);
      if (kind == RowKind::some_zero && i % 2 == 1) e = 0;
    }
  return x;
}

inline double longest_row(const Doubles& x, index_t d) {
  Real most = 0;
  for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(d)) {
    Real square = 0;
    for (std::size_t t = i; t < i + static_cast<std::size_t>(d); ++t) square += static_cast<Real>(x[t]) * x[t];
    most = std::max(most, square);
  }
  return most > 0 ? static_cast<double>(std::sqrt(most)) : 1;
}
inline void scale_all(Doubles& x, double by) {
  for (double& e : x) e *= by;
}

inline Problem drawn_problem(DrawOfCase& draw) {
  Problem p = problem(draw.number(1, 6), draw.one_in(5) ? 1 : draw.number(1, 8), draw.number(1, 4), draw.number(1, 3));
  if (draw.one_in(4)) p = with_heads(p, draw.number(1, 2), 2, draw.number(1, 2));
  if (draw.one_in(3)) p = causal(p);
  if (p.causal && draw.one_in(2)) p.causal_offset = draw.number(-2, 3);
  if (draw.one_in(3)) p.scale = draw.of(std::array{-1.0, 0.0, 0.3, -1e-12, 1e-30, 1e8, 3e20});
  return p;
}

/// A case: its tensors are drawn, made as large as the test wants them, and stored.
struct DrawnCase {
  Problem p;
  DType type = DType::f32, compute = DType::f32;
  Doubles direction, q, k, v;
  std::vector<Array> arrays{};  ///< q, k, v, o as stored
  Inputs inputs() { return {arrays[0].tensor(), arrays[1].tensor(), arrays[2].tensor()}; }
};

inline DrawnCase drawn_tensors(DrawOfCase& draw, const Problem& p) {
  const DType type = draw.of(std::array{DType::f64, DType::f32, DType::f16, DType::bf16});
  const DType compute = type == DType::f64 && !draw.one_in(4) ? DType::f64 : DType::f32;
  const index_t kv = p.kv_heads.value_or(p.heads);
  const Doubles direction = normal(std::max(p.d, p.d_v), draw.random);
  const RowKind kind = draw.of(kRowKinds);
  Doubles q = drawn_rows(draw, draw.one_in(2) ? kind : draw.of(kRowKinds), p.batch * p.heads * p.n_q, p.d, direction);
  Doubles k = drawn_rows(draw, kind, p.batch * kv * p.n_k, p.d, direction);
  Doubles v = drawn_rows(draw, draw.of(kRowKinds), p.batch * kv * p.n_k, p.d_v, direction);
  return {p, type, compute, direction, std::move(q), std::move(k), std::move(v)};
}
/// Scores up to `range`, of keys that are as long as queries, or by up to 2^most longer or shorter.
inline void scale_scores(DrawOfCase& draw, DrawnCase& c, double range, double most) {
  const Problem& p = c.p;
  const double scale = p.scale_or_default() == 0 ? 1 : std::abs(p.scale_or_default());
  const double balanced = std::sqrt(range / scale);
  scale_all(c.k, balanced * (draw.one_in(3) ? std::exp2(draw.real(-most, most)) : 1) / longest_row(c.k, p.d));
  scale_all(c.q, range / (scale * longest_row(c.k, p.d)) / longest_row(c.q, p.d));
}
/// Values of any size.
inline void scale_values(DrawOfCase& draw, DrawnCase& c, double most) {
  scale_all(c.v, draw.one_in(3) ? std::exp2(draw.real(-most - 14, most + 3)) : 1);
}
inline void store(DrawOfCase& draw, DrawnCase& c) {
  const double largest = c.type == DType::f16 ? 65504 : c.type == DType::f64 ? 1e300 : 3e38;
  for (Doubles* x : {&c.q, &c.k, &c.v})
    for (double& e : *x) e = std::clamp(e, -largest, largest);
  c.arrays.reserve(4);
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V, SlowArray::O})
    c.arrays.emplace_back(c.type, shape_of(c.p, a), draw.of(kAllStrides));
  c.arrays[0].set(c.q), c.arrays[1].set(c.k), c.arrays[2].set(c.v);
}

/// The largest errors of a head so far.
struct HeadErrors {
  Real of_run = 0, of_polynomial = 0;
  /// Of one query: what a run wrote, exact attention, and what the polynomial gives in exact arithmetic.
  void add(const double* written, const std::vector<Real>& exact, const std::vector<Real>& near) {
    for (std::size_t t = 0; t < exact.size(); ++t) {
      const Real gap = std::abs(written[t] - exact[t]);
      of_run = std::isnan(gap) || std::isnan(of_run) ? NAN : std::max(of_run, gap);
      of_polynomial = std::max(of_polynomial, std::abs(near[t] - exact[t]));
    }
  }
};

/// Weights of the keys of a row, and outputs: f(z) in place of e^z.
template <class F>
std::vector<Real> outputs_of(const Problem& p, const std::vector<Real>& z, const double* v, const F& f) {
  std::vector<Real> o(static_cast<std::size_t>(p.d_v));
  Real sum = 0;
  for (std::size_t j = 0; j < z.size(); ++j) {
    const Real w = f(z[j]);
    sum += w;
    for (std::size_t t = 0; t < o.size(); ++t) o[t] += w * v[j * o.size() + t];
  }
  for (Real& x : o) x = z.empty() ? 0 : x / sum;
  return o;
}

/// With little memory, where a plan has it, so that states are cut in parts.
inline plan::Plan drawn_plan(DrawOfCase& draw, const Problem& p) {
  plan::Options o;
  o.M = draw.of(std::array{40, 90, 300, 100'000});
  try {
    return plan::make_plan(p, o);
  } catch (const CapacityError& e) {
    o.M = e.needed;
    return plan::make_plan(p, o);
  }
}

}  // namespace redblue::test
