#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "redblue/machines/ram/storage.hpp"
#include "redblue/runtime/storage_of.hpp"
#include "redblue/verify/oracle/dense.hpp"
#include "redblue/verify/verify.hpp"

/// What verify() makes of outputs and what they should be.
namespace redblue::comparison {

using oracle::Matrices;
using oracle::Matrix;

template <class T, class U>
Matrix<T> converted(const Matrix<U>& m) {
  Matrix<T> r;
  r.shape = m.shape;
  r.words.assign(m.words.begin(), m.words.end());
  return r;
}

/// The matrix of an array in one instance; the gradient of a bias has an entry for each of the bias, as the oracle has
/// it.
inline Matrix<double> gathered(const Problem& p, const Tensors& tensors, SlowArray a, index_t instance) {
  const Tensor& t = tensors[a];
  Matrix<double> m(plan::matrix_of(p.op, p.sizes(), is_bias_gradient(a) ? SlowArray::bias : a).shape);
  const index_t kv_heads = p.instances() / p.batch, group = t.shape[1] / kv_heads;
  const machine::Storage storage =
      is_of_modifiers(a) ? storage_of_modifier(t, p, false) : storage_of(t, kv_heads, group, false);
  machine::gather<double>(storage, {a, instance, 0, 0, m.shape}, m.words.data(), m.shape.cols);
  return m;
}

inline index_t count_nan(const std::vector<double>& x) {
  return std::count_if(x.begin(), x.end(), [](double v) { return std::isnan(v); });
}

/// How finely numbers of a type are rounded: half the distance of those next to 1, and the distance of those next to 0.
struct Precision {
  double eps, least_step;
};
inline Precision precision_of(DType t) {
  switch (t) {
    case DType::f64:
      return {0x1p-53, 0x1p-1074};
    case DType::f32:
      return {0x1p-24, 0x1p-149};
    case DType::f16:
      return {0x1p-11, 0x1p-24};
    case DType::bf16:
      return {0x1p-8, 0x1p-133};
    case DType::boolean:
    case DType::int8:
      return {0, 0};
  }
  return {1, 1};
}
inline double eps_of(DType t) { return precision_of(t).eps; }

/// Gathers absolute errors, less a step of an output's type, which it may be rounded by; made relative at the end.
struct Comparison {
  double step = 0;  ///< Precision::least_step
  Deviation d{};
  double largest = 0;
  index_t nan_outputs = 0;
  index_t compared = 0;

  template <class T, class Wide>
  void add(const Matrix<Wide>& oracle, const Matrix<double>& ours, const Matrix<T>& naive) {
    for (std::size_t i = 0; i < ours.words.size(); ++i)
      add(static_cast<double>(oracle.words[i]), ours.words[i], static_cast<double>(naive.words[i]));
  }
  void add(double oracle, double ours, double naive) {
    nan_outputs += std::isnan(ours) ? 1 : 0;
    if (std::isnan(oracle) != std::isnan(ours)) ++d.nan_mismatches;
    if (std::isnan(oracle) || std::isnan(ours)) return;
    ++compared;
    if (std::isinf(oracle) || std::isinf(ours)) {
      if (oracle != ours) d.error = std::numeric_limits<double>::infinity();
      return;
    }
    largest = std::max(largest, std::abs(oracle));
    d.error = std::max(d.error, std::abs(oracle - ours) - step);
    if (!std::isnan(naive)) d.naive_error = std::max(d.naive_error, std::abs(oracle - naive));
  }
  /// Two runs in the compute type are not equally wrong: `times` the error of the naive one is allowed.
  Deviation finish(double roundings, double times = 2) {
    if (compared == 0) d.error = std::numeric_limits<double>::infinity();  // all of it NaN
    if (largest > 0) {
      d.error /= largest;
      d.naive_error /= largest;
    }
    d.tolerance = times * d.naive_error + roundings;
    return d;
  }
};

template <class T>
double largest_of(const std::vector<T>& x) {
  double largest = 0;
  for (const T& e : x)
    if (std::isfinite(e)) largest = std::max(largest, std::abs(static_cast<double>(e)));
  return largest;
}

}  // namespace redblue::comparison
