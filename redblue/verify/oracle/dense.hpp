#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/masks/philox.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/verify/oracle/approximate_rows.hpp"

/// Plain attention and its gradients, one instance at a time and row by row, in any floating-point type: what the
/// definition says and nothing else. The only dense reference of the repository: verify() and the tests use it, and
/// tests/verify/ holds it against central differences and closed forms.
namespace redblue::oracle {

template <class T>
using Matrices = std::map<SlowArray, Matrix<T>>;

/// One instance of a problem: its inputs, and from them everything else. Sums are cut into blocks of `block` terms.
template <class T>
class Dense {
 public:
  Dense(const Problem& p, Matrices<T> inputs, index_t block = kBlock, index_t instance = 0)
      : p_(p),
        x_(p.sizes()),
        scale_(static_cast<T>(p.scale_or_default())),
        block_(block),
        instance_(instance),
        in_(std::move(inputs)),
        sequence_(static_cast<std::size_t>(x_.n_q)),
        place_(static_cast<std::size_t>(x_.n_q)) {
    project();
    if (x_.sequences == nullptr) return;
    order_ = x_.sequences->order_of(instance, modifiers().kv_heads);
    const index_t group = x_.mask.group;
    for (const Sequence& one : x_.sequences->list)
      if (one.batch == x_.sequences->batch_of(instance, modifiers().kv_heads))
        for (index_t r = one.rows.begin; r < one.rows.end; ++r) {
          const index_t position = order_ == nullptr ? r / group : order_->queries[static_cast<std::size_t>(r / group)];
          const auto query = static_cast<std::size_t>(position * group + r % group);
          sequence_[query] = &one;
          place_[query] = r - one.rows.begin;
        }
  }

  const Matrix<T>& at(SlowArray a) const { return in_.at(a); }
  /// Changes an input.
  void set(SlowArray a, const Matrix<T>& value) {
    in_[a] = value;
    project();
  }

  index_t rows() const { return x_.n_q; }
  /// The scores of query i with the keys that it sees.
  std::vector<T> scores(index_t i) const {
    const std::vector<index_t> keys = seen(i);
    std::vector<T> s;
    s.reserve(keys.size());
    for (const index_t j : keys) s.push_back(softcapped(product_of(i, j)) + bias(i, j) - slope(i, j));
    return s;
  }

  /// O and lse; S or P where that is what the problem asks for.
  Matrices<T> forward() const {
    if (is_of_pairs(p_.op)) return pairs();
    Matrix<T> O({x_.n_q, x_.d_v}), lse({x_.n_q, x_.statistics()});
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      const std::vector<T> o = output(i, r);
      std::copy(o.begin(), o.end(), O.words.begin() + i * x_.d_v);
      if (x_.statistics() > 0) lse(i, 0) = r.lse;
    }
    return {{SlowArray::O, O}, {SlowArray::lse, lse}};
  }

  /// lse alone, which needs no values.
  Matrix<T> lse() const {
    Matrix<T> lse({x_.n_q, x_.statistics()});
    for (std::size_t i = 0; i < lse.words.size(); ++i) lse.words[i] = row(static_cast<index_t>(i)).lse;
    return lse;
  }

  /// SUM dO o O, and SUM dlse lse where lse has a gradient, over the rows that see a key
  T loss() const {
    return sum<T>(x_.n_q, block_, [&](index_t i) {
      const Row<T> r = row(i);
      const bool counts = x_.lse_gradient && isfinite(r.lse);
      return dot(at(SlowArray::dO), i, output(i, r)) + (counts ? dlse(i) * r.lse : T(0));
    });
  }

  /// Every gradient of the operation, as functions of O and lse where those are among the inputs.
  Matrices<T> gradients() const {
    const bool given = in_.count(SlowArray::lse) > 0 && x_.statistics() > 0;
    return gradients([&](index_t i) { return given ? row(i, at(SlowArray::lse)(i, 0)) : row(i); },
                     [&](index_t i, const Row<T>& r) {
                       if (!has_row_sums()) return T(0);
                       if (!given) return dot(at(SlowArray::dO), i, output(i, r)) - dlse(i);
                       const auto o = at(SlowArray::O).words.begin() + i * x_.d_v;
                       return dot(at(SlowArray::dO), i, std::vector<T>(o, o + x_.d_v)) - dlse(i);
                     });
  }

  /// What roundings in a sum are relative to: the gradients with every sum taken over the magnitudes of its terms. The
  /// weights are the true ones.
  Matrices<T> gradient_magnitudes() const {
    Matrices<T> in = in_;
    for (auto& [array, m] : in)
      for (T& x : m.words) x = std::abs(x);
    Dense sizes(p_, std::move(in), block_);
    sizes.scale_ = std::abs(scale_);
    const auto weights = [&](index_t i) {
      Row<T> r = row(i);
      for (T& p : r.p) p = std::abs(p);
      for (T& s : r.slope) s = std::abs(s);
      return r;
    };
    // Minus D: what is subtracted adds to the magnitude.
    return sizes.gradients(weights, [&](index_t i, const Row<T>& r) {
      return has_row_sums() ? -dot(sizes.at(SlowArray::dO), i, sizes.output(i, r)) - sizes.dlse(i) : T(0);
    });
  }
  /// The largest finite sum of magnitudes behind an entry of O: its terms may cancel.
  T largest_output_terms() const {
    T most = 0;
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      for (index_t t = 0; t < x_.d_v; ++t) {
        T terms = 0;
        for (std::size_t k = 0; k < r.p.size(); ++k) terms += std::abs(r.p[k] * kept(i, r.keys[k]) * V_(r.keys[k], t));
        if (isfinite(terms)) most = std::max(most, terms);
      }
    }
    return most;
  }
  /// The largest finite term of an entry of dQ, dK, dV and dBias; dP and D, whose difference makes dS, as sums of
  /// magnitudes. A dBias with one entry for all keys, which may be 0, gives the sum of its terms.
  std::map<SlowArray, T> largest_gradient_terms() const {
    const auto largest = [](const Matrix<T>& m, index_t row) {
      T most = 0;
      for (index_t t = 0; t < m.shape.cols; ++t) most = std::max(most, std::abs(m(row, t)));
      return most;
    };
    const Matrix<T>& dO = at(SlowArray::dO);
    const Modifiers m = modifiers();
    T dQ = 0, dK = 0, dV = 0, dBias = 0, sum_of_keys = 0;
    for (index_t i = 0; i < x_.n_q; ++i) {
      if (!m.bias_over_positions) sum_of_keys = 0;
      const Row<T> r = row(i);
      const std::vector<T> o = output(i, r);
      const auto magnitudes = [&](const auto& other) {
        return sum<T>(x_.d_v, block_, [&](index_t t) { return std::abs(dO(i, t) * other(t)); });
      };
      const T D = std::abs(dlse(i)) +
                  (has_row_sums() ? magnitudes([&](index_t t) { return o[static_cast<std::size_t>(t)]; }) : T(0));
      for (std::size_t k = 0; k < r.p.size(); ++k) {
        const index_t j = r.keys[k];
        const T dP = kept(i, j) * magnitudes([&](index_t t) { return V_(j, t); });
        const T dScore = std::abs(steepness(r, k)) * (dP + D), dS = std::abs(scale_) * dScore;
        sum_of_keys += dScore;
        const auto take = [](T& most, T term) { most = isfinite(term) ? std::max(most, term) : most; };
        take(dBias, m.bias_over_keys ? sum_of_keys : dScore);
        take(dQ, dS * largest(K_, j));
        take(dK, dS * largest(Q_, i));
        take(dV, std::abs(r.p[k]) * largest(dO, i));
      }
    }
    return {{SlowArray::dQ, dQ}, {SlowArray::dK, dK}, {SlowArray::dV, dV}, {SlowArray::dBias, dBias}};
  }

  /// Takes what tells the rows of an approximation apart, and its draws, as this much larger.
  void nudge(T by) {
    nudge_ = by;
    project();
  }
  /// How many rows of a problem with an approximation are exact all the same.
  index_t exact_rows() const {
    index_t rows = 0;
    for (index_t i = 0; i < x_.n_q; ++i) rows += approximate_->is_exact(i) ? 1 : 0;
    return rows;
  }

  /// The largest ApproximateRows::magnitude of a row.
  T monomial_magnitude() const {
    T most = 0;
    for (index_t i = 0; i < x_.n_q; ++i) most = std::max(most, approximate_->magnitude(i, seen(i)));
    return most;
  }

  /// The sum of magnitudes behind dSinks, of all heads together.
  T sinks_gradient_magnitude() const {
    T total = 0;
    for (index_t i = 0; i < x_.n_q; ++i) {
      const Row<T> r = row(i);
      const std::vector<T> o = output(i, r);
      T terms = std::abs(dlse(i));
      for (index_t t = 0; t < x_.d_v; ++t) terms += std::abs(at(SlowArray::dO)(i, t) * o[static_cast<std::size_t>(t)]);
      if (!isinf(sink(i))) total += exp(sink(i) - r.lse) * terms;
    }
    return total;
  }

 private:
  /// Are its weights divided by their sum?
  bool has_row_sums() const { return p_.score == Score::softmax; }
  const Modifiers& modifiers() const { return x_.modifiers; }
  /// A word for each pair, hidden ones too. Weights are those of the lse that is given, or of their own.
  Matrices<T> pairs() const {
    const bool weights = p_.op == Operation::weights, given = in_.count(SlowArray::lse) > 0 && x_.statistics() > 0;
    Matrix<T> all({x_.n_q, x_.n_k});
    if (!weights) std::fill(all.words.begin(), all.words.end(), -std::numeric_limits<T>::infinity());
    for (index_t i = 0; i < x_.n_q; ++i) {
      const std::vector<index_t> keys = seen(i);
      const std::vector<T> words = !weights ? scores(i) : given ? row(i, at(SlowArray::lse)(i, 0)).p : row(i).p;
      for (std::size_t k = 0; k < keys.size(); ++k) all(i, keys[k]) = words[k];
    }
    return {{weights ? SlowArray::P : SlowArray::S, std::move(all)}};
  }
  T product_of(index_t i, index_t j) const {
    return scale_ * sum<T>(x_.d, block_, [&](index_t t) { return Q_(i, t) * K_(j, t); });
  }
  T softcapped(T s) const {
    const T cap = static_cast<T>(modifiers().softcap);
    return cap > 0 ? cap * tanh(s / cap) : s;
  }
  /// The derivative of the softcap.
  T softcap_slope(index_t i, index_t j) const {
    const T cap = static_cast<T>(modifiers().softcap);
    if (!(cap > 0)) return T(1);
    const T t = tanh(product_of(i, j) / cap);
    return 1 - t * t;
  }
  index_t bias_row(index_t i) const { return at(SlowArray::bias).shape.rows == 1 ? 0 : i; }
  T bias(index_t i, index_t j) const {
    return modifiers().bias == Modifiers::Bias::none ? T(0) : at(SlowArray::bias)(bias_row(i), j);
  }
  index_t head(index_t i) const { return i % x_.mask.group; }
  T slope(index_t i, index_t j) const {
    if (!modifiers().slopes) return T(0);
    const index_t group = x_.mask.group;
    const Sequence* one = sequence_[static_cast<std::size_t>(i)];
    const index_t distance = one == nullptr
                                 ? std::abs(i / group + modifiers().slope_offset - j)
                                 : std::abs((i - one->rows.begin) / group + one->slope_offset - (j - one->keys.begin));
    return at(SlowArray::slopes)(head(i), 0) * static_cast<T>(distance);
  }
  /// What dropout multiplies a weight with.
  T kept(index_t i, index_t j) const {
    const Modifiers& m = modifiers();
    if (m.dropout == 0) return T(1);
    const index_t group = x_.mask.group;
    const bool keeps = dropout_keeps(m.seed, m.dropout, m.dropped_head(instance_, group) + head(i),
                                     m.drop_row + i / group, m.drop_col + j);
    return keeps ? static_cast<T>(1 / (1 - m.dropout)) : T(0);
  }
  /// The gradient of lse of a row.
  T dlse(index_t i) const { return x_.lse_gradient ? at(SlowArray::dlse)(i, 0) : T(0); }
  /// The score of the sink of a row: -inf where there is none.
  T sink(index_t i) const {
    return modifiers().sinks ? at(SlowArray::sinks)(head(i), 0) : -std::numeric_limits<T>::infinity();
  }
  /// The keys of query i.
  std::vector<index_t> seen(index_t i) const {
    std::vector<index_t> keys;
    const auto add = [&](index_t origin, Range run) {
      for (index_t j = run.begin; j < run.end; ++j)
        keys.push_back(order_ == nullptr ? origin + j : order_->keys[static_cast<std::size_t>(origin + j)]);
    };
    const Sequence* one = sequence_[static_cast<std::size_t>(i)];
    const index_t row = place_[static_cast<std::size_t>(i)];
    if (x_.sequences == nullptr)
      add(0, x_.mask.keys(i, x_.n_k));
    else if (one != nullptr && one->pattern != nullptr)
      for (const Range& run : one->pattern->rows().of(row)) add(one->keys.begin, run);
    else if (one != nullptr)
      add(one->keys.begin, one->mask.keys(row, one->keys.size()));
    return keys;
  }
  T dot(const Matrix<T>& m, index_t i, const std::vector<T>& x) const {
    return sum<T>(m.shape.cols, block_, [&](index_t t) { return m(i, t) * x[static_cast<std::size_t>(t)]; });
  }
  /// The weights of one query, and its lse. A row that sees no key, or whose scores are all -inf, has weights 0. The
  /// weights are summed again from lse: from the maximum, equal scores have weights 1, whose sum rounds nowhere.
  Row<T> row(index_t i) const {
    if (p_.score != Score::softmax) return row(i, T(0));
    if (approximate_ != nullptr && !approximate_->is_exact(i)) return approximate_->row(i, seen(i));
    Row<T> r;
    r.keys = seen(i);
    const std::vector<T> s = scores(i);
    T m = sink(i);
    for (const T x : s)
      if (x > m || isnan(x)) m = x;
    r.p.resize(s.size());
    if (m == r.lse) return r;
    const auto total_from = [&](T shift) {
      for (std::size_t j = 0; j < s.size(); ++j) r.p[j] = exp(s[j] - shift);
      const T all =
          sum<T>(static_cast<index_t>(s.size()), block_, [&](index_t j) { return r.p[static_cast<std::size_t>(j)]; });
      return modifiers().sinks ? all + exp(sink(i) - shift) : all;
    };
    r.lse = m + log(total_from(m));
    const T z = total_from(r.lse);
    for (T& p : r.p) p /= z;
    return r;
  }
  /// The row with a given lse: the softmax has exp(s - lse), and 0 where lse = -inf says that the row saw no key.
  Row<T> row(index_t i, T lse) const {
    Row<T> r{scores(i), seen(i), lse};
    if (p_.score != Score::softmax) r.slope = r.p;
    for (T& s : r.slope) s = slope_of(s);
    for (T& p : r.p) p = weight_of(p, lse);
    return r;
  }
  /// f(s); 0 of a score that is -inf.
  T weight_of(T s, T lse) const {
    switch (p_.score) {
      case Score::softmax:
        return isinf(lse) && lse < 0 ? T(0) : exp(s - lse);
      case Score::sigmoid:
        return logistic(s);
      case Score::relu:
        return s > 0 || isnan(s) ? s : T(0);
      case Score::identity:
        return s == -std::numeric_limits<T>::infinity() ? T(0) : s;
    }
    return s;
  }
  /// f'(s) of a score function without statistics.
  T slope_of(T s) const {
    if (p_.score == Score::identity) return s == -std::numeric_limits<T>::infinity() ? T(0) : T(1);
    if (p_.score == Score::relu) return s > 0 ? T(1) : T(0);
    const T p = weight_of(s, T(0));
    return p * (1 - p);
  }
  /// What dP - D is multiplied with in the gradient of score k of a row.
  static T steepness(const Row<T>& r, std::size_t k) { return r.slope.empty() ? r.p[k] : r.slope[k]; }
  /// Row i of O.
  std::vector<T> output(index_t i, const Row<T>& r) const {
    VectorSum<T> o(x_.d_v, block_);
    for (std::size_t k = 0; k < r.p.size(); ++k, o.end_term()) {
      const index_t j = r.keys[k];
      const T p = r.p[k] * kept(i, j);
      for (index_t t = 0; t < x_.d_v; ++t) o.part(t) += p * V_(j, t);
    }
    std::vector<T> words = o.total();
    if (approximate_ != nullptr) approximate_->finish(words, V_);
    return words;
  }

  /// From the weights of each row and its D = rowsum(dO o O) - dlse.
  template <class Weights, class RowD>
  Matrices<T> gradients(const Weights& weights, const RowD& D_of) const {
    Matrix<T> dQ(Q_.shape), dK(K_.shape), dV(V_.shape);
    VectorSum<T> to_K(K_.shape.words(), block_), to_V(V_.shape.words(), block_);  // terms: queries
    const Matrix<T>& dO = at(SlowArray::dO);
    Matrix<T> dBias, dSinks;
    if (modifiers().forms_bias_gradient()) dBias = Matrix<T>(at(SlowArray::bias).shape);
    if (modifiers().sinks_gradient) dSinks = Matrix<T>(at(SlowArray::sinks).shape);
    for (index_t i = 0; i < x_.n_q; ++i, to_K.end_term(), to_V.end_term()) {
      const Row<T> r = weights(i);
      const T D = D_of(i, r);
      if (modifiers().sinks_gradient && !isinf(sink(i))) dSinks(head(i), 0) -= exp(sink(i) - r.lse) * D;
      VectorSum<T> to_Q(x_.d, block_);  // terms: keys
      for (std::size_t k = 0; k < r.keys.size(); ++k, to_Q.end_term()) {
        const index_t j = r.keys[k];
        const T p = r.p[k];
        const T keep = kept(i, j);
        const T dP = keep * sum<T>(x_.d_v, block_, [&](index_t t) { return dO(i, t) * V_(j, t); });
        for (index_t t = 0; t < x_.d_v; ++t) to_V.part(j * x_.d_v + t) += keep * p * dO(i, t);
        const T times = steepness(r, k), dScore = times == T(0) ? T(0) : times * (dP - D);
        if (modifiers().forms_bias_gradient()) dBias(bias_row(i), j) += dScore;
        const T dS = scale_ * dScore * softcap_slope(i, j);
        for (index_t t = 0; t < x_.d; ++t) {
          to_Q.part(t) += dS * K_(j, t);
          to_K.part(j * x_.d + t) += dS * Q_(i, t);
        }
      }
      const std::vector<T> words = to_Q.total();
      std::copy(words.begin(), words.end(), dQ.words.begin() + i * x_.d);
    }
    dK.words = to_K.total();
    dV.words = to_V.total();
    Matrices<T> all = chained(dQ, dK, dV);
    if (!is_projected(p_.op)) {
      all[SlowArray::dBias] = std::move(dBias);
      all[SlowArray::dSinks] = std::move(dSinks);
    }
    return all;
  }

  const Matrix<T>& source(SlowArray a) const {
    if (a == SlowArray::A3 && p_.sources != Sources::distinct) a = SlowArray::A2;
    if (a == SlowArray::A2 && p_.sources == Sources::self) a = SlowArray::A1;
    return at(a);
  }

  Matrix<T> times(const Matrix<T>& a, const Matrix<T>& b) const { return product(a, b, block_); }
  void project() {
    set_rows();
    if constexpr (std::is_floating_point_v<T>)
      if (x_.approximation != nullptr) approximate();
  }
  void approximate() {
    Instance<T> one{x_, scale_, Q_, K_, block_, {0, 0}, {0, 0}, x_.mask.hi != Mask::kFar, nudge_};
    for (index_t i = 0; i < x_.n_q; ++i) {
      const std::vector<index_t> keys = seen(i);
      if (keys.empty()) continue;
      const Range all{keys.front(), keys.back() + 1};
      one.keys =
          one.queries.size() == 0 ? all : Range{std::min(one.keys.begin, all.begin), std::max(one.keys.end, all.end)};
      one.queries = {one.queries.size() == 0 ? i : one.queries.begin, i + 1};
    }
    approximate_ = x_.approximation->rows(one);
  }
  void set_rows() {
    switch (p_.op) {
      case Operation::forward:
      case Operation::backward:
      case Operation::tangent:
      case Operation::second:
        V_ = at(SlowArray::V);
        [[fallthrough]];
      case Operation::scores:
      case Operation::weights:
        Q_ = at(SlowArray::Q);
        K_ = at(SlowArray::K);
        return;
      case Operation::backward_w:
        Q_ = times(source(SlowArray::A1), at(SlowArray::WQ));
        K_ = times(source(SlowArray::A2), at(SlowArray::WK));
        V_ = times(source(SlowArray::A3), at(SlowArray::WV));
        return;
      case Operation::forward_x:
      case Operation::gradient_x:
      case Operation::backward_x:
        Q_ = times(source(SlowArray::A1), at(SlowArray::X));
        K_ = source(SlowArray::A2);
        V_ = times(source(SlowArray::A3), at(SlowArray::Y));
        return;
      case Operation::merge:
        break;
    }
    throw std::logic_error("an operation without Q and K");
  }

  /// From dQ, dK, dV to the gradients of what Q, K, V were made of.
  Matrices<T> chained(const Matrix<T>& dQ, const Matrix<T>& dK, const Matrix<T>& dV) const {
    const auto transposed = [&](SlowArray a) { return source(a).transposed(); };
    switch (p_.op) {
      case Operation::forward:
      case Operation::backward:
      case Operation::second:
        return {{SlowArray::dQ, dQ}, {SlowArray::dK, dK}, {SlowArray::dV, dV}};
      case Operation::gradient_x:
        return {{SlowArray::g, times(transposed(SlowArray::A1), dQ)}};
      case Operation::backward_x:
        return {{SlowArray::dX, times(transposed(SlowArray::A1), dQ)},
                {SlowArray::dY, times(transposed(SlowArray::A3), dV)},
                {SlowArray::dA1, times(dQ, at(SlowArray::X).transposed())},
                {SlowArray::dA2, dK},
                {SlowArray::dA3, times(dV, at(SlowArray::Y).transposed())}};
      case Operation::backward_w:
        return {{SlowArray::dWQ, times(transposed(SlowArray::A1), dQ)},
                {SlowArray::dWK, times(transposed(SlowArray::A2), dK)},
                {SlowArray::dWV, times(transposed(SlowArray::A3), dV)},
                {SlowArray::dA1, times(dQ, at(SlowArray::WQ).transposed())},
                {SlowArray::dA2, times(dK, at(SlowArray::WK).transposed())},
                {SlowArray::dA3, times(dV, at(SlowArray::WV).transposed())}};
      case Operation::forward_x:
      case Operation::scores:
      case Operation::weights:
      case Operation::merge:
      case Operation::tangent:
        break;
    }
    throw std::logic_error("an operation without gradients");
  }

  Problem p_;
  Sizes x_;
  T scale_;
  index_t block_;
  index_t instance_;
  Matrices<T> in_;
  std::vector<const Sequence*> sequence_;  ///< of each query
  std::vector<index_t> place_;             ///< of each query in its sequence
  const Order* order_ = nullptr;
  Matrix<T> Q_, K_, V_;
  T nudge_ = 1;
  std::shared_ptr<const ApproximateRows<T>> approximate_{};  ///< null: exact attention
};

}  // namespace redblue::oracle
