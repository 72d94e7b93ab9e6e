#include "nan.hpp"

#include <fmt/format.h>

#include <cmath>

namespace redblue::cli {

namespace {

/// A word of f16 or bf16. A NaN lies beyond the bits of infinity, whatever its sign.
struct Half {
  std::uint16_t bits;
  bool is_nan(std::uint16_t infinity) const { return (bits & 0x7fffU) > infinity; }
};

template <class T, class IsNan>
std::optional<std::string> find(const Tensor& t, const IsNan& is_nan) {
  const T* const words = static_cast<const T*>(t.data);
  const auto& [batches, heads, rows, cols] = t.shape;
  for (index_t b = 0; b < batches; ++b)
    for (index_t h = 0; h < heads; ++h)
      for (index_t r = 0; r < rows; ++r) {
        const T* const row = words + b * t.strides[0] + h * t.strides[1] + r * t.strides[2];
        for (index_t c = 0; c < cols; ++c)
          if (is_nan(row[c * t.strides[3]])) return fmt::format("[{}, {}, {}, {}]", b, h, r, c);
      }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_nan(const Tensor& t) {
  const auto real = [](auto x) { return std::isnan(x); };
  switch (t.dtype) {
    case DType::f64:
      return find<double>(t, real);
    case DType::f32:
      return find<float>(t, real);
    case DType::f16:
      return find<Half>(t, [](Half x) { return x.is_nan(0x7c00); });
    case DType::bf16:
      return find<Half>(t, [](Half x) { return x.is_nan(0x7f80); });
    case DType::boolean:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace redblue::cli
