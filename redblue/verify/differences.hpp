#pragma once
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "redblue/verify/comparison.hpp"

/// Gradients and tangents against central differences of the oracle.
namespace redblue::comparison {

using oracle::Dense;

/// The input a gradient belongs to.
inline SlowArray input_of(SlowArray gradient) {
  switch (gradient) {
    case SlowArray::dQ:
    case SlowArray::LQ:
      return SlowArray::Q;
    case SlowArray::dK:
    case SlowArray::LK:
      return SlowArray::K;
    case SlowArray::dV:
    case SlowArray::LV:
      return SlowArray::V;
    case SlowArray::LdO:
      return SlowArray::dO;
    case SlowArray::Ldlse:
      return SlowArray::dlse;
    case SlowArray::g:
    case SlowArray::dX:
      return SlowArray::X;
    case SlowArray::dBias:
    case SlowArray::LBias:
      return SlowArray::bias;
    case SlowArray::dSinks:
    case SlowArray::LSinks:
      return SlowArray::sinks;
    case SlowArray::dY:
      return SlowArray::Y;
    case SlowArray::dA1:
      return SlowArray::A1;
    case SlowArray::dA2:
      return SlowArray::A2;
    case SlowArray::dA3:
      return SlowArray::A3;
    case SlowArray::dWQ:
      return SlowArray::WQ;
    case SlowArray::dWK:
      return SlowArray::WK;
    default:
      return SlowArray::WV;
  }
}

/// Which entries of one instance's bias, rows those of stacked query heads, are one word.
class SharedWords {
 public:
  explicit SharedWords(const Problem& p) : m_(p.modifiers()), group_(p.group()) {}
  /// The first entry that is the same word as this one.
  index_t first(Shape shape, index_t entry) const {
    if (shape.rows == 1) return m_.bias_over_keys ? 0 : entry;
    const index_t row = entry / shape.cols, position = m_.bias_over_positions ? 0 : row / group_,
                  head = m_.bias_over_group ? 0 : row % group_;
    return (position * group_ + head) * shape.cols + (m_.bias_over_keys ? 0 : entry % shape.cols);
  }
  /// f(entry, the first that is the same word), in order.
  template <class F>
  void for_entries(Shape shape, const F& f) const {
    for (index_t e = 0; e < shape.words(); ++e)
      f(static_cast<std::size_t>(e), static_cast<std::size_t>(first(shape, e)));
  }

 private:
  Modifiers m_;
  index_t group_;
};

/// What f(by) says of a slope, by central differences at two step widths. `gradient` is ours, a sum of terms whose
/// magnitudes add up to `absolute`.
template <class F>
Difference extrapolated(double gradient, double absolute, const F& f) {
  const auto slope = [&](double step) {
    using Wide = decltype(f(0));
    return static_cast<double>((f(static_cast<Wide>(step)) - f(static_cast<Wide>(-step))) /
                               static_cast<Wide>(2 * step));
  };
  const double coarse = slope(2e-5), fine = slope(1e-5);
  Difference d;
  d.gradient = gradient;
  d.difference = fine + (fine - coarse) / 3;
  d.tolerance = std::abs(fine - coarse) + 1e-6 * absolute;
  return d;
}

/// A score beyond this, of a bias or a sink, hides a key or hides all others.
inline constexpr double kLargeScore = 1e4;

/// What the outputs are gradients of.
template <class Wide>
Wide loss_of(const Problem& p, const Dense<Wide>& dense) {
  using S = SlowArray;
  if (p.op != Operation::second) return dense.loss();
  const Matrices<Wide> found = dense.gradients();
  Wide total = 0;  // <gQ, dQ> + <gK, dK> + <gV, dV> + <gBias, dBias> + <gSinks, dSinks>
  std::vector<std::pair<S, S>> pairs{{S::dQ, S::gQ}, {S::dK, S::gK}, {S::dV, S::gV}};
  if (p.bias_direction) pairs.emplace_back(S::dBias, S::gBias);
  if (p.sinks_direction) pairs.emplace_back(S::dSinks, S::gSinks);
  for (const auto& [gradient, direction] : pairs)
    for (std::size_t i = 0; i < dense.at(direction).words.size(); ++i)
      total += found.at(gradient).words[i] * dense.at(direction).words[i];
  return total;
}

/// One gradient of one instance along a random direction, by central differences at two step widths. Entries that are
/// one word move together.
template <class Wide>
Difference difference_of(const Problem& p, const Dense<Wide>& dense, SlowArray gradient, const Matrix<double>& ours,
                         std::mt19937_64& random) {
  const Matrix<Wide>& at = dense.at(input_of(gradient));
  Matrix<Wide> u(at.shape);
  std::normal_distribution<double> normal;
  double size = 0, inner = 0, absolute = 0;
  for (const Wide& x : at.words) size += static_cast<double>(x * x);
  size = std::sqrt(size / static_cast<double>(at.words.size()));
  if (is_of_modifiers(gradient)) size = 1;  // scores, of which some may say that a key is hidden: those stay
  const auto stays = [&](Wide x) { return is_of_modifiers(gradient) && !(std::abs(x) < Wide(kLargeScore)); };
  const SharedWords words(p);
  for (std::size_t i = 0; i < u.words.size(); ++i) {
    if (is_bias_gradient(gradient))
      if (const auto first = static_cast<std::size_t>(words.first(u.shape, static_cast<index_t>(i))); first < i) {
        u.words[i] = u.words[first];
        continue;
      }
    u.words[i] = stays(at.words[i]) ? Wide(0) : static_cast<Wide>(normal(random) * (size > 0 ? size : 1));
    inner += static_cast<double>(u.words[i]) * ours.words[i];
    absolute += std::abs(static_cast<double>(u.words[i]) * ours.words[i]);
  }
  Dense<Wide> moved = dense;
  const auto loss = [&](Wide by) {
    Matrix<Wide> x = at;
    for (std::size_t i = 0; i < x.words.size(); ++i) x.words[i] += by * u.words[i];
    moved.set(input_of(gradient), x);
    return loss_of(p, moved);
  };
  return extrapolated(inner, absolute, loss);
}

/// A tangent, of tO or tlse, along a random direction of outputs: rows without an lse stay out of it.
template <class Wide>
Difference tangent_difference(const Problem& p, const Dense<Wide>& dense, SlowArray tangent, const Matrix<double>& ours,
                              std::mt19937_64& random) {
  using S = SlowArray;
  const Matrix<Wide> lse = dense.lse();
  Matrix<Wide> u(ours.shape);
  std::normal_distribution<double> normal;
  double inner = 0, absolute = 0;
  for (index_t i = 0; i < u.shape.rows; ++i)
    for (index_t t = 0; t < u.shape.cols; ++t) {
      if (lse.shape.cols > 0 && !std::isfinite(lse(i, 0))) continue;
      u(i, t) = static_cast<Wide>(normal(random));
      inner += static_cast<double>(u(i, t)) * ours(i, t);
      absolute += std::abs(static_cast<double>(u(i, t)) * ours(i, t));
    }
  std::vector<std::pair<S, S>> moving{{S::Q, S::tQ}, {S::K, S::tK}, {S::V, S::tV}};
  if (p.bias_direction) moving.emplace_back(S::bias, S::tBias);
  if (p.sinks_direction) moving.emplace_back(S::sinks, S::tSinks);
  Dense<Wide> moved = dense;
  const auto along_u = [&](Wide by) {
    for (const auto& [of, direction] : moving) {
      Matrix<Wide> x = dense.at(of);
      for (std::size_t i = 0; i < x.words.size(); ++i) x.words[i] += by * dense.at(direction).words[i];
      moved.set(of, x);
    }
    const Matrices<Wide> all = moved.forward();
    const Matrix<Wide>& output = all.at(tangent == S::tO ? S::O : S::lse);
    Wide total = 0;
    for (std::size_t i = 0; i < u.words.size(); ++i)
      if (u.words[i] != Wide(0)) total += u.words[i] * output.words[i];
    return total;
  };
  return extrapolated(inner, absolute, along_u);
}

}  // namespace redblue::comparison
