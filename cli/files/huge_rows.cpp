#include "files/huge_rows.hpp"

#include <algorithm>
#include <cmath>

#include "redblue/verify/comparison.hpp"

namespace redblue::cli {

index_t huge_rows(const Problem& p, const Tensors& t, DType compute) {
  const bool has_bias = t[SlowArray::bias].data != nullptr && t[SlowArray::bias].dtype != DType::boolean;
  if (p.op != Operation::backward || !has_bias || t[SlowArray::lse].data == nullptr) return 0;
  const bool narrow = compute != DType::f64 || t[SlowArray::lse].dtype != DType::f64;
  const double largest = narrow ? 0x1p12 : 0x1p41;  // its rounding moves a weight by 2^-12
  const auto is_huge = [&](double x) { return std::isfinite(x) && std::abs(x) > largest; };
  index_t rows = 0;
  for (index_t h = 0; h < p.instances(); ++h) {
    const auto lse = comparison::gathered(p, t, SlowArray::lse, h);
    if (std::ranges::none_of(lse.words, is_huge)) continue;
    const auto dO = comparison::gathered(p, t, SlowArray::dO, h);
    for (index_t i = 0; i < dO.shape.rows; ++i) {
      const double* const row = dO.words.data() + i * dO.shape.cols;
      if (is_huge(lse(i, 0)) && std::any_of(row, row + dO.shape.cols, [](double x) { return x != 0; })) ++rows;
    }
  }
  return rows;
}

}  // namespace redblue::cli
