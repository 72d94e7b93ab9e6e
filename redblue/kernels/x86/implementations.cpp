#include "redblue/kernels/implementations.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "redblue/kernels/int8.hpp"
#include "redblue/kernels/x86/tables.hpp"

namespace redblue::kernel {

namespace {

template <class T>
const Implementations<T>& choose(Isa isa, const Implementations<T>& avx2, const Implementations<T>& avx512) {
  return includes(isa, Isa::avx512) ? avx512 : includes(isa, Isa::avx2) ? avx2 : kPortable<T>;
}

const Implementations<float>& fused_bf16() {
  static const Implementations<float> table = with_bf16(kAvx512F32);
  return table;
}
const Implementations<float>& fused_amx() {
  static const Implementations<float> table = with_amx(fused_bf16());
  return table;
}

/// Many queries that are not packed, as rows of a larger tile are, have no fused implementation, and the parts read no
/// 16-bit words: they run in fp32, on keys and values that are widened for this call.
template <const Implementations<float>& (*fused)()>
bool bf16_attention(const OnlineAttention& step, std::span<const View<float>> x) {
  const View<float>&Q = x[4], &K = x[5], &V = x[6];
  if (Q.packed() || Q.rows() <= fused().few_rows) return fused().of<OnlineAttention>()(step, x);
  std::vector<float> words(static_cast<std::size_t>(K.shape.words() + V.shape.words()));
  const View<float> wide_K(words.data(), K.shape, K.cols()), wide_V(words.data() + K.shape.words(), V.shape, V.cols());
  const auto* const keys = reinterpret_cast<const std::uint16_t*>(K.data);
  const auto* const pairs = reinterpret_cast<const std::uint16_t*>(V.data);
  const auto widened = [](std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); };
  for (index_t j = 0; j < K.rows(); ++j) {
    for (index_t t = 0; t < K.cols(); ++t) wide_K(j, t) = widened(keys[j * K.row_stride + t]);
    for (index_t t = 0; t < V.cols(); ++t) {
      const index_t pair = V.layout == Layout::bf16_columns ? t * V.row_stride + j / 2 : j / 2 * V.row_stride + t;
      wide_V(j, t) = widened(pairs[2 * pair + j % 2]);
    }
  }
  const std::array<View<float>, 9> wide{x[0], x[1], x[2], x[3], x[4], wide_K, wide_V, x[7], x[8]};
  run(kAvx512F32, step, std::span<const View<float>>(wide));
  return true;
}
template <const Implementations<float>& (*fused)()>
const Implementations<float>& with_any_queries() {
  static const Implementations<float> table = [] {
    Implementations<float> b = fused();
    b.set<OnlineAttention>(bf16_attention<fused>);
    return b;
  }();
  return table;
}

const Implementations<float>& with_int8() {
  static const Implementations<float> table = [] {
    Implementations<float> b = kAvx512F32;
    b.isa = Isa::avx512_bf16;
    b.set<OnlineAttention>([](const OnlineAttention& step, std::span<const View<float>> x) {
      const bool few = x[5].layout == Layout::int8_rows;
      return few ? few_queries_of_int8(step, x) : kAvx512F32.of<OnlineAttention>()(step, x);
    });
    return b;
  }();
  return table;
}

}  // namespace

template <>
const Implementations<float>& implementations(Isa isa) {
  return choose(isa, kAvx2F32, kAvx512F32);
}
template <>
const Implementations<double>& implementations(Isa isa) {
  return choose(isa, kAvx2F64, kAvx512F64);
}

const Implementations<float>& bf16_implementations(Isa isa) {
  if (isa == Isa::amx_bf16) return with_any_queries<fused_amx>();
  return isa == Isa::avx512_bf16 ? with_any_queries<fused_bf16>() : implementations<float>(isa);
}

const Implementations<float>& int8_implementations(Isa isa) {
  return includes(isa, Isa::avx512_bf16) ? with_int8() : implementations<float>(isa);
}

}  // namespace redblue::kernel
