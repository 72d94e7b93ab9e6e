#include "files/nan.hpp"

#include <fmt/format.h>

#include <cmath>

#include "redblue/planner/shapes.hpp"

namespace redblue::cli {

namespace {

/// A word of f16 or bf16. A NaN lies beyond the bits of infinity, whatever its sign.
struct Half {
  std::uint16_t bits;
  unsigned size() const { return bits & 0x7fffU; }
};

/// what(word) names what is wrong with it, or is null.
template <class T, class What>
std::optional<std::string> find(const Tensor& t, Range of, const What& what) {
  const T* const words = static_cast<const T*>(t.data);
  const auto& [batches, heads, all, cols] = t.shape;
  for (index_t b = 0; b < batches; ++b)
    for (index_t h = 0; h < heads; ++h)
      for (index_t r = of.begin; r < of.end; ++r) {
        const T* const row = words + b * t.strides[0] + h * t.strides[1] + r * t.strides[2];
        for (index_t c = 0; c < cols; ++c)
          if (const char* const found = what(row[c * t.strides[3]]))
            return fmt::format("{} at [{}, {}, {}, {}]", found, b, h, r, c);
      }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted) {
  return first_unwanted(t, unwanted, {0, t.shape[2]});
}

std::optional<std::string> first_unwanted(const Tensor& t, Unwanted unwanted, Range of) {
  const auto name = [&](bool nan, bool inf, bool negative) -> const char* {
    if (nan) return "a NaN";
    if (inf && !negative && unwanted != Unwanted::nan) return "+inf";
    return inf && negative && unwanted == Unwanted::nan_or_infinite ? "-inf" : nullptr;
  };
  const auto real = [&](auto x) { return name(std::isnan(x), std::isinf(x), x < 0); };
  const auto half = [&](unsigned infinity) {
    return [=](Half x) { return name(x.size() > infinity, x.size() == infinity, x.size() != x.bits); };
  };
  switch (t.dtype) {
    case DType::f64:
      return find<double>(t, of, real);
    case DType::f32:
      return find<float>(t, of, real);
    case DType::f16:
      return find<Half>(t, of, half(0x7c00));
    case DType::bf16:
      return find<Half>(t, of, half(0x7f80));
    case DType::boolean:
    case DType::int8:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string nan_text(const Problem& problem, const Tensors& tensors,
                     const std::function<std::vector<Range>(SlowArray)>& rows) {
  for (const SlowArray a : inputs_of(problem)) {
    const Tensor& t = tensors[a];
    if (t.data == nullptr) continue;
    for (const Range& range : rows ? rows(a) : std::vector<Range>{{0, t.shape[2]}})
      if (const auto where = first_unwanted(t, Unwanted::nan, range))
        return fmt::format("{} has {}: so has every output that depends on it", tensor_name(a), *where);
  }
  return "";
}

std::optional<std::string> first_beyond_f32(const Tensor& t) {
  if (t.dtype != DType::f64) return std::nullopt;
  return find<double>(t, {0, t.shape[2]}, [](double x) {
    return std::isfinite(x) && !std::isfinite(static_cast<float>(x)) ? "a number beyond f32" : nullptr;
  });
}

}  // namespace redblue::cli
