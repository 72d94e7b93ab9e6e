#pragma once
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "redblue/machine/ram.hpp"
#include "redblue/schedule/forward/operands.hpp"

/// Data for one instance, its dense answer, and slow memory to run a schedule on.
namespace redblue::test {

template <class T>
struct Arrays {
  Sizes x;
  double scale = 0.7;
  std::vector<T> Q, K, V, O, lse, S, Og, lse_g;

  explicit Arrays(const Sizes& shape, unsigned seed = 1, double spread = 1) : x(shape) {
    std::mt19937 gen(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<T>& a, index_t n, double factor) {
      a.resize(static_cast<std::size_t>(n));
      for (T& v : a) v = static_cast<T>(factor * normal(gen));
    };
    fill(Q, x.n_q * x.d, spread);
    fill(K, x.n_k * x.d, spread);
    fill(V, x.n_k * x.d_v, 1);
    const T never = std::numeric_limits<T>::quiet_NaN();  // what was never written shows
    O.assign(static_cast<std::size_t>(x.n_q * x.d_v), never);
    lse.assign(static_cast<std::size_t>(x.n_q), never);
    S.assign(static_cast<std::size_t>(x.n_q * x.n_k), never);
    constexpr index_t kGroups = 8;  // the most that a tiling of a test asks for
    Og.assign(static_cast<std::size_t>(kGroups * x.n_q * x.d_v), never);
    lse_g.assign(static_cast<std::size_t>(kGroups * x.n_q), never);
  }

  machine::SlowMemory slow() {
    machine::SlowMemory m;
    const auto put = [&](SlowArray a, std::vector<T>& v, index_t rows, index_t cols) {
      m[index_of(a)] = machine::Storage::matrix(v.data(), {rows, cols});
    };
    put(SlowArray::Q, Q, x.n_q, x.d);
    put(SlowArray::K, K, x.n_k, x.d);
    put(SlowArray::V, V, x.n_k, x.d_v);
    put(SlowArray::O, O, x.n_q, x.d_v);
    put(SlowArray::lse, lse, x.n_q, 1);
    put(SlowArray::S, S, x.n_q, x.n_k);
    put(SlowArray::Og, Og, x.n_q, x.d_v);
    put(SlowArray::lse_g, lse_g, x.n_q, 1);
    return m;
  }
  schedule::ForwardOperands operands() const { return {x, scale}; }
};

struct Dense {
  std::vector<double> O, lse;
};

/// softmax(scale Q K^T) V in fp64, as the definition has it.
template <class T>
Dense dense(const Arrays<T>& a) {
  const Sizes& x = a.x;
  Dense r{std::vector<double>(a.O.size(), 0.0),
          std::vector<double>(a.lse.size(), -std::numeric_limits<double>::infinity())};
  const auto at = [](const std::vector<T>& m, index_t i, index_t cols, index_t j) {
    return static_cast<double>(m[static_cast<std::size_t>(i * cols + j)]);
  };
  for (index_t i = 0; i < x.n_q; ++i) {
    const index_t seen = x.mask.visible(i, x.n_k);
    if (seen == 0) continue;
    std::vector<double> s(static_cast<std::size_t>(seen), 0.0);
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (index_t j = 0; j < seen; ++j) {
      for (index_t t = 0; t < x.d; ++t)
        s[static_cast<std::size_t>(j)] += a.scale * at(a.Q, i, x.d, t) * at(a.K, j, x.d, t);
      top = std::max(top, s[static_cast<std::size_t>(j)]);
    }
    for (double& p : s) sum += p = std::exp(p - top);
    for (index_t j = 0; j < seen; ++j)
      for (index_t t = 0; t < x.d_v; ++t)
        r.O[static_cast<std::size_t>(i * x.d_v + t)] += s[static_cast<std::size_t>(j)] / sum * at(a.V, j, x.d_v, t);
    r.lse[static_cast<std::size_t>(i)] = top + std::log(sum);
  }
  return r;
}

/// The largest absolute difference; infinity where NaN or infinities disagree.
template <class T>
double distance(const std::vector<T>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = static_cast<double>(a[i]);
    if (x == b[i]) continue;
    const double gap = std::abs(x - b[i]);
    most = std::isfinite(gap) ? std::max(most, gap) : std::numeric_limits<double>::infinity();
  }
  return most;
}

}  // namespace redblue::test
