#pragma once
#include <algorithm>
#include <array>

#include "kernel/simd/exp.hpp"
#include "kernel/simd/panels.hpp"
#include "redblue/kernel/modifiers.hpp"

/// Softcap, bias, ALiBi and dropout of scores in vectors: of queries in panels (OnlineAttention), of keys in rows.
namespace redblue::kernel::simd {

/// softcap tanh(s / softcap) and its derivative.
template <class V>
struct Softcap {
  using T = typename V::T;
  explicit Softcap(double cap) : cap_(V::all(static_cast<T>(cap))), inverse_(V::all(static_cast<T>(1 / cap))) {}
  V operator()(V s) const { return cap_ * tanh(s * inverse_); }
  V operator()(V s, V& derivative) const {
    const V t = tanh(s * inverse_);
    derivative = V::all(T(1)) - t * t;
    return cap_ * t;
  }

 private:
  V cap_, inverse_;
};

/// A 32-bit word in each lane, for philox().
template <class V>
struct Words32 {
  alignas(64) std::uint32_t lane[V::kLanes];
  friend Words32 operator^(Words32 a, const Words32& b) {
    for (index_t i = 0; i < V::kLanes; ++i) a.lane[i] ^= b.lane[i];
    return a;
  }
  friend Words32 operator^(Words32 a, std::uint32_t b) {
    for (index_t i = 0; i < V::kLanes; ++i) a.lane[i] ^= b;
    return a;
  }
  friend Product<Words32> product(std::uint32_t a, const Words32& b) {
    Product<Words32> p;
    for (index_t i = 0; i < V::kLanes; ++i) {
      const auto [high, low] = product(a, b.lane[i]);
      p.high.lane[i] = high;
      p.low.lane[i] = low;
    }
    return p;
  }
};

/// What dropout multiplies weights with: 0 or 1 / (1 - share).
template <class V, int NV>
class DropPanel {
 public:
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  /// Of queries first_row and on of the tile.
  DropPanel(const Drop& drop, index_t first_row) : drop_(drop), first_row_(drop.row + first_row) { quad_.fill(-1); }
  bool active() const { return drop_.share > 0; }
  /// Of the queries of vector v and a key of the tile.
  V operator()(index_t key, int v) {
    const index_t j = drop_.col + key, quad = j / 4;
    if (quad_[static_cast<std::size_t>(v)] != quad) fill(quad, v);
    return V::load(factors_[v][j % 4]);
  }

 private:
  void fill(index_t quad, int v) {
    quad_[static_cast<std::size_t>(v)] = quad;
    PhiloxWords<Words32<V>> words;
    for (index_t lane = 0; lane < L; ++lane) {
      const index_t row = first_row_ + v * L + lane;
      const auto counter = dropout_counter(drop_.head + row % drop_.group, drop_.first_row + row / drop_.group, quad);
      for (std::size_t k = 0; k < 4; ++k) words[k].lane[lane] = counter[k];
    }
    words = philox(words, static_cast<std::uint64_t>(drop_.seed));
    const std::uint32_t threshold = dropout_threshold(drop_.share);
    const T kept = static_cast<T>(1 / (1 - drop_.share));
    for (std::size_t k = 0; k < 4; ++k)
      for (index_t lane = 0; lane < L; ++lane) factors_[v][k][lane] = words[k].lane[lane] >= threshold ? kept : T(0);
  }

  const Drop& drop_;
  index_t first_row_;
  std::array<index_t, NV> quad_;  ///< the quad of keys whose factors are here, of each vector
  alignas(64) T factors_[NV][4][L];
};

/// Scores of a panel of queries: NV vectors of them, from row `first` of the tile on.
template <class V, int NV>
class ModifyPanel {
 public:
  using T = typename V::T;
  static constexpr index_t L = V::kLanes, kWidth = NV * L, kKeys = 16;

  ModifyPanel(const ModifyScores& modify, double scale, View<const T> bias, View<const T> slopes, index_t first,
              index_t rows)
      : modify_(modify), scale_(V::all(static_cast<T>(scale))), bias_(bias), first_(first), rows_(rows) {
    for (int v = 0; v < NV && slopes.words() > 0; ++v) {
      alignas(64) T slope[L], position[L];
      for (index_t i = 0; i < L; ++i) {
        const index_t row = modify.place.row + first + v * L + i;
        slope[i] = slopes[row % slopes.words()];
        const index_t p = row / modify.place.mask.group;
        position[i] = static_cast<T>(p + modify.slope_offset - modify.place.col);
      }
      slope_[v] = V::load(slope);
      position_[v] = V::load(position);
    }
    slopes_ = slopes.words() > 0;
  }
  bool active() const { return modify_.softcap > 0 || bias_.words() > 0 || slopes_; }

  /// S <- the modified scores of keys first .. end, from products with keys.
  void operator()(T* S, index_t first, index_t end) const {
    for (index_t key = first; key < end; key += kKeys) {
      const index_t keys = std::min(kKeys, end - key);
      alignas(64) T bias[kKeys * kWidth];
      const bool of_pairs = bias_.words() > 0 && !of_keys();
      if (of_pairs) {
        const index_t rows = std::min(rows_, kWidth);
        transpose_in<V>({&bias_(first_, key), {rows, keys}, bias_.row_stride, bias_.col_stride}, bias, kWidth);
      }
      for (index_t k = 0; k < keys; ++k)
        for (int v = 0; v < NV; ++v) {
          T* const at = S + (key + k) * kWidth + v * L;
          V s = V::load(at) * scale_;
          if (modify_.softcap > 0) s = Softcap<V>(modify_.softcap)(s);
          if (of_pairs)
            s = s + V::load(bias + k * kWidth + v * L);
          else if (bias_.words() > 0)
            s = s + V::all(bias_(0, key + k));
          if (slopes_) {
            const V away = position_[v] - V::all(static_cast<T>(key + k));
            s = s - slope_[v] * max(away, V::zero() - away);
          }
          s.store(at);
        }
    }
  }

 private:
  bool of_keys() const { return bias_.rows() == 1; }

  const ModifyScores& modify_;
  V scale_;
  View<const T> bias_;
  index_t first_, rows_;
  bool slopes_ = false;
  V slope_[NV], position_[NV];
};

}  // namespace redblue::kernel::simd
