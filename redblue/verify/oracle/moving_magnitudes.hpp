#pragma once
#include <utility>

#include "redblue/verify/oracle/dense.hpp"

namespace redblue::oracle {

/// The sums of magnitudes behind the outputs of operation tangent or second: what roundings in them are relative to.
/// Each sum is taken over the magnitudes of its terms, with the true weights, and what is subtracted is added. Dropout
/// is left out.
template <class T>
Matrices<T> moved_magnitudes(const Problem& p, const Matrices<T>& in, index_t instance = 0) {
  using S = SlowArray;
  const bool second = p.op == Operation::second;
  Problem weights = p;
  weights.op = Operation::weights;
  weights.bias_direction = weights.sinks_direction = false;
  Matrices<T> of_weights = in;
  Problem forward = p;
  forward.op = Operation::forward;
  forward.bias_direction = forward.sinks_direction = false;
  const Matrix<T> lse = of_weights[S::lse] = Dense<T>(forward, in, kBlock, instance).lse();
  const Matrix<T> P = Dense<T>(weights, std::move(of_weights), kBlock, instance).forward().at(S::P);
  const auto sizes_of = [&](S a) {
    Matrix<T> m = in.at(a);
    for (T& x : m.words) x = std::abs(x);
    return m;
  };
  const auto times = [](const Matrix<T>& a, const Matrix<T>& b) { return product(a, b, kBlock); };
  const auto mapped = [](Matrix<T> a, const auto& f) {
    for (index_t i = 0; i < a.shape.rows; ++i)
      for (index_t j = 0; j < a.shape.cols; ++j) a(i, j) = f(i, j);
    return a;
  };
  const auto sum_of = [&](const Matrix<T>& a, const Matrix<T>& b) {
    return mapped(a, [&](index_t i, index_t t) { return a(i, t) + b(i, t); });
  };
  const auto row_sums = [&](const Matrix<T>& a) {  // of P o A
    Matrix<T> sums({a.shape.rows, 1});
    for (index_t i = 0; i < a.shape.rows; ++i)
      for (index_t j = 0; j < a.shape.cols; ++j) sums(i, 0) += P(i, j) * a(i, j);
    return sums;
  };
  const T scale = std::abs(static_cast<T>(p.scale_or_default()));
  const Matrix<T> Q = sizes_of(S::Q), K = sizes_of(S::K), V = sizes_of(S::V), A = sizes_of(second ? S::gQ : S::tQ),
                  B = sizes_of(second ? S::gK : S::tK), C = sizes_of(second ? S::gV : S::tV);
  Matrix<T> H = sum_of(times(A, K.transposed()), times(Q, B.transposed()));
  for (T& h : H.words) h *= scale;
  if (p.bias_direction) {
    const Matrix<T>& along = in.at(second ? S::gBias : S::tBias);
    H = mapped(H, [&](index_t i, index_t j) { return H(i, j) + std::abs(along(along.shape.rows == 1 ? 0 : i, j)); });
  }
  Matrix<T> w = row_sums(H);
  const auto head = [&](index_t i) { return i % p.group(); };
  const auto of_sink = [&](index_t i) {  // its weight
    const T sink = in.at(S::sinks)(head(i), 0);
    return std::isinf(sink) ? T(0) : std::exp(sink - lse(i, 0));
  };
  const auto along_sink = [&](index_t i) { return std::abs(in.at(second ? S::gSinks : S::tSinks)(head(i), 0)); };
  for (index_t i = 0; i < w.shape.rows && p.sinks_direction; ++i) w(i, 0) += of_sink(i) * along_sink(i);
  const Matrix<T> PH = mapped(H, [&](index_t i, index_t j) { return P(i, j) * (H(i, j) + w(i, 0)); });
  const Matrix<T> moved_O = sum_of(times(PH, V), times(P, C));
  if (!second) return {{S::tO, moved_O}, {S::tlse, p.has_statistics() ? w : Matrix<T>({H.shape.rows, 0})}};
  const Matrix<T> dO = sizes_of(S::dO), dP = times(dO, V.transposed()), E = times(dO, C.transposed());
  const auto dlse = [&](index_t i) { return p.lse_gradient ? std::abs(in.at(S::dlse)(i, 0)) : T(0); };
  const Matrix<T> own = row_sums(dP), D = mapped(own, [&](index_t i, index_t) { return own(i, 0) + dlse(i); });
  const T bend = p.softcap > 0 ? 2 / static_cast<T>(p.softcap) : T(0);
  const Matrix<T> dS = mapped(P, [&](index_t i, index_t j) { return P(i, j) * (dP(i, j) + D(i, 0)); });
  const Matrix<T> X =
      mapped(P, [&](index_t i, index_t j) { return (dP(i, j) + D(i, 0)) * H(i, j) + E(i, j) + dP(i, j) * w(i, 0); });
  const Matrix<T> x = row_sums(X), G = mapped(P, [&](index_t i, index_t j) {
                                     return P(i, j) * (X(i, j) + x(i, 0)) + bend * H(i, j) * dS(i, j);
                                   });
  Matrix<T> of_bias;
  if (p.bias_direction) of_bias = Matrix<T>(in.at(S::bias).shape);
  for (index_t i = 0; i < G.shape.rows && p.bias_direction; ++i)
    for (index_t j = 0; j < G.shape.cols; ++j) of_bias(of_bias.shape.rows == 1 ? 0 : i, j) += G(i, j);
  Matrix<T> of_sinks;
  if (p.sinks_direction) of_sinks = Matrix<T>(in.at(S::sinks).shape);
  for (index_t i = 0; i < w.shape.rows && p.sinks_direction; ++i)
    of_sinks(head(i), 0) += of_sink(i) * (D(i, 0) * (along_sink(i) + w(i, 0)) + x(i, 0));
  const auto scaled = [&](const Matrix<T>& m) {
    return mapped(m, [&](index_t i, index_t t) { return scale * m(i, t); });
  };
  return {{S::LQ, scaled(sum_of(times(G, K), times(dS, B)))},
          {S::LK, scaled(sum_of(times(G.transposed(), Q), times(dS.transposed(), A)))},
          {S::LV, times(PH.transposed(), dO)},
          {S::LdO, moved_O},
          {S::LBias, of_bias},
          {S::LSinks, of_sinks},
          {S::Ldlse, p.lse_gradient ? w : Matrix<T>({w.shape.rows, 0})}};
}

}  // namespace redblue::oracle
