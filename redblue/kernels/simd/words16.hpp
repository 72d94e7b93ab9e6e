#pragma once
#include <algorithm>
#include <cstdint>

#include "redblue/kernels/simd/fetch.hpp"
#include "redblue/kernels/simd/panels.hpp"
#include "redblue/language/dtype.hpp"
#include "redblue/language/types.hpp"

/// Rows of f16 and bf16 words to floats and back, rounded to nearest even.
namespace redblue::kernel::simd {

template <class V>
void widen_row(DType from, const std::uint16_t* in, float* out, index_t words) {
  constexpr index_t L = V::kLanes;
  const auto row = [&](const auto& load) {
    index_t j = 0;
    for (; j + L <= words; j += L) {
      fetch(in + j + rows_ahead<std::uint16_t>(1));
      load(in + j).store(out + j);
    }
    if (j == words) return;
    std::uint16_t rest[L]{};
    std::copy_n(in + j, words - j, rest);
    load(rest).store_first(out + j, words - j);
  };
  if (from == DType::f16)
    row([](const std::uint16_t* p) { return V::load_f16(p); });
  else
    row([](const std::uint16_t* p) { return V::load_bf16(p); });
}

template <class V>
void narrow_row(DType to, const float* in, std::uint16_t* out, index_t words) {
  constexpr index_t L = V::kLanes;
  const auto row = [&](const auto& store) {
    index_t j = 0;
    for (; j + L <= words; j += L) store(V::load(in + j), out + j);
    if (j == words) return;
    std::uint16_t rest[L];
    store(V::load_first(in + j, words - j), rest);
    std::copy_n(rest, words - j, out + j);
  };
  if (to == DType::f16)
    row([](V x, std::uint16_t* p) { x.store_f16(p); });
  else
    row([](V x, std::uint16_t* p) { x.store_bf16(p); });
}

/// Panels to rows of 16-bit words, by way of some columns of a panel that stay in the first cache.
template <class V>
void unpack_words16(DType to, const float* panels, Shape shape, std::uint16_t* rows, index_t stride) {
  constexpr index_t kColumns = 64;
  alignas(64) float part[kWidestPanel<V> * V::kLanes * kColumns];
  for_panels<V>(shape, [&](index_t first, index_t count, index_t width, index_t offset) {
    for (index_t t = 0; t < shape.cols; t += kColumns) {
      const index_t cols = std::min(kColumns, shape.cols - t);
      transpose_out<V>(panels + offset + t * width, width, {part, {count, cols}, kColumns});
      for (index_t r = 0; r < count; ++r) narrow_row<V>(to, part + r * kColumns, rows + (first + r) * stride + t, cols);
    }
  });
}

}  // namespace redblue::kernel::simd
