#pragma once
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "api/arrays.hpp"
#include "api/problems.hpp"
#include "redblue/core/error.hpp"
#include "redblue/plan/planner.hpp"
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
