#pragma once
#include <utility>

#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/methods/maths/hashing.hpp"
#include "redblue/methods/maths/random_features.hpp"

/// Kernels of methods that sort rows: what the rows are sorted by, sorts of pairs (key, position), and rows of
/// attention that go on where an earlier round left them.
namespace redblue::kernel {

namespace detail {
/// The whole number in a word, from 0 to `most` whatever the word holds.
template <class T>
index_t whole(T word, index_t most) {
  if (!(word > 0)) return 0;
  return word < static_cast<T>(most) ? static_cast<index_t>(word) : most;
}
}  // namespace detail

/// out <- the products of a row x with `rounds` vectors of normal numbers, and |x|^2. The vectors have two numbers more
/// than x, for SmyrfKeys.
struct ProjectRow {
  static constexpr std::string_view name = "project_row";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"seed"};
  auto parameters() { return std::tie(seed); }
  index_t seed = 0;
  static constexpr bool fits(Shape out, Shape x) { return out.rows == 1 && out.cols >= 2 && x.rows == 1; }
  constexpr bool fits_place(Shape, Shape) const { return seed >= 0; }
  static constexpr index_t macs(Shape out, Shape x) { return out.words() * x.words(); }
  template <class T>
  void run(View<T> out, View<const T> x) const {
    const index_t rounds = out.cols() - 1;
    const auto normals = random_normals(rounds, x.cols() + 2, seed);
    for (index_t r = 0; r <= rounds; ++r)
      out[r] = static_cast<float>(hash_product<T>(x, 0, r < rounds ? normals->template row<double>(r) : nullptr));
  }
};

/// most <- the larger of both; a NaN is left out.
struct Larger {
  static constexpr std::string_view name = "larger";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape most, Shape x) { return most == Shape{1, 1} && x == most; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> most, View<const T> x) const {
    if (x[0] > most[0]) most[0] = x[0];
  }
};

/// S <- S + B, rounded to f32
struct AddRounded {
  static constexpr std::string_view name = "add_rounded";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape S, Shape B) { return S == Shape{1, 1} && B == S; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> S, View<const T> B) const {
    S[0] = static_cast<float>(S[0]) + static_cast<float>(B[0]);
  }
};

/// keys <- smyrf_key of the products in it, of round `round` of `rounds`, for rows of d words; positions <- first and
/// on.
struct SmyrfKeys {
  static constexpr std::string_view name = "smyrf_keys";
  static constexpr std::array access{Access::update, Access::write, Access::read, Access::read};
  static constexpr std::array<std::string_view, 6> parameter_names{"rounds", "round", "d", "seed", "of_keys", "first"};
  auto parameters() { return std::tie(rounds, round, d, seed, of_keys, first_row); }
  index_t rounds = 1;
  index_t round = 0;
  index_t d = 1;
  index_t seed = 0;
  bool of_keys = false;
  index_t first_row = 0;
  static constexpr bool fits(Shape keys, Shape positions, Shape squares, Shape S) {
    return keys.cols == 1 && positions == keys && squares == keys && S == Shape{1, 1};
  }
  constexpr bool fits_place(Shape, Shape, Shape, Shape) const {
    constexpr index_t kMost = index_t{1} << 28;  // words of a table
    return seed >= 0 && round >= 0 && round < rounds && d >= 1 && d <= kMost && rounds <= kMost / (d + 2);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> keys, View<T> positions, View<const T> squares, View<const T> S) const {
    const double normal = random_normals(rounds, d + 2, seed)->row<double>(round)[of_keys ? d : d + 1];
    for (index_t i = 0; i < keys.words(); ++i) {
      keys[i] =
          smyrf_key(static_cast<double>(keys[i]), static_cast<double>(squares[i]), static_cast<double>(S[0]), normal);
      positions[i] = static_cast<T>(first_row + i);
    }
  }
};

namespace detail {
/// Does pair (key, position) a come before pair b?
template <class T>
bool pair_before(const View<T>& pairs, index_t a, index_t b) {
  return pairs(a, 0) != pairs(b, 0) ? pairs(a, 0) < pairs(b, 0) : pairs(a, 1) < pairs(b, 1);
}
template <class T>
void swap_pairs(const View<T>& pairs, index_t a, index_t b) {
  std::swap(pairs(a, 0), pairs(b, 0));
  std::swap(pairs(a, 1), pairs(b, 1));
}
}  // namespace detail

/// Sorts pairs (key, position), in place (Williams 1964, heapsort). No key may be NaN.
struct SortPairs {
  static constexpr std::string_view name = "sort_pairs";
  static constexpr std::array access{Access::update};
  static constexpr bool fits(Shape pairs) { return pairs.cols == 2; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> pairs) const {
    const index_t n = pairs.rows();
    for (index_t i = n / 2; i > 0; --i) sink(pairs, i - 1, n);
    for (index_t end = n - 1; end > 0; --end) {
      detail::swap_pairs(pairs, 0, end);
      sink(pairs, 0, end);
    }
  }

 private:
  template <class T>
  static void sink(const View<T>& pairs, index_t i, index_t n) {
    for (index_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n && detail::pair_before(pairs, child, child + 1)) ++child;
      if (!detail::pair_before(pairs, i, child)) return;
      detail::swap_pairs(pairs, i, child);
      i = child;
    }
  }
};

/// The smallest of these pairs changes places with the first.
struct SmallestFirst {
  static constexpr std::string_view name = "smallest_first";
  static constexpr std::array access{Access::update};
  static constexpr bool fits(Shape pairs) { return pairs.cols == 2; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> pairs) const {
    index_t best = 0;
    for (index_t i = 1; i < pairs.rows(); ++i)
      if (detail::pair_before(pairs, i, best)) best = i;
    if (best != 0) detail::swap_pairs(pairs, 0, best);
  }
};

/// sums <- scratch for the products of a row x with random planes; the first word <- its bucket (sign_bucket).
struct SignBucket {
  static constexpr std::string_view name = "sign_bucket";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"seed"};
  auto parameters() { return std::tie(seed); }
  index_t seed = 0;
  static constexpr bool fits(Shape sums, Shape x) {
    constexpr index_t kMostPlanes = 24;
    return sums.rows == 1 && sums.cols >= 1 && sums.cols <= kMostPlanes && x.rows == 1;
  }
  constexpr bool fits_place(Shape, Shape) const { return seed >= 0; }
  static constexpr index_t macs(Shape sums, Shape x) { return sums.words() * x.words(); }
  template <class T>
  void run(View<T> sums, View<const T> x) const {
    for (index_t a = 0; a < sums.words(); ++a) sums[a] = 0;
    sums[0] = static_cast<T>(sign_bucket<T>(x, 0, *random_normals(sums.words(), x.cols(), seed)));
  }
};

/// id <- the bucket of a row x (rotation_bucket) in round `round` of `rounds`, of `buckets`; y and best are scratch.
struct RotationBucket {
  static constexpr std::string_view name = "rotation_bucket";
  static constexpr std::array access{Access::write, Access::write, Access::write, Access::read};
  static constexpr std::array<std::string_view, 4> parameter_names{"rounds", "round", "buckets", "seed"};
  auto parameters() { return std::tie(rounds, round, buckets, seed); }
  index_t rounds = 1;
  index_t round = 0;
  index_t buckets = 2;
  index_t seed = 0;
  static constexpr bool fits(Shape id, Shape y, Shape best, Shape x) {
    return id == Shape{1, 1} && y == id && best == id && x.rows == 1;
  }
  constexpr bool fits_place(Shape, Shape, Shape, Shape x) const {
    constexpr index_t kMost = index_t{1} << 28;  // words of a table
    return seed >= 0 && round >= 0 && round < rounds && buckets >= 2 && buckets <= kMost && rounds <= kMost / buckets &&
           rounds * buckets <= kMost / std::max<index_t>(1, x.cols);
  }
  constexpr index_t macs(Shape, Shape, Shape, Shape x) const { return buckets / 2 * x.words(); }
  template <class T>
  void run(View<T> id, View<T> y, View<T> best, View<const T> x) const {
    const index_t half = buckets / 2;
    y[0] = best[0] = 0;
    id[0] = static_cast<T>(rotation_bucket<T>(x, 0, *random_normals(rounds * half, x.cols(), seed), round, half));
  }
};

/// counts <- counts + 1 at the bucket id
struct Count {
  static constexpr std::string_view name = "count";
  static constexpr std::array access{Access::update, Access::read};
  static constexpr bool fits(Shape counts, Shape id) {
    return counts.rows == 1 && counts.cols >= 1 && id == Shape{1, 1};
  }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> counts, View<const T> id) const {
    counts[detail::whole(id[0], counts.words() - 1)] += 1;
  }
};

/// counts <- for each bucket, the number of rows in those before it: the place of its first row.
struct FirstPlaces {
  static constexpr std::string_view name = "first_places";
  static constexpr std::array access{Access::update};
  static constexpr bool fits(Shape counts) { return counts.rows == 1; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> counts) const {
    T before = 0;
    for (index_t b = 0; b < counts.words(); ++b) counts[b] = std::exchange(before, before + counts[b]);
  }
};

/// word, a bucket <- the next free place of it, which is then taken.
struct TakePlace {
  static constexpr std::string_view name = "take_place";
  static constexpr std::array access{Access::update, Access::update};
  static constexpr bool fits(Shape places, Shape word) {
    return places.rows == 1 && places.cols >= 1 && word == Shape{1, 1};
  }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> places, View<T> word) const {
    T& next = places[detail::whole(word[0], places.words() - 1)];
    word[0] = next;
    next += 1;
  }
};

/// m <- m + value: what rows have summed so far counts e^value times. -inf stays.
struct AddToScores {
  static constexpr std::string_view name = "add_to_scores";
  static constexpr std::array access{Access::update};
  static constexpr std::array<std::string_view, 1> parameter_names{"value"};
  auto parameters() { return std::tie(value); }
  double value = 0;
  static constexpr bool fits(Shape m) { return m.cols == 1; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> m) const {
    for (index_t r = 0; r < m.words(); ++r) m[r] += static_cast<T>(value);
  }
};

/// S <- scale Q K^T with every key as long as a unit; lengths are scratch for those of K. A key of length 0 stays.
struct UnitScores {
  static constexpr std::string_view name = "unit_scores";
  static constexpr std::array access{Access::write, Access::write, Access::read, Access::read};
  static constexpr std::array<std::string_view, 1> parameter_names{"scale"};
  auto parameters() { return std::tie(scale); }
  double scale = 1;
  static constexpr bool fits(Shape S, Shape lengths, Shape Q, Shape K) {
    return S == Shape{Q.rows, K.rows} && lengths == Shape{1, K.rows} && Q.cols == K.cols;
  }
  static constexpr index_t macs(Shape S, Shape, Shape Q, Shape) { return S.words() * Q.cols; }
  template <class T>
  void run(View<T> S, View<T> lengths, View<const T> Q, View<const T> K) const {
    for (index_t j = 0; j < K.rows(); ++j) {
      const T* k = &K(j, 0);
      lengths(0, j) = std::sqrt(dot(k, K.col_stride, k, K.col_stride, K.cols()));
      const T factor = static_cast<T>(scale) / (lengths(0, j) > T(0) ? lengths(0, j) : T(1));
      for (index_t i = 0; i < Q.rows(); ++i) S(i, j) = factor * dot(&Q(i, 0), Q.col_stride, k, K.col_stride, Q.cols());
    }
  }
  template <class T>
  static Implementation<T, UnitScores> implementation(Isa isa);
};

/// S <- `own` where query and key have one position; -inf, if causal, where the key comes later.
struct HideItself {
  static constexpr std::string_view name = "hide_itself";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr std::array<std::string_view, 2> parameter_names{"own", "causal"};
  auto parameters() { return std::tie(own, causal); }
  double own = 0;
  bool causal = false;
  static constexpr bool fits(Shape S, Shape queries, Shape keys) {
    return queries == Shape{S.rows, 1} && keys == Shape{S.cols, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> S, View<const T> queries, View<const T> keys) const {
    for (index_t i = 0; i < S.rows(); ++i)
      for (index_t j = 0; j < S.cols(); ++j) {
        if (keys[j] == queries[i]) S(i, j) = static_cast<T>(own);
        if (causal && keys[j] > queries[i]) S(i, j) = kMinusInf<T>;
      }
  }
};

/// l <- 1, or 0 where m = -inf: the sums of rows that go on from their O and lse = m.
struct ResumeSoftmax {
  static constexpr std::string_view name = "resume_softmax";
  static constexpr std::array access{Access::write, Access::read};
  static constexpr bool fits(Shape l, Shape m) { return l == m && m.cols == 1; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  void run(View<T> l, View<const T> m) const {
    for (index_t r = 0; r < m.words(); ++r) l[r] = m[r] == kMinusInf<T> ? T(0) : T(1);
  }
};

/// S <- -inf where the mask hides the key from the query: both are where these positions say.
struct HideByPosition {
  static constexpr std::string_view name = "hide_by_position";
  static constexpr std::array access{Access::update, Access::read, Access::read};
  static constexpr std::array<std::string_view, 3> parameter_names{"lo", "hi", "prefix"};
  auto parameters() { return std::tie(lo, hi, prefix); }
  index_t lo = -Mask::kFar;
  index_t hi = Mask::kFar;
  index_t prefix = 0;
  static constexpr bool fits(Shape S, Shape queries, Shape keys) {
    return queries == Shape{S.rows, 1} && keys == Shape{S.cols, 1};
  }
  static constexpr index_t macs(Shape, Shape, Shape) { return 0; }
  static constexpr index_t kMost = index_t{1} << 24;
  template <class T>
  void run(View<T> S, View<const T> queries, View<const T> keys) const {
    for (index_t i = 0; i < S.rows(); ++i) {
      const index_t p = detail::whole(queries[i], kMost);
      const Range seen = Mask{lo, hi, prefix}.keys(p, Mask::kFar);
      for (index_t j = 0; j < S.cols(); ++j)
        if (const index_t k = detail::whole(keys[j], kMost); k < seen.begin || k >= seen.end) S(i, j) = kMinusInf<T>;
    }
  }
};

}  // namespace redblue::kernel
