#pragma once
#include <algorithm>
#include <array>

#include "redblue/kernels/kernel.hpp"

/// Kernels of plain dense algebra.
namespace redblue::kernel {

/// T <- 0
struct Zero {
  static constexpr std::string_view name = "zero";
  static constexpr std::array access{Access::write};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> out) const {
    if (out.col_stride == 1 && out.row_stride == out.cols()) {
      std::fill_n(out.data, out.words(), T(0));
      return;
    }
    for (index_t i = 0; i < out.rows(); ++i)
      for (index_t j = 0; j < out.cols(); ++j) out(i, j) = T(0);
  }
};

/// T <- factor T
struct Scale {
  static constexpr std::string_view name = "scale";
  static constexpr std::array access{Access::update};
  static constexpr Axes axes{"ij"};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  static constexpr std::array<std::string_view, 1> parameter_names{"factor"};
  auto parameters() { return std::tie(factor); }
  double factor = 1;
  template <class T>
  void run(View<T> t) const {
    for (index_t i = 0; i < t.rows(); ++i)
      for (index_t j = 0; j < t.cols(); ++j) t(i, j) *= static_cast<T>(factor);
  }
};

/// A <- A + B
struct Add {
  static constexpr std::string_view name = "add";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij ij"};
  static constexpr bool fits(Shape A, Shape B) { return A == B; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> B) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t j = 0; j < A.cols(); ++j) A(i, j) += B(i, j);
  }
};

/// A <- A - B
struct Subtract {
  static constexpr std::string_view name = "subtract";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr Axes axes{"ij ij"};
  static constexpr bool fits(Shape A, Shape B) { return A == B; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> A, View<const T> B) const {
    for (index_t i = 0; i < A.rows(); ++i)
      for (index_t j = 0; j < A.cols(); ++j) A(i, j) -= B(i, j);
  }
};

/// A long sum is formed of pieces of this many terms, each summed on its own: its rounding errors then grow with the
/// number of pieces and the length of one, not with the number of terms.
inline constexpr index_t kPiece = 256;

/// f(0) + .. + f(n - 1)
template <class T, class F>
T sum_of(index_t n, const F& f) {
  T total = 0;
  for (index_t first = 0; first < n; first += kPiece) {
    T piece = 0;
    for (index_t i = first; i < std::min(first + kPiece, n); ++i) piece += f(i);
    total += piece;
  }
  return total;
}

/// C <- C + A B, A(i, t) being a(i, t): every piece of the sum over t is added to C once.
template <class T, class F>
void add_product(View<T> C, View<const T> B, const F& a) {
  constexpr index_t kCols = 64;
  if (B.rows() == 1) {  // a piece of one term needs no sum of its own
    for (index_t i = 0; i < C.rows(); ++i) {
      const T a_i = a(i, 0);
      for (index_t j = 0; j < C.cols(); ++j) C(i, j) += a_i * B(0, j);
    }
    return;
  }
  for (index_t i = 0; i < C.rows(); ++i)
    for (index_t first = 0; first < B.rows(); first += kPiece) {
      const index_t k = std::min(kPiece, B.rows() - first);
      std::array<T, kPiece> row;
      for (index_t t = 0; t < k; ++t) row[static_cast<std::size_t>(t)] = a(i, first + t);
      for (index_t col = 0; col < C.cols(); col += kCols) {
        const index_t cols = std::min(kCols, C.cols() - col);
        std::array<T, kCols> sum{};
        for (index_t t = 0; t < k; ++t)
          for (index_t j = 0; j < cols; ++j)
            sum[static_cast<std::size_t>(j)] += row[static_cast<std::size_t>(t)] * B(first + t, col + j);
        for (index_t j = 0; j < cols; ++j) C(i, col + j) += sum[static_cast<std::size_t>(j)];
      }
    }
}

/// The subscripts of C <- C + op(A) op(B), where A has rows i and columns j.
constexpr Axes axes_of_product(bool transpose_a, bool transpose_b) {
  constexpr Axes plain{"ik ij jk", 'j'}, b{"ik ij kj", 'j'}, a{"jk ij ik", 'i'}, both{"jk ij ki", 'i'};
  if (transpose_a) return transpose_b ? both : a;
  return transpose_b ? b : plain;
}

/// C <- C + op(A) op(B), op being the transpose where asked for.
struct Gemm {
  static constexpr std::string_view name = "gemm";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr std::array<std::string_view, 2> parameter_names{"transpose_a", "transpose_b"};
  auto parameters() { return std::tie(transpose_a, transpose_b); }
  bool transpose_a = false;
  bool transpose_b = false;

  /// Some choice of transposes makes the shapes agree (which one is a value, not part of the shape).
  static constexpr bool fits(Shape C, Shape A, Shape B) {
    const bool a = A.rows == C.rows || A.cols == C.rows, b = B.cols == C.cols || B.rows == C.cols;
    return a && b && A.words() * C.cols == B.words() * C.rows;
  }
  static constexpr index_t macs(Shape C, Shape A, Shape /*B*/) { return A.words() * C.cols; }
  constexpr Axes axes_of(std::span<const Shape>) const { return axes_of_product(transpose_a, transpose_b); }
  /// Rows times rows are summed over features, as D = rowsum(dO o O) and dP = dO V^T are, which must agree in every
  /// bit: in one chain, which goes on from what C holds. Other sums go over queries or keys and may be long.
  constexpr bool one_chain() const { return transpose_b && !transpose_a; }
  template <class T>
  void run(View<T> C, View<const T> A_, View<const T> B_) const {
    const auto A = transpose_a ? A_.transposed() : A_, B = transpose_b ? B_.transposed() : B_;
    if (!one_chain()) return add_product(C, B, A);
    for (index_t i = 0; i < C.rows(); ++i)
      for (index_t t = 0; t < A.cols(); ++t) {
        const T a = A(i, t);
        for (index_t j = 0; j < C.cols(); ++j) C(i, j) += a * B(t, j);
      }
  }
};

/// x . y with eight partial sums: the order of summation is fixed, and a compiler can keep them in vector lanes.
template <class T>
T dot(const T* x, index_t x_stride, const T* y, index_t y_stride, index_t n) {
  constexpr index_t kLanes = 8;
  std::array<T, kLanes> sum{};
  index_t k = 0;
  if (x_stride == 1 && y_stride == 1) {
    for (; k + kLanes <= n; k += kLanes)
      for (index_t lane = 0; lane < kLanes; ++lane) sum[static_cast<std::size_t>(lane)] += x[k + lane] * y[k + lane];
  }
  for (; k < n; ++k) sum[0] += x[k * x_stride] * y[k * y_stride];
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

}  // namespace redblue::kernel
