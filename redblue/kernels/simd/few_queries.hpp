#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/simd/few_rows.hpp"
#include "redblue/kernels/simd/rows.hpp"

/// OnlineAttention for few rows of queries: tiles are row-major, Rows says how keys and values lie.
namespace redblue::kernel::simd {

/// S <- S with column j times scales[j], those of the rows of keys or values that the columns stand for.
template <class V>
void scale_columns(View<typename V::T> S, const typename V::T* scales) {
  for (index_t r = 0; r < S.rows(); ++r) {
    typename V::T* const row = &S(r, 0);
    index_t j = 0;
    for (; j + V::kLanes <= S.cols(); j += V::kLanes) (V::load(row + j) * V::load(scales + j)).store(row + j);
    const index_t left = S.cols() - j;
    if (left > 0) (V::load_first(row + j, left) * V::load_first(scales + j, left)).store_first(row + j, left);
  }
}

template <class V, class Rows>
bool few_queries(const OnlineAttention& step, std::span<const View<typename V::T>> x) {
  using T = typename V::T;
  const auto &S = x[0], &O = x[1], &m = x[2], &l = x[3], &Q = x[4], &K = x[5], &Vv = x[6];
  if (S.packed() || O.packed() || Q.packed() || S.col_stride != 1 || O.col_stride != 1 || Q.col_stride != 1)
    return false;
  if (K.col_stride != 1 || Vv.col_stride != 1) return false;
  few_scores<V, Rows>(S, Q, K, static_cast<T>(step.scores.scale));
  if (K.layout == Layout::int8_rows) scale_columns<V>(S, K.other_form);
  if (const View<const T> bias = x[7], slopes = x[8]; !step.modify.idle({0, 0}, bias.shape, slopes.shape))
    step.modify.run<T>(S, {}, bias, slopes);
  fill_hidden<V>(step.scores.place, S, kMinusInf<T>);
  if (step.score == Score::softmax) {
    // Exponentials leave memory alone: as many values come meanwhile as it delivers.
    constexpr index_t kLinesBeside = 2;
    FetchInTurn values(reinterpret_cast<const typename Rows::Element*>(Vv.data), Vv.rows(), Vv.cols(), Vv.row_stride);
    online_softmax_by_row<V>(S, O, m, l, [&] { values.some(kLinesBeside); });
  } else {
    for (index_t r = 0; r < S.rows(); ++r)
      for_vectors<V>(&S(r, 0), S.cols(),
                     [&](T* p, index_t n) { weight_of(step.score, V::load_first(p, n)).store_first(p, n); });
  }
  if (step.drop.share > 0) step.drop.run<T>(S);
  if (Vv.layout == Layout::int8_rows) scale_columns<V>(S, Vv.other_form);
  add_few_rows<V, Rows>(O, S, Vv);
  return true;
}

/// few_queries, with rows that are widened as they are read where the layout of the keys says so, else with Rows.
template <class V, class Mul, class Rows>
bool few_queries_of(const OnlineAttention& step, std::span<const View<typename V::T>> x) {
  if constexpr (std::same_as<typename V::T, float> && Mul::kDepth == 1) {
    const Layout keys = x[5].layout;
    if (keys == Layout::f16_rows) return few_queries<V, WidenedRows<V, DType::f16>>(step, x);
    if (keys == Layout::bf16_rows) return few_queries<V, WidenedRows<V, DType::bf16>>(step, x);
    if (keys == Layout::int8_rows) return few_queries<V, WidenedRows<V, DType::int8>>(step, x);
  }
  return few_queries<V, Rows>(step, x);
}

}  // namespace redblue::kernel::simd
