#pragma once
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "redblue/runtime/run.hpp"

namespace redblue::test {

/// How an array of [batch, head, position, feature] lies in memory.
enum class Strides : std::uint8_t {
  bhsd,      ///< contiguous in that order
  bshd,      ///< heads between positions and features
  padded,    ///< gaps after every row, head and batch
  reversed,  ///< positions backwards, every second word unused
};
inline constexpr std::array kAllStrides = {Strides::bhsd, Strides::bshd, Strides::padded, Strides::reversed};
constexpr std::string_view name_of(Strides s) {
  return s == Strides::bhsd ? "bhsd" : s == Strides::bshd ? "bshd" : s == Strides::padded ? "padded" : "reversed";
}

/// An array with bytes of no one's around it and in its gaps, which must stay as they are.
class Array {
 public:
  Array(DType dtype, std::array<index_t, 4> shape, Strides strides) : dtype_(dtype), shape_(shape) {
    const auto [B, H, S, D] = shape;
    switch (strides) {
      case Strides::bhsd:
        strides_ = {H * S * D, S * D, D, 1};
        break;
      case Strides::bshd:
        strides_ = {S * H * D, D, H * D, 1};
        break;
      case Strides::padded:
        strides_ = {H * (S * (D + 3) + 5) + 7, S * (D + 3) + 5, D + 3, 1};
        break;
      case Strides::reversed:
        strides_ = {H * S * 2 * D, S * 2 * D, -2 * D, 2};
        break;
    }
    first_ = kGuard + (strides == Strides::reversed ? (S - 1) * 2 * D : 0);
    const index_t words = 2 * kGuard + B * (H * (S * (2 * D + 3) + 5) + 7);
    memory_.assign(static_cast<std::size_t>(words) * size_of(dtype), kNoOnes);
  }

  Tensor tensor() { return {at(0), dtype_, shape_, strides_}; }

  /// Stores values given in the order of the shape, rounding to the element type.
  void set(const std::vector<double>& values) {
    for_each([&](std::size_t i, void* word) {
      switch (dtype_) {
        case DType::f64:
          return put(word, values[i]);
        case DType::f32:
          return put(word, static_cast<float>(values[i]));
        case DType::f16:
          return put(word, Eigen::half(static_cast<float>(values[i])));
        case DType::bf16:
          return put(word, Eigen::bfloat16(static_cast<float>(values[i])));
        case DType::boolean:
          return put(word, std::uint8_t{values[i] != 0});
        case DType::int8:
          return put(word, static_cast<std::int8_t>(values[i]));
      }
    });
  }
  std::vector<double> get() {
    std::vector<double> values(static_cast<std::size_t>(shape_[0] * shape_[1] * shape_[2] * shape_[3]));
    for_each([&](std::size_t i, void* word) {
      switch (dtype_) {
        case DType::f64:
          values[i] = take<double>(word);
          break;
        case DType::f32:
          values[i] = static_cast<double>(take<float>(word));
          break;
        case DType::f16:
          values[i] = static_cast<double>(static_cast<float>(take<Eigen::half>(word)));
          break;
        case DType::bf16:
          values[i] = static_cast<double>(static_cast<float>(take<Eigen::bfloat16>(word)));
          break;
        case DType::boolean:
          values[i] = take<std::uint8_t>(word);
          break;
        case DType::int8:
          values[i] = take<std::int8_t>(word);
          break;
      }
    });
    return values;
  }

  /// Every byte, to see whether anything changed.
  const std::vector<unsigned char>& memory() const { return memory_; }
  /// Are the bytes outside the array as they were at the start?
  bool surroundings_untouched() const {
    Array copy = *this;
    copy.for_each([&](std::size_t, void* word) { std::memset(word, kNoOnes, size_of(dtype_)); });
    return std::all_of(copy.memory_.begin(), copy.memory_.end(), [](unsigned char byte) { return byte == kNoOnes; });
  }

 private:
  static constexpr index_t kGuard = 64;
  static constexpr unsigned char kNoOnes = 0xA5;

  template <class F>
  void for_each(const F& f) {
    std::size_t i = 0;
    for (index_t b = 0; b < shape_[0]; ++b)
      for (index_t h = 0; h < shape_[1]; ++h)
        for (index_t s = 0; s < shape_[2]; ++s)
          for (index_t t = 0; t < shape_[3]; ++t)
            f(i++, at(b * strides_[0] + h * strides_[1] + s * strides_[2] + t * strides_[3]));
  }
  void* at(index_t word) { return memory_.data() + static_cast<std::size_t>(first_ + word) * size_of(dtype_); }
  template <class T>
  static void put(void* word, T value) {
    std::memcpy(word, &value, sizeof value);
  }
  template <class T>
  static T take(const void* word) {
    T value;
    std::memcpy(&value, word, sizeof value);
    return value;
  }

  DType dtype_;
  std::array<index_t, 4> shape_, strides_{};
  index_t first_ = 0;
  std::vector<unsigned char> memory_;
};

/// The five arrays of a problem.
struct Arrays {
  Array q, k, v, o, lse;
  Arrays(const Problem& p, DType dtype, DType lse_dtype, Strides in = Strides::bhsd, Strides out = Strides::bhsd)
      : q(dtype, {p.batch, p.heads, p.n_q, p.d}, in),
        k(dtype, {p.batch, p.kv_heads.value_or(p.heads), p.n_k, p.d}, in),
        v(dtype, {p.batch, p.kv_heads.value_or(p.heads), p.n_k, p.d_v}, in),
        o(dtype, {p.batch, p.heads, p.n_q, p.d_v}, out),
        lse(lse_dtype, {p.batch, p.heads, p.n_q, 1}, out) {}
  Inputs inputs() { return {q.tensor(), k.tensor(), v.tensor()}; }
  Outputs outputs() { return {o.tensor(), lse.tensor()}; }
};

}  // namespace redblue::test
