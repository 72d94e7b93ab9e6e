#pragma once
#include <algorithm>
#include <array>
#include <optional>

#include "redblue/kernels/modifiers.hpp"
#include "redblue/kernels/simd/exp.hpp"
#include "redblue/kernels/simd/panels.hpp"

/// Softcap, bias, ALiBi and dropout of scores in vectors: of queries in panels (OnlineAttention), of keys in rows.
namespace redblue::kernel::simd {

/// softcap tanh(s / softcap) and its derivative.
template <class V>
struct Softcap {
  using T = typename V::T;
  explicit Softcap(double cap)
      : cap_(V::all(static_cast<T>(cap))), power_(V::all(static_cast<T>(2 * kLog2E<double> / cap))) {}
  V operator()(V s) const { return cap_ * tanh_of_power(s * power_); }
  V operator()(V s, V& derivative) const {
    const V t = tanh_of_power(s * power_);
    derivative = V::all(T(1)) - t * t;
    return cap_ * t;
  }

 private:
  V cap_, power_;
};

/// Random words of dropout: of four keys in four vectors, where each lane has a counter of its own.
template <class V>
class DropWords {
 public:
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  using Words = typename V::Words;
  explicit DropWords(const Drop& drop)
      : seed_(static_cast<std::uint64_t>(drop.seed)),
        threshold_(dropout_threshold(drop.share)),
        kept_(static_cast<T>(1 / (1 - drop.share))) {}

  void set(index_t lane, const PhiloxWords<std::uint32_t>& counter) {
    for (std::size_t k = 0; k < 4; ++k) counter_[k][lane] = counter[k];
  }
  /// factors[k][lane]: what the weight of key k of the lane's four is multiplied with, 0 or 1 / (1 - share).
  void factors(T (&to)[4][L]) const { factors(Words::load(counter_[0]), to); }
  /// The factors where all lanes have these four keys.
  void factors_of(index_t quad, T (&to)[4][L]) const { factors(Words::all(static_cast<std::uint32_t>(quad)), to); }

 private:
  void factors(Words keys, T (&to)[4][L]) const {
    const PhiloxWords<Words> words = philox(
        PhiloxWords<Words>{keys, Words::load(counter_[1]), Words::load(counter_[2]), Words::load(counter_[3])}, seed_);
    alignas(64) std::uint32_t word[L];
    for (std::size_t k = 0; k < 4; ++k) {
      words[k].store(word);
      for (index_t lane = 0; lane < L; ++lane) to[k][lane] = word[lane] >= threshold_ ? kept_ : T(0);
    }
  }

  alignas(64) std::uint32_t counter_[4][L];
  std::uint64_t seed_;
  std::uint32_t threshold_;
  T kept_;
};

/// What dropout multiplies weights with, in panels of queries.
template <class V, int NV>
class DropPanel {
 public:
  using T = typename V::T;
  static constexpr index_t L = V::kLanes;
  /// The panel begins with query first_row of the tile.
  DropPanel(const Drop& drop, index_t first_row) : drop_(drop), first_row_(drop.row + first_row) { quad_.fill(-1); }
  bool active() const { return drop_.share > 0; }
  /// The factors of a key of the tile for the queries of vector v.
  V operator()(index_t key, int v) {
    const index_t j = drop_.col + key, quad = j / 4;
    if (quad_[static_cast<std::size_t>(v)] != quad) fill(quad, v);
    return V::load(factors_[v][j % 4]);
  }

 private:
  [[gnu::noinline]] void fill(index_t quad, int v) {
    index_t& now = quad_[static_cast<std::size_t>(v)];
    std::optional<DropWords<V>>& words = words_[static_cast<std::size_t>(v)];
    if (!words) {
      words.emplace(drop_);
      now = -1;
    }
    if (now < 0 || now >> 32 != quad >> 32)  // the counters hold the upper bits, too
      for (index_t lane = 0; lane < L; ++lane) {
        const index_t row = first_row_ + v * L + lane;
        words->set(lane, dropout_counter(drop_.head + row % drop_.group, drop_.first_row + row / drop_.group, quad));
      }
    now = quad;
    words->factors_of(quad, factors_[v]);
  }

  const Drop& drop_;
  index_t first_row_;
  std::array<index_t, NV> quad_;  ///< the quad of keys whose factors are here, of each vector
  std::array<std::optional<DropWords<V>>, NV> words_;
  alignas(64) T factors_[NV][4][L];
};

inline constexpr index_t kDropVectors = 3;

/// The factors of one query for kDropVectors vectors of keys, from the key `key` of all on; head and position say
/// which.
template <class V>
[[gnu::noinline]] void drop_factors(const Drop& drop, index_t head, index_t position, index_t key,
                                    typename V::T* keep) {
  constexpr index_t L = V::kLanes;
  DropWords<V> words(drop);  // lanes make factors of four keys each, from a multiple of four on
  for (index_t lane = 0; lane < L; ++lane) words.set(lane, dropout_counter(head, position, key / 4 + lane));
  typename V::T factors[4][L], keys[4 * L];
  words.factors(factors);
  for (index_t lane = 0; lane < L; ++lane)
    for (index_t k = 0; k < 4; ++k) keys[4 * lane + k] = factors[k][lane];
  std::copy_n(keys + key % 4, kDropVectors * L, keep);
}

/// Scores of a panel of queries: NV vectors of them, from row `first` of the tile on.
template <class V, int NV>
class ModifyPanel {
 public:
  using T = typename V::T;
  static constexpr index_t L = V::kLanes, kWidth = NV * L;

  /// `next`: how many words behind the bias of this panel the one lies that is needed after it, if biases are read
  /// where they lie. (Behind a staging buffer lies nothing of use, and to fetch it does no harm.)
  ModifyPanel(const ModifyScores& modify, double scale, View<const T> bias, View<const T> slopes, index_t first,
              index_t rows, index_t next)
      : scale_(V::all(static_cast<T>(scale))), softcap_(modify.softcap), bias_(bias), first_(first), rows_(rows) {
    if (bias.rows() > 1) coming_ = {&bias(first, 0) + next, rows, bias.cols(), bias.row_stride};
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
  bool active() const { return caps() || bias_.words() > 0 || slopes_; }
  bool caps() const { return softcap_ > 0; }

  /// Before scores are made of these keys, at most kKeys of them: their biases lie as scores do.
  void prepare(index_t key, index_t keys) {
    if (bias_.rows() > 1 && (key < ready_.begin || key + keys > ready_.end)) transpose_bias(key);
  }
  /// The biases that are needed later are fetched in this many turns, each a call of fetch_some().
  void fetch_in(index_t turns) { lines_ = coming_.lines_of(turns); }
  bool fetches() const { return lines_ > 0; }
  [[gnu::always_inline]] void fetch_some() { coming_.some(lines_); }
  /// Is a bias of pairs all there is? Then this makes scores of vector v and a key from products.
  bool only_adds() const { return bias_.rows() > 1 && !caps() && !slopes_; }
  [[gnu::always_inline]] V sum(V product, index_t key, int v) const {
    return fma(product, scale_, V::load(bias_of(key, v)));
  }

  /// S <- the modified scores of keys first .. end, from products with keys; `most` takes in the largest.
  void operator()(T* S, index_t first, index_t end, V (&most)[NV]) {
    const Softcap<V> cap(caps() ? softcap_ : 1);
    for (index_t key = first; key < end; ++key) {
      prepare(key, 1);
      T* const row = S + key * kWidth;
      V s[NV];
      const auto each = [&](const auto& f) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) s[v] = f(s[v], v);
      };
      each([&](V, int v) { return V::load(row + v * L) * scale_; });
      if (caps()) each([&](V x, int) { return cap(x); });
      if (bias_.rows() > 1)
        each([&](V x, int v) { return x + V::load(bias_of(key, v)); });
      else if (bias_.words() > 0)
        each([&](V x, int) { return x + V::all(bias_(0, key)); });
      if (slopes_)
        each([&](V x, int v) {
          const V away = position_[v] - V::all(static_cast<T>(key));
          return x - slope_[v] * max(away, V::zero() - away);
        });
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        s[v].store(row + v * L);
        most[v] = max(most[v], s[v]);
      }
    }
  }

  static constexpr index_t kKeys = 48;  ///< a multiple of the heights of tiles and of a vector

 private:
  const T* bias_of(index_t key, int v) const { return transposed_ + (key - ready_.begin) * kWidth + v * L; }
  [[gnu::noinline]] void transpose_bias(index_t key) {
    ready_ = {key, std::min(key + kKeys, bias_.cols())};
    transpose_in<V, Fetch::nothing>({&bias_(first_, key), {rows_, ready_.size()}, bias_.row_stride, bias_.col_stride},
                                    transposed_, kWidth);
  }

  V scale_;
  double softcap_;
  View<const T> bias_;
  index_t first_, rows_;
  FetchInTurn<T> coming_;
  index_t lines_ = 0;  ///< of these at a time
  bool slopes_ = false;
  Range ready_;  ///< keys whose biases are in
  alignas(64) T transposed_[kKeys * kWidth];
  V slope_[NV], position_[NV];
};

}  // namespace redblue::kernel::simd
