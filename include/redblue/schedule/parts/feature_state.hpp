#pragma once
#include "redblue/kernel/feature_maps.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/polynomial_state.hpp"

/// The state of random features, Z = SUM_j phi(k_j) v_j^T and z = SUM_j phi(k_j), in units of e^c, c being the largest
/// logarithm of a feature so far.
namespace redblue::schedule {

template <class M>
class FeatureState {
 public:
  FeatureState(M& m, const ForwardOperands& x, index_t group)
      : method_(std::get<Performer>(x.shape.method)),
        group_(std::min(group, method_.features)),
        Z_(m, SlowArray::Z, {method_.features, x.shape.d_v}, Layout::row_major),
        z_(m, SlowArray::Z, {method_.features, 1}, Layout::row_major) {
    m.compute(kernel::Zero{}, Z_);
    m.compute(kernel::Zero{}, z_);
  }

  /// The keys J enter.
  void add(M& m, const ForwardOperands& x, const Tile<M>& c, Range J) {
    const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.rows(J));
    const auto room = m.alloc(SlowArray::S, {J.size(), group_});
    for_groups([&](index_t first, index_t size) {
      const Arg P = room.cols(size);
      m.compute(features(x, first, true), P, K_j);
      m.compute(kernel::RescaleState{}, P, Z_, z_, c);
      m.compute(kernel::Gemm{true, false}, Z_.rows(first, size), P, V_j);
      m.compute(kernel::AddColumnSums{}, z_.rows(first, size), P);
    });
  }
  /// The queries I read; features relative to the largest of their row.
  void read(M& m, const ForwardOperands& x, Range I) {
    const auto num = m.alloc(x.O.rows(I));
    const auto den = m.alloc(SlowArray::den, {I.size(), 1}), most = m.alloc(SlowArray::den, {I.size(), 1});
    m.compute(kernel::SoftmaxInit{}, num, most, den);
    {
      const auto Q_i = m.load(x.Q.rows(I)), room = m.alloc(SlowArray::S, {I.size(), group_});
      for_groups([&](index_t first, index_t size) {
        const Arg P = room.cols(size);
        m.compute(features(x, first, false), P, Q_i);
        m.compute(kernel::RescaleRows{}, P, num, den, most);
        m.compute(kernel::Gemm{}, num, P, Z_.rows(first, size));
        m.compute(kernel::Gemm{}, den, P, z_.rows(first, size));
      });
    }
    m.compute(kernel::DivideRows{}, num, den);
    m.store(num, x.O.rows(I));
  }

 private:
  template <class F>
  void for_groups(const F& f) const {
    for (index_t a = 0; a < method_.features; a += group_) f(a, std::min(group_, method_.features - a));
  }
  kernel::RandomFeatures features(const ForwardOperands& x, index_t first, bool of_keys) const {
    return {method_.features, method_.seed, first, x.scale, of_keys};
  }

  Performer method_;
  index_t group_;
  Tile<M> Z_, z_;
};

}  // namespace redblue::schedule
