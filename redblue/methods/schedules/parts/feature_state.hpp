#pragma once
#include "redblue/kernels/weights.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/state_passes.hpp"

/// The state of random features, Z = SUM_j phi(k_j) v_j^T and z = SUM_j phi(k_j), in units of e^c, c being the largest
/// logarithm of a feature so far; or some of its rows and columns.
namespace redblue::schedule {

/// f(P, first) for the logarithms P of these features of some rows, `step` of them at a time; the first of P is number
/// `first` of these features.
template <class M, class F>
void for_logarithms(M& m, const ForwardOperands& x, const Tile<M>& rows, Range features, index_t step, bool of_keys,
                    const F& f) {
  const Performer& method = std::get<Performer>(method_of(x.shape));
  const auto room = m.alloc(SlowArray::S, {rows.shape().rows, step});
  for (index_t a = 0; a < features.size(); a += step) {
    const Arg P = room.cols(std::min(step, features.size() - a));
    m.compute(kernel::RandomFeatures{method.features, method.seed, features.begin + a, x.scale, of_keys}, P, rows);
    f(P, a);
  }
}

/// c <- the largest logarithm of a feature of all keys, which pass bc at a time.
template <class M>
void largest_logarithm_of_keys(M& m, const ForwardOperands& x, const Tile<M>& c, index_t bc, index_t step) {
  const Range features{0, std::get<Performer>(method_of(x.shape)).features};
  m.compute(kernel::MinusInfinity{}, c);
  for (index_t j = 0; j < x.shape.n_k; j += bc) {
    const auto K_j = m.load(x.K.rows(j, std::min(bc, x.shape.n_k - j))), none = m.alloc(SlowArray::Z, {0, 1});
    for_logarithms(m, x, K_j, features, step, true,
                   [&](const Arg& P, index_t) { m.compute(kernel::RescaleState{}, P, none, none, c); });
  }
}

template <class M>
class FeatureState {
 public:
  /// The state of these features and columns; it forms `step` features of a block of rows at a time.
  FeatureState(M& m, Range features, StateColumns columns, index_t step)
      : features_(features),
        values_{columns.first, columns.first + columns.values},
        step_(std::min(step, features.size())),
        Z_(m, SlowArray::Z, {features.size(), columns.values}, Layout::row_major),
        z_(m, SlowArray::Z, {features.size(), columns.sums}, Layout::row_major) {
    m.compute(kernel::Zero{}, Z_);
    m.compute(kernel::Zero{}, z_);
  }

  /// The keys J enter.
  void add(M& m, const ForwardOperands& x, const Tile<M>& c, Range J) const {
    const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.block(J, values_));
    for_steps(m, x, K_j, true, [&](const Arg& P, index_t first) {
      m.compute(kernel::RescaleState{}, P, Z_, z_, c);
      m.compute(kernel::Gemm{true, false}, Z_.rows(first, P.shape().cols), P, V_j);
      if (z_.shape().cols > 0) m.compute(kernel::AddColumnSums{}, z_.rows(first, P.shape().cols), P);
    });
  }
  /// num, den += features of the queries I times the state, relative to the largest so far, `most`.
  void add_to(M& m, const ForwardOperands& x, Range I, const Tile<M>& num, const Tile<M>& most,
              const Tile<M>& den) const {
    const auto Q_i = m.load(x.Q.rows(I));
    for_steps(m, x, Q_i, false, [&](const Arg& P, index_t first) {
      m.compute(kernel::RescaleRows{}, P, num, den, most);
      m.compute(kernel::Gemm{}, num, P, Z_.rows(first, P.shape().cols));
      m.compute(kernel::Gemm{}, den, P, z_.rows(first, P.shape().cols));
    });
  }
  /// num += the same, relative to `most`, which is the largest of all.
  void add_relative_to(M& m, const ForwardOperands& x, Range I, const Tile<M>& num, const Tile<M>& most) const {
    const auto Q_i = m.load(x.Q.rows(I));
    for_steps(m, x, Q_i, false, [&](const Arg& P, index_t first) {
      m.compute(kernel::Weights{}, P, most);
      m.compute(kernel::Gemm{}, num, P, Z_.rows(first, P.shape().cols));
    });
  }

 private:
  template <class F>
  void for_steps(M& m, const ForwardOperands& x, const Tile<M>& rows, bool of_keys, const F& f) const {
    for_logarithms(m, x, rows, features_, step_, of_keys, f);
  }

  Range features_, values_;
  index_t step_;
  Tile<M> Z_, z_;
};

/// What a step of keys takes beside the state, c with it: keys and values, and some of their features.
inline Phase features_of_keys(const Sizes& x, index_t bc, index_t values, index_t step) {
  const index_t keys = keys_entering(x, bc);
  const Words arriving = x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, values);
  return {arriving + x.tile(SlowArray::S, keys, step) + x.tile(SlowArray::den, 1, 1), arriving};
}
/// What a step of queries takes: queries, some of their features, and sums of these columns, relative to the largest.
inline Phase features_of_queries(const Sizes& x, index_t br, StateColumns c, index_t step) {
  const index_t rows = x.mask.full() ? std::min(br, x.n_q) : 1;
  const Words arriving = x.tile(SlowArray::Q, rows, x.d);
  return {arriving + x.tile(SlowArray::O, rows, c.values) + x.tile(SlowArray::den, rows, 1) +
              x.tile(SlowArray::den, rows, c.sums) + x.tile(SlowArray::S, rows, step),
          arriving};
}

}  // namespace redblue::schedule
