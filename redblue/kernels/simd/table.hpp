#pragma once
#include "redblue/kernels/implementations.hpp"
#include "redblue/kernels/simd/key_gradients.hpp"
#include "redblue/kernels/simd/moving_weights.hpp"
#include "redblue/kernels/simd/online_attention.hpp"
#include "redblue/kernels/simd/row_dots.hpp"
#include "redblue/kernels/simd/rows.hpp"
#include "redblue/kernels/simd/second.hpp"
#include "redblue/kernels/simd/words16.hpp"

/// The implementations of one instruction set, from its vectors.
namespace redblue::kernel::simd {

template <class V>
bool gemm_implementation(const Gemm& k, std::span<const View<typename V::T>> x) {
  return gemm<V>(x[0], k.transpose_a ? x[1].transposed() : x[1], k.transpose_b ? x[2].transposed() : x[2],
                 k.one_chain() ? Into::go_on : Into::add);
}
template <class V>
bool gemm_over_implementation(const GemmOver& k, std::span<const View<typename V::T>> x) {
  const View<typename V::T> C = x[0], A = k.transpose_a ? x[1].transposed() : x[1],
                            B = k.transpose_b ? x[2].transposed() : x[2];
  const Place place = simplest(k.place, A.shape);
  const bool rows_lie = !C.packed() && !A.packed() && !B.packed() && C.col_stride == 1 && B.col_stride == 1;
  if (place.mask.pattern != nullptr && rows_lie && pays_by_pair(PairByPair::product(C.cols()), place, A.shape)) {
    sparse_product<V>(place, k.first, C, A, B);
    return true;
  }
  const auto seen = [&](index_t row, index_t rows) {
    const Range keys = place.cols_of(Range{row, row + rows}, A.cols());
    return Depth{keys.begin, keys.end};
  };
  return gemm<V>(C, A, B, k.first ? Into::overwrite : k.product().one_chain() ? Into::go_on : Into::add, seen);
}

template <class V>
bool value_gradients_implementation(const ValueGradients&, std::span<const View<typename V::T>> x) {
  const auto &dP = x[0], &dV = x[1], &P = x[2], &Vv = x[3], &dO = x[4];
  return dP.col_stride == 1 && dV.col_stride == 1 && dO.col_stride == 1 &&
         gemm<V>(dP, dO, Vv.transposed(), Into::go_on) && gemm<V>(dV, P.transposed(), dO, Into::add);
}

template <class V>
constexpr Implementations<typename V::T> table(Isa isa) {
  Implementations<typename V::T> b;
  b.isa = isa;
  b.lanes = V::kLanes;
  b.panel = kWidestPanel<V> * V::kLanes;
  b.few_rows = kFewRows<V>;
  b.template set<OnlineAttention>(online_attention<V, Multiply<V>, PlainRows<V>>);
  b.template set<SoftmaxInit>(softmax_init<V>);
  b.template set<SoftmaxFinish>(softmax_finish<V>);
  b.template set<KeyGradients>(key_gradients<V>);
  b.template set<Gemm>(gemm_implementation<V>);
  b.template set<GemmOver>(gemm_over_implementation<V>);
  b.template set<Scores>(scores_implementation<V>);
  b.template set<ValueGradients>(value_gradients_implementation<V>);
  b.template set<OnlineSoftmax>(online_softmax_implementation<V>);
  b.template set<Weights>(weights_implementation<V>);
  b.template set<WeightsAccumulate>(weights_accumulate_implementation<V>);
  b.template set<BlockSoftmax>(block_softmax_implementation<V>);
  b.template set<ScoreGradient>(score_gradient_implementation<V>);
  b.template set<RowDots>(row_dots<V>);
  b.template set<DivideRows>(divide_rows<V>);
  b.template set<Scale>(scale_implementation<V>);
  b.template set<Copy>(copy_implementation<V>);
  b.template set<AddRowSums>(add_row_sums_implementation<V>);
  b.template set<SubtractScaledRows>(subtract_scaled_rows_implementation<V>);
  b.template set<RowDotsAndRest>(row_dots_and_rest_implementation<V>);
  b.template set<ThroughSoftcap>(through_softcap_implementation<V>);
  b.template set<MovingWeights>(moving_weights<V>);
  b.template set<SecondGradients>(second_gradients<V>);
  b.pack_queries = pack<V>;
  b.pack = pack<V>;
  b.unpack = unpack<V>;
  if constexpr (std::same_as<typename V::T, float>) {
    b.row_conversion = {widen_row<V>, narrow_row<V>};
    b.unpack_words16 = unpack_words16<V>;
    b.widen = true;
  }
  return b;
}

}  // namespace redblue::kernel::simd
