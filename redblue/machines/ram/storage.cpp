#include "redblue/machines/ram/storage.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace redblue::machine {

namespace {

/// A word of a mask: 0 where it keeps the score, else -inf.
struct Keep {
  std::uint8_t keeps;
  template <class T>
  explicit operator T() const {
    return keeps != 0 ? T(0) : -std::numeric_limits<T>::infinity();
  }
};

/// Calls f with a null pointer of the C++ type that stores `t`.
template <class F>
void with_type(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f16:
      return f(static_cast<Eigen::half*>(nullptr));
    case DType::bf16:
      return f(static_cast<Eigen::bfloat16*>(nullptr));
    case DType::boolean:
      return f(static_cast<Keep*>(nullptr));
    case DType::int8:
      return f(static_cast<std::int8_t*>(nullptr));
  }
}

/// fp64 to 16 bits through fp32 rounded to odd: the second rounding then sees whether the first one lost anything.
float round_to_odd(double x) {
  const auto f = static_cast<float>(x);
  if (static_cast<double>(f) == x || !std::isfinite(f)) return f;
  auto bits = std::bit_cast<std::uint32_t>(f);
  if (std::abs(static_cast<double>(f)) > std::abs(x)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
    return static_cast<To>(round_to_odd(x));
  else
    return static_cast<To>(x);
}

/// The rows of b are one where they follow each other without gaps, here and in memory of leading dimension ld, and
/// need no scales.
Shape joined(const Storage& s, Shape shape, index_t ld) {
  const bool gaps = s.dtype == DType::int8 || !s.uniform_rows() || s.uniform_row_stride() != shape.cols ||
                    s.col_stride != 1 || ld != shape.cols;
  return gaps ? shape : Shape{1, shape.words()};
}

}  // namespace

template <class T>
void gather(const Storage& s, const Block& b, T* out, index_t ld, const kernel::RowConversion<T>& row_conversion) {
  const Shape shape = joined(s, b.shape, ld);
  with_type(s.dtype, [&]<class E>(E*) {
    const E* data = reinterpret_cast<const E*>(s.data);
    for (index_t i = 0; i < shape.rows; ++i) {
      const E* row = data + s.offset(b.instance, b.row + i, b.col);
      if constexpr (std::is_same_v<E, T>)
        if (s.col_stride == 1) {
          std::copy_n(row, shape.cols, out + i * ld);
          continue;
        }
      if (sizeof(E) == 2 && row_conversion.widen != nullptr && s.col_stride == 1) {
        row_conversion.widen(s.dtype, reinterpret_cast<const std::uint16_t*>(row), out + i * ld, shape.cols);
        continue;
      }
      if constexpr (std::is_same_v<E, std::int8_t>) {
        const T scale = s.scale(b.instance, b.row + i);
        T* const to = out + i * ld;
        if (s.col_stride == 1)  // a loop that compilers make vectors of
          for (index_t j = 0; j < shape.cols; ++j) to[j] = scale * static_cast<T>(row[j]);
        else
          for (index_t j = 0; j < shape.cols; ++j) to[j] = scale * static_cast<T>(row[j * s.col_stride]);
      } else {
        for (index_t j = 0; j < shape.cols; ++j) out[i * ld + j] = static_cast<T>(row[j * s.col_stride]);
      }
    }
  });
}

template <class T>
void scatter(const Storage& s, const Block& b, const T* in, index_t row_stride, index_t col_stride,
             const kernel::RowConversion<T>& row_conversion) {
  const Shape shape = col_stride == 1 ? joined(s, b.shape, row_stride) : b.shape;
  with_type(s.dtype, [&]<class E>(E*) {
    if constexpr (sizeof(E) == 1) {
      throw std::logic_error("a mask is no output, nor are words of int8");
    } else {
      E* data = reinterpret_cast<E*>(s.data);
      for (index_t i = 0; i < shape.rows; ++i) {
        E* row = data + s.offset(b.instance, b.row + i, b.col);
        if constexpr (std::is_same_v<E, T>)
          if (s.col_stride == 1 && col_stride == 1) {
            std::copy_n(in + i * row_stride, shape.cols, row);
            continue;
          }
        if (sizeof(E) == 2 && row_conversion.narrow != nullptr && s.col_stride == 1 && col_stride == 1) {
          row_conversion.narrow(s.dtype, in + i * row_stride, reinterpret_cast<std::uint16_t*>(row), shape.cols);
          continue;
        }
        for (index_t j = 0; j < shape.cols; ++j)
          row[j * s.col_stride] = convert<E>(in[i * row_stride + j * col_stride]);
      }
    }
  });
}

template <class T>
void add_to(const Storage& s, const Block& b, const View<const T>& from) {
  for (index_t i = 0; i < b.shape.rows; ++i)
    for (index_t j = 0; j < b.shape.cols; ++j) {
      const Block word{b.array, b.instance, b.row + i, b.col + j, {1, 1}};
      T sum;
      gather(s, word, &sum, 1);
      sum += from(i, j);
      scatter(s, word, &sum, 1, 1);
    }
}

template void gather(const Storage&, const Block&, float*, index_t, const kernel::RowConversion<float>&);
template void gather(const Storage&, const Block&, double*, index_t, const kernel::RowConversion<double>&);
template void scatter(const Storage&, const Block&, const float*, index_t, index_t,
                      const kernel::RowConversion<float>&);
template void scatter(const Storage&, const Block&, const double*, index_t, index_t,
                      const kernel::RowConversion<double>&);
template void add_to(const Storage&, const Block&, const View<const float>&);
template void add_to(const Storage&, const Block&, const View<const double>&);

}  // namespace redblue::machine
