#pragma once
#include "kernel/simd/key_gradients.hpp"
#include "kernel/simd/online_attention.hpp"
#include "kernel/simd/row_dots.hpp"
#include "redblue/kernel/bodies.hpp"

/// The bodies of one instruction set, from its vectors.
namespace redblue::kernel::simd {

template <class V>
bool gemm_body(const Gemm& k, std::span<const View<typename V::T>> x) {
  return gemm<V>(x[0], k.transpose_a ? x[1].transposed() : x[1], k.transpose_b ? x[2].transposed() : x[2], Into::add);
}
template <class V>
bool gemm_over_body(const GemmOver& k, std::span<const View<typename V::T>> x) {
  return gemm<V>(x[0], k.transpose_a ? x[1].transposed() : x[1], k.transpose_b ? x[2].transposed() : x[2],
                 k.first ? Into::overwrite : Into::add);
}

/// S <- scale Q K^T, -inf where hidden: the product, then a pass over its rows.
template <class V>
bool scores_body(const Scores& k, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto& S = x[0];
  if (S.col_stride != 1 || !gemm<V>(S, x[1], x[2].transposed(), Into::overwrite)) return false;
  const V scale = V::all(static_cast<T>(k.scale));
  for (index_t i = 0; i < S.rows(); ++i) {
    const index_t seen = k.mask.visible(k.row0 + i, k.col0 + S.cols()) - k.col0;
    T* const row = &S(i, 0);
    for (index_t j = 0; j < S.cols(); j += V::kLanes) {
      const index_t n = std::min(V::kLanes, S.cols() - j);
      (V::load_first(row + j, n) * scale).store_first(row + j, n);
    }
    for (index_t j = std::max<index_t>(seen, 0); j < S.cols(); ++j) row[j] = kMinusInf<T>;
  }
  return true;
}

template <class V>
bool value_gradients_body(const ValueGradients&, std::span<const View<typename V::T>> x) {
  const auto &dP = x[0], &dV = x[1], &P = x[2], &Vv = x[3], &dO = x[4];
  return dP.col_stride == 1 && dV.col_stride == 1 && dO.col_stride == 1 &&
         gemm<V>(dP, dO, Vv.transposed(), Into::add) && gemm<V>(dV, P.transposed(), dO, Into::add);
}

template <class V>
constexpr Bodies<typename V::T> table(Isa isa) {
  Bodies<typename V::T> b;
  b.isa = isa;
  b.lanes = V::kLanes;
  b.panel = kPanelWidth<V>;
  b.template set<OnlineAttention>(online_attention<V>);
  b.template set<SoftmaxInit>(softmax_init<V>);
  b.template set<SoftmaxFinish>(softmax_finish<V>);
  b.template set<KeyGradients>(key_gradients<V>);
  b.template set<Gemm>(gemm_body<V>);
  b.template set<GemmOver>(gemm_over_body<V>);
  b.template set<Scores>(scores_body<V>);
  b.template set<ValueGradients>(value_gradients_body<V>);
  b.template set<RowDots>(row_dots<V>);
  b.pack = pack<V>;
  b.unpack = unpack<V>;
  return b;
}

}  // namespace redblue::kernel::simd
