#pragma once
#include <algorithm>
#include <cstdint>

namespace redblue {

/// Sizes and indices: 64-bit, signed.
using index_t = std::int64_t;

/// Rows x columns of a tile or block. A vector of n words is n x 1.
struct Shape {
  index_t rows = 0;
  index_t cols = 1;

  constexpr index_t words() const { return rows * cols; }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// c(a, b) of the papers: how many blocks of b cover a.
constexpr index_t ceil_div(index_t a, index_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace redblue
