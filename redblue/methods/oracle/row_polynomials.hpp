#pragma once
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "redblue/methods/maths/row_polynomials.hpp"
#include "redblue/methods/oracle/weights.hpp"

/// Weights of polynomials in place of e^z, for the oracle.
namespace redblue::oracle {

/// Weights p(s) / SUM p(s) for the scores s.
template <class T>
class PolynomialRows final : public ApproximateRows<T> {
 public:
  PolynomialRows(const Polynomial& p, const Instance<T>& x) : p_(p), x_(x) {}

  Row<T> row(index_t i, std::vector<index_t> keys) const override {
    Row<T> r{{}, std::move(keys)};
    r.p.reserve(r.keys.size());
    for (const index_t j : r.keys) r.p.push_back(score(i, j));
    r.slope = r.p;
    for (T& s : r.slope) s = p_.slope(s);
    for (T& s : r.p) s = p_(s);
    const T all =
        sum<T>(static_cast<index_t>(r.p.size()), x_.block, [&](index_t j) { return r.p[static_cast<std::size_t>(j)]; });
    for (std::vector<T>* words : {&r.p, &r.slope})
      for (T& w : *words) w /= all;
    return r;
  }
  /// SUM p+(m) / SUM p(s): m is the score of the magnitudes of q and k, p+ has the magnitudes of the coefficients.
  T magnitude(index_t i, const std::vector<index_t>& keys) const override {
    T terms = 0, weights = 0;
    for (const index_t j : keys) {
      weights += p_(score(i, j));
      terms += magnitudes(p_, std::abs(x_.scale) * sum<T>(x_.Q.shape.cols, x_.block, [&](index_t t) {
                                return std::abs(x_.Q(i, t) * x_.K(j, t));
                              }));
    }
    return weights != T(0) ? std::abs(terms / weights) : T(0);
  }
  /// p+(m)
  static T magnitudes(const Polynomial& p, T m) {
    T all = 0;
    for (std::size_t l = p.c.size(); l > 0; --l) all = all * m + std::abs(static_cast<T>(p.c[l - 1]));
    return all;
  }

 private:
  T score(index_t i, index_t j) const {
    return x_.scale * sum<T>(x_.Q.shape.cols, x_.block, [&](index_t t) { return x_.Q(i, t) * x_.K(j, t); });
  }

  Polynomial p_;
  Instance<T> x_;
};

/// Each row has its own polynomial. Weights p(s), e^s for the exact keys and for those that the row meets in a cluster,
/// over their sum; s is of the centred keys.
template <class T>
class RowPolynomialRows final : public ApproximateRows<T> {
 public:
  /// Finds what rows need of the keys: the mean of all that a row sees, and of those that one row sees, which are the
  /// first of them, those farthest from it, and how far the others are.
  RowPolynomialRows(const RowPolynomials& fits, const Instance<T>& x) : fits_(fits), x_(x) {
    const Range all = x_.keys;
    const index_t d = x_.sizes.d;
    mean_.assign(static_cast<std::size_t>(d), T(0));
    if (fits_.centred && all.size() > 0)
      for (index_t t = 0; t < d; ++t)
        mean_[static_cast<std::size_t>(t)] =
            sum<T>(all.size(), x_.block, [&](index_t j) { return x_.K(all.begin + j, t); }) /
            static_cast<T>(all.size());
    far_up_to_.assign(static_cast<std::size_t>(x_.sizes.n_k), x_.sizes.n_k);
    longest_.assign(static_cast<std::size_t>(all.end) + 1, T(0));
    std::set<std::pair<T, index_t>> far;  // lengths, and the last key first
    for (index_t j = all.begin; j < all.end; ++j) {
      const T square = sum<T>(d, x_.block, [&](index_t t) { return (x_.K(j, t) - mean(t)) * (x_.K(j, t) - mean(t)); });
      far.emplace(std::sqrt(square), -j);
      T& longest = longest_[static_cast<std::size_t>(j) + 1] = longest_[static_cast<std::size_t>(j)];
      if (std::ssize(far) <= fits_.exact_keys) continue;
      far_up_to_[static_cast<std::size_t>(-far.begin()->second)] = j;
      longest = std::max(longest, far.begin()->first);
      far.erase(far.begin());
    }
    if (fits_.cluster == 0) return;
    Instance<T> whole = x_;
    whole.queries = {0, x_.sizes.n_q};
    whole.keys = {0, x_.sizes.n_k};
    clusters_ = {Smyrf{1, fits_.cluster, fits_.seed}, whole};
  }

  bool is_exact(index_t i) const override { return fits_.exact_rows && !(radius(i) <= static_cast<T>(fits_.range())); }
  Row<T> row(index_t i, std::vector<index_t> keys) const override {
    const index_t number = number_of_polynomial(i);
    const Polynomial& p = fits_[number];
    const T unit = static_cast<T>(fits_.log_unit(number));
    Row<T> r{{}, std::move(keys)};
    T m = -std::numeric_limits<T>::infinity();
    for (const index_t j : r.keys) m = std::max(m, is_exact_pair(i, j) ? centred_score(i, j) : unit);
    for (const index_t j : r.keys) {
      const T s = centred_score(i, j);
      r.p.push_back(is_exact_pair(i, j) ? std::exp(s - m) : p(s) * std::exp(unit - m));
    }
    const T all =
        sum<T>(static_cast<index_t>(r.p.size()), x_.block, [&](index_t j) { return r.p[static_cast<std::size_t>(j)]; });
    for (T& w : r.p) w /= all;
    return r;
  }
  T magnitude(index_t i, const std::vector<index_t>& keys) const override {
    if (is_exact(i)) return 0;
    const index_t number = number_of_polynomial(i);
    const Polynomial& p = fits_[number];
    const T unit = static_cast<T>(fits_.log_unit(number));
    T terms = 0, weights = 0;
    for (const index_t j : keys) {
      if (is_exact_pair(i, j)) {
        weights += std::exp(centred_score(i, j) - unit);
        if (is_far(i, j)) continue;  // it is not in the state
      } else {
        weights += p(centred_score(i, j));
      }
      terms += PolynomialRows<T>::magnitudes(p, std::abs(x_.scale) * sum<T>(x_.sizes.d, x_.block, [&](index_t t) {
                                                  return std::abs(x_.Q(i, t) * (x_.K(j, t) - mean(t)));
                                                }));
    }
    return weights != T(0) ? std::abs(terms / weights) : T(0);
  }

 private:
  T mean(index_t t) const { return mean_[static_cast<std::size_t>(t)]; }
  T centred_score(index_t i, index_t j) const {
    return x_.scale * sum<T>(x_.sizes.d, x_.block, [&](index_t t) { return x_.Q(i, t) * (x_.K(j, t) - mean(t)); });
  }
  /// What tells rows apart: no score of this row with a key that is not exact exceeds its radius; the spread is the
  /// root of their mean square.
  T radius(index_t i) const {
    if (fits_.by_spread()) return x_.nudge * spread_of(i);
    return x_.nudge * std::abs(x_.scale) * longest_[static_cast<std::size_t>(end_of_seen(i))] *
           std::sqrt(sum<T>(x_.sizes.d, x_.block, [&](index_t t) { return x_.Q(i, t) * x_.Q(i, t); }));
  }
  T spread_of(index_t i) const {
    std::vector<T> squares;
    squares.reserve(static_cast<std::size_t>(x_.keys.size()));
    for (index_t j = x_.keys.begin; j < x_.keys.end; ++j)
      if (!is_far(i, j)) squares.push_back(centred_score(i, j) * centred_score(i, j));
    const auto n = static_cast<index_t>(squares.size());
    if (n == 0) return 0;
    return std::sqrt(sum<T>(n, x_.block, [&](index_t k) { return squares[static_cast<std::size_t>(k)]; }) /
                     static_cast<T>(n));
  }
  /// Where the keys end that row i sees.
  index_t end_of_seen(index_t i) const {
    const Range keys = x_.sizes.mask.keys(i, x_.sizes.n_k);
    return keys.size() > 0 ? keys.end : 0;
  }
  /// Is key j among the farthest of those that row i sees?
  bool is_far(index_t i, index_t j) const { return end_of_seen(i) <= far_up_to_[static_cast<std::size_t>(j)]; }
  /// Has this pair of a row that is not exact the weight e^z?
  bool is_exact_pair(index_t i, index_t j) const { return is_far(i, j) || clusters_.meet(i, j); }
  /// The first of the grid whose range holds the radius; else the last.
  index_t number_of_polynomial(index_t i) const {
    const T r = radius(i);
    for (index_t k = 0; k < fits_.steps(); ++k)
      if (r <= static_cast<T>(fits_.step()) * static_cast<T>(k + 1)) return k;
    return fits_.steps() - 1;
  }

  RowPolynomials fits_;
  Instance<T> x_;
  std::vector<T> mean_{};             ///< of the keys; 0 where they are not centred
  std::vector<index_t> far_up_to_{};  ///< a key has an exact weight in rows whose keys end there or before
  std::vector<T> longest_{};          ///< of the keys before this one, how far the others are
  MethodWeights<T> clusters_{};       ///< where pairs meet that have exact weights
};

}  // namespace redblue::oracle
