#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "redblue/language/dtype.hpp"
#include "support/oracle.hpp"

/// The rule of this project: as good as plain attention in the same precision, up to a factor 2 and a few roundings.
namespace redblue::test {

/// Half the distance from 1 to the next number.
constexpr double eps_of(DType t) {
  return t == DType::f64 ? 0x1p-53 : t == DType::f32 ? 0x1p-24 : t == DType::f16 ? 0x1p-11 : 0x1p-8;
}

/// Largest finite magnitude.
inline double largest(const std::vector<double>& x) {
  double m = 0;
  for (double e : x)
    if (std::isfinite(e)) m = std::max(m, std::abs(e));
  return m;
}

/// Largest difference. NaN or infinity on one side only is an infinite error.
inline double max_error(const std::vector<double>& x, const std::vector<double>& truth) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (x.size() != truth.size()) return kInfinity;
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == truth[i] || (std::isnan(x[i]) && std::isnan(truth[i]))) continue;
    error = std::isfinite(x[i]) && std::isfinite(truth[i]) ? std::max(error, std::abs(x[i] - truth[i])) : kInfinity;
  }
  return error;
}

/// 2 err(naive) + 8 roundings of the largest entry. Rounding a score of size s costs s eps in its weight, so scores
/// beyond 1 (lse tells their size) allow as many more.
inline double tolerance(const std::vector<double>& truth, const std::vector<double>& naive, double eps,
                        double score = 1) {
  return 2 * max_error(naive, truth) + 8 * eps * std::max(1.0, score) * largest(truth);
}

/// Is `ours`, computed and stored with roundings of at most `eps`, as good as `naive`?
inline testing::AssertionResult close(const Result& ours, const Result& truth, const Result& naive, double eps) {
  const double score = largest(truth.lse);
  const double o = max_error(ours.o, truth.o), o_most = tolerance(truth.o, naive.o, eps, score);
  const double lse = max_error(ours.lse, truth.lse), lse_most = tolerance(truth.lse, naive.lse, eps);
  if (std::isfinite(o) && std::isfinite(lse) && o <= o_most && lse <= lse_most) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "o errs by " << o << " of at most " << o_most << ", lse by " << lse
                                     << " of at most " << lse_most;
}

}  // namespace redblue::test
