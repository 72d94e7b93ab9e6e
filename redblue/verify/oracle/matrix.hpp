#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "redblue/language/types.hpp"

/// Numbers, sums and matrices of the oracle.
namespace redblue::oracle {

// Called without std, so that a type of numbers may bring its own.
using std::exp;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::log;
using std::tanh;

/// 1 / (1 + exp(-s)), and how it moves, without an infinity on the way.
template <class T>
T logistic(T s) {
  const T e = exp(s > 0 ? -s : s);
  return s > 0 ? 1 / (1 + e) : e / (1 + e);
}

/// Terms that are added one to the next. A longer sum is cut into blocks of this many terms: each is summed on its own,
/// then the blocks are added up. So the rounding error of a sum hardly grows with its length.
inline constexpr index_t kBlock = 256;

/// f(0) + .. + f(n - 1)
template <class T, class F>
T sum(index_t n, index_t block, const F& f) {
  T total = 0;
  for (index_t first = 0; first < n; first += block) {
    T part = 0;
    for (index_t i = first; i < std::min(first + block, n); ++i) part += f(i);
    total += part;
  }
  return total;
}

/// A sum of vectors: each term is added to `part`, word by word, and ended.
template <class T>
class VectorSum {
 public:
  VectorSum(index_t words, index_t block)
      : total_(static_cast<std::size_t>(words)), part_(static_cast<std::size_t>(words)), block_(block) {}
  T& part(index_t i) { return part_[static_cast<std::size_t>(i)]; }
  void end_term() {
    if (++terms_ == block_) end_block();
  }
  std::vector<T> total() {
    end_block();
    return total_;
  }

 private:
  void end_block() {
    for (std::size_t i = 0; i < total_.size(); ++i) {
      total_[i] += part_[i];
      part_[i] = T(0);
    }
    terms_ = 0;
  }
  std::vector<T> total_, part_;
  index_t block_, terms_ = 0;
};

/// A dense row-major matrix.
template <class T>
struct Matrix {
  Shape shape{0, 0};
  std::vector<T> words;

  Matrix() = default;
  explicit Matrix(Shape s) : shape(s), words(static_cast<std::size_t>(s.words()), T(0)) {}
  T& operator()(index_t i, index_t j) { return words[static_cast<std::size_t>(i * shape.cols + j)]; }
  T operator()(index_t i, index_t j) const { return words[static_cast<std::size_t>(i * shape.cols + j)]; }
  Matrix transposed() const {
    Matrix t({shape.cols, shape.rows});
    for (index_t i = 0; i < shape.rows; ++i)
      for (index_t j = 0; j < shape.cols; ++j) t(j, i) = (*this)(i, j);
    return t;
  }
};

template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b, index_t block) {
  Matrix<T> c({a.shape.rows, b.shape.cols});
  for (index_t i = 0; i < a.shape.rows; ++i) {
    VectorSum<T> row(b.shape.cols, block);
    for (index_t k = 0; k < a.shape.cols; ++k, row.end_term())
      for (index_t j = 0; j < b.shape.cols; ++j) row.part(j) += a(i, k) * b(k, j);
    const std::vector<T> words = row.total();
    std::copy(words.begin(), words.end(), c.words.begin() + i * c.shape.cols);
  }
  return c;
}

}  // namespace redblue::oracle
