#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/schedules/parts/tile_sizes.hpp"
#include "redblue/schedules/parts/traits.hpp"

/// The limits that a tiling must keep, and searches over tile sizes. All results are exact; floating point only prunes.
namespace redblue::schedule {

/// The price of one word, per array and direction, in any integer unit (1: count words; 2 and 4: bytes).
struct Prices {
  std::array<Words, kSlowArrays> read;
  std::array<Words, kSlowArrays> write;
  Prices() {
    read.fill(1);
    write.fill(1);
  }
  Words reading(SlowArray a) const { return read[index_of(a)]; }
  Words writing(SlowArray a) const { return write[index_of(a)]; }
  Words of(const Io& io) const {
    Words total;
    for (std::size_t a = 0; a < kSlowArrays; ++a) {  // few arrays are one schedule's
      if (io.reads[a] != 0) total += read[a] * io.reads[a];
      if (io.writes[a] != 0) total += write[a] * io.writes[a];
    }
    return total;
  }
};

/// Tile sizes must be multiples of these, or span their whole dimension.
struct Multiples {
  index_t query = 1;
  index_t key = 1;
  index_t feature = 1;
};

/// Words, as a product or quotient reads in a formula: c(a, b) = ceil(a / b).
constexpr Words c(index_t a, index_t b) { return ceil_div(a, b); }

/// One of several phases of a schedule. Phases follow each other, so the footprint is the largest, not the sum.
struct Phase {
  Words footprint;
  Words prefetch;
};

struct Limits {
  Words M;                     ///< fast memory, in the unit of Sizes::fast, by default words
  Words reserve = 0;           ///< what of it is kept free (2 words: strict Hong-Kung play)
  bool double_buffer = false;  ///< blocks that arrive in the innermost loop have a second buffer
  Multiples multiple{};
  Prices price{};

  /// Words a tiling occupies under these limits.
  Words occupied(Words footprint, Words prefetch) const {
    return footprint + reserve + (double_buffer ? prefetch : Words(0));
  }
  bool fit(Words footprint, Words prefetch) const { return occupied(footprint, prefetch) <= M; }
  bool fit(const Phase& p) const { return fit(p.footprint, p.prefetch); }
};

/// Does a tiling of the schedule S fit? Second buffers are counted only where there are any.
template <class S, class Tiling>
bool fits(const Sizes& x, const Tiling& t, const Limits& limits) {
  return limits.fit(S::footprint(x, t), limits.double_buffer ? S::prefetch(x, t) : Words(0));
}

inline Words footprint_of(std::span<const Phase> phases) {
  Words most = 0;
  for (const Phase& p : phases) most = std::max(most, p.footprint);
  return most;
}
/// What second buffers add to the footprint of all.
inline Words prefetch_of(std::span<const Phase> phases) {
  Words most = 0;
  for (const Phase& p : phases) most = std::max(most, p.footprint + p.prefetch);
  return most - footprint_of(phases);
}

inline Words footprint_of(std::initializer_list<Phase> phases) {
  return footprint_of(std::span(phases.begin(), phases.size()));
}
inline Words prefetch_of(std::initializer_list<Phase> phases) {
  return prefetch_of(std::span(phases.begin(), phases.size()));
}

/// Square tiles over queries, keys and features: where sides of b words are legal under these multiples.
class SquareSides {
 public:
  SquareSides(const Multiples& m, const Sizes& x)
      : steps_{{{x.n_q, m.query}, {x.n_k, m.key}, {x.d, m.feature}, {x.d_v, m.feature}}} {}

  index_t longest() const { return std::max({steps_[0].n, steps_[1].n, steps_[2].n, steps_[3].n}); }
  /// The smallest.
  index_t smallest() const {
    index_t best = longest();
    for_spans([&](index_t spanned, Words step) {
      const Words side = (std::max<index_t>(spanned, 1) + step - 1) / step * step;
      if (side < best) best = side.to_index();
    });
    return best;
  }
  /// The largest up to `most`; 0 if there is none.
  index_t largest(index_t most) const {
    index_t best = 0;
    for_spans([&](index_t spanned, Words step) {
      const Words side = most / step * step;
      if (side >= spanned && side > best) best = side.to_index();
    });
    return best;
  }

 private:
  struct Step {
    index_t n, multiple;
  };
  /// f(spanned, step): sides from `spanned` on span every dimension up to that, and must be multiples of `step`.
  template <class F>
  void for_spans(const F& f) const {
    for (const index_t spanned : {index_t{0}, steps_[0].n, steps_[1].n, steps_[2].n, steps_[3].n}) {
      Words step = 1;
      for (const auto& [n, multiple] : steps_)
        if (n > spanned && step <= longest()) {
          index_t a = step.to_index(), b = multiple;
          while (b != 0) a = std::exchange(b, a % b);
          step = step / a * multiple;
        }
      f(spanned, step);
    }
  }
  std::array<Step, 4> steps_;
};

/// Are all sizes that the tiling lists multiples, or the whole of their dimension?
template <class Tiling>
bool is_legal(const Sizes& x, const Multiples& m, Tiling t) {
  bool legal = true;
  t.tile_sizes([&](const TileSizeRange& range, index_t size, bool listed = true) {
    if (!listed || range.along == nullptr || size >= x.*range.along) return;
    const index_t step = range.along == &Sizes::n_q ? m.query : range.along == &Sizes::n_k ? m.key : m.feature;
    legal = legal && size % step == 0;
  });
  return legal;
}

/// The smallest tile size: one step, or the whole dimension if that is less.
constexpr index_t smallest_tile(index_t n, index_t step) { return std::min(n, step); }

/// The smallest legal tile that cuts n into no more blocks than `size` does: same I/O, smaller footprint.
constexpr index_t balanced(index_t n, index_t size, index_t step) {
  const index_t even = ceil_div(n, ceil_div(n, size));
  return std::min(n, ceil_div(even, step) * step);
}

/// The largest legal tile that cuts n into one block more than `size` does; 0 if there is none.
constexpr index_t next_smaller(index_t n, index_t size, index_t step) {
  return (n - 1) / ceil_div(n, size) / step * step;
}

/// Sizes between which little changes under a mask with a left edge: all legal tiles up to 256 steps, of larger ones
/// for each number of blocks the smallest and the largest. The one below `size`, 0 if there is none; and the one above.
inline constexpr index_t kAllSizes = 256;
constexpr index_t likely_below(index_t n, index_t size, index_t step) {
  if (size <= kAllSizes * step) return (size - 1) / step * step;
  const index_t even = balanced(n, size, step);
  return even < size ? even : next_smaller(n, size, step);
}
constexpr index_t likely_above(index_t n, index_t size, index_t step) {
  if (size < kAllSizes * step) return std::min(n, size + step);
  const index_t fewer = ceil_div(n, size) - 1;  // blocks
  if (fewer <= 0) return n;
  const index_t largest = (n - 1) / fewer / step * step;
  return size < largest ? largest : std::min(n, ceil_div(ceil_div(n, fewer), step) * step);
}

/// f(size) for sizes of n rows or keys, from `largest` down until f is false: all where these are few, else the first
/// likely ones, then fewer and fewer, and at last those around best().
template <class F, class Best>
void for_many_sizes(index_t n, index_t largest, index_t step, const F& f, const Best& best) {
  constexpr index_t kAll = 1024, kLikely = 64, kParts = 64, kAround = 32;
  const auto below = [&](index_t size) { return (size - 1) / step * step; };
  index_t tries = 0;
  for (index_t size = largest; size > 0 && f(size); ++tries) {
    if (size <= kAll * step)
      size = below(size);
    else
      size = tries < kLikely ? likely_below(n, size, step) : below(size - size / kParts);
  }
  if (largest <= kAll * step) return;
  const index_t from = std::min(largest, best() + kAround * step), to = from - 2 * kAround * step;
  for (index_t size = from; size > std::max<index_t>(0, to) && f(size);) size = below(size);
}

/// The largest legal tile of a dimension n for which fits() holds (monotone); 0 if not even the smallest fits.
template <class Fits>
index_t largest_tile(index_t n, index_t step, const Fits& fits) {
  index_t low = 0, high = ceil_div(n, step);  // in steps
  while (low < high) {
    const index_t mid = high - (high - low) / 2;
    if (fits(std::min(n, mid * step)))
      low = mid;
    else
      high = mid - 1;
  }
  return std::min(n, low * step);
}

/// The k of 1 to n that costs least, of those that tie the largest. least(first, last) is at most what the cheapest k
/// of these costs; of a single k it is its cost. The part that may hold the cheapest is halved until it is a single k.
template <class Least>
index_t least_of(index_t n, const Least& least) {
  struct Part {
    Words least;
    index_t first, last;
  };
  const auto after = [](const Part& a, const Part& b) {
    return a.least > b.least || (a.least == b.least && a.last < b.last);
  };
  std::vector<Part> open{{0, 1, n}};  // a heap
  while (true) {
    std::ranges::pop_heap(open, after);
    const Part part = open.back();
    if (part.first == part.last) return part.first;
    open.pop_back();
    const index_t middle = part.first + (part.last - part.first) / 2;
    for (const auto& [first, last] : {std::pair(part.first, middle), std::pair(middle + 1, part.last)}) {
      open.push_back({least(first, last), first, last});
      std::ranges::push_heap(open, after);
    }
  }
}

/// Minimises ceil(n / b2) alpha + ceil(m / b1) beta over legal b1 of m and b2 of n for which fits(b1, b2) holds. fits
/// must be monotone in b2 and imply b1 b2 <= M. The result is exact: for each number of row blocks the smallest b1
/// leaves the most room for b2. The search goes from the continuous optimum in both directions; a direction ends when
/// even b2 = M / b1 could not win.
template <class Fits>
std::optional<std::array<index_t, 2>> best_tile(index_t m, index_t n, index_t step1, index_t step2, Words alpha,
                                                Words beta, Words M, const Fits& fits) {
  std::optional<std::array<index_t, 2>> best;
  Words best_cost;
  const auto try_rows = [&](index_t b1) {
    const index_t largest = largest_tile(n, step2, [&](index_t b2) { return fits(b1, b2); });
    if (largest == 0) return;
    const index_t b2 = balanced(n, largest, step2);
    const Words cost = Words(ceil_div(n, b2)) * alpha + Words(ceil_div(m, b1)) * beta;
    if (!best || cost < best_cost) {
      best = {b1, b2};
      best_cost = cost;
    }
  };
  const double dm = static_cast<double>(m), dn = static_cast<double>(n), dM = M.to_double();
  const double da = alpha.to_double(), db = beta.to_double();
  const auto cannot_win = [&](index_t b1) {
    const double x = static_cast<double>(b1);
    return best && std::max(1.0, dn * x / dM) * da + std::max(1.0, dm / x) * db > best_cost.to_double() * (1 + 1e-12);
  };
  const double optimum = std::max(dM / dn, std::sqrt(dm * db * dM / (dn * da)));
  const index_t near_optimum = static_cast<index_t>(std::clamp(optimum, 1.0, dm));
  const index_t start = balanced(m, std::min(m, ceil_div(near_optimum, step1) * step1), step1);
  for (index_t b1 = start; !cannot_win(b1);) {
    try_rows(b1);
    const index_t blocks = ceil_div(m, b1);
    if (blocks == 1) break;
    b1 = std::min(m, ceil_div(ceil_div(m, blocks - 1), step1) * step1);
  }
  for (index_t b1 = start; b1 > step1;) {
    b1 = balanced(m, (ceil_div(b1, step1) - 1) * step1, step1);
    if (cannot_win(b1)) break;
    try_rows(b1);
  }
  return best;
}

/// The tiling of a schedule whose words do not depend on it: the smallest, if it fits.
template <class S>
std::optional<typename S::Tiling> smallest_if_it_fits(const Sizes& x, const Limits& limits) {
  const typename S::Tiling t = S::smallest(x, limits.multiple);
  if (!fits<S>(x, t, limits)) return std::nullopt;
  return t;
}

/// Where blocks move the same words whatever their size, large ones run faster: this size of n rows or keys, doubled
/// while fits(size) holds, up to a size beyond which kernels gain little.
inline constexpr index_t kEnough = 64;
template <class Fits>
index_t doubled(index_t size, index_t n, const Fits& fits, index_t enough = kEnough) {
  while (2 * size <= std::min(n, enough) && fits(2 * size)) size *= 2;
  return size;
}

}  // namespace redblue::schedule
