#pragma once
#include <optional>
#include <vector>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_state.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

/// A state of monomials in tiles: which passes there are, and the tiles that make them the cheapest.
namespace redblue::schedule {

struct PolynomialTiles {
  index_t s = 1;       ///< coordinates of a block
  index_t values = 0;  ///< columns of V in the first block of columns, beside the row sums: cb - 1
  index_t w = 1;       ///< words that a group of monomials and a row may take: they say how many monomials it has
  index_t br = 1;      ///< queries per step
  index_t bc = 1;      ///< keys per step
  void tile_sizes(const auto& tile_size) {
    tile_size({"s", &Sizes::d}, s);
    tile_size({"values", &Sizes::d_v, 0}, values);
    tile_size({"w"}, w);
    tile_size({"br", &Sizes::n_q}, br);
    tile_size({"bc", &Sizes::n_k}, bc);
  }
};

/// The passes of a tiling: groups of monomials, and blocks of columns.
struct PolynomialPasses {
  index_t degree, w, br, bc;
  ColumnBlocks columns;
  MonomialGroups groups;
  PolynomialPasses(const Sizes& x, PolynomialTiles t)
      : degree(polynomial_of(x)->degree()),
        w(t.w),
        br(t.br),
        bc(t.bc),
        columns(x.d_v, t.values),
        groups(x.d, degree, t.s) {}
  /// The most monomials of a group of this many coordinates.
  Words most(index_t coordinates) const {
    return std::max(Words(1), (Words(w) - coordinates - columns.columns - degree) / columns.columns);
  }
  /// The footprint of the largest pass.
  Words footprint(const Sizes& x) const {
    return largest(x, [](const Phase& p) { return p.footprint; });
  }
  Words with_second_buffers(const Sizes& x) const {
    return largest(x, [](const Phase& p) { return p.footprint + p.prefetch; });
  }
  Words count() const { return columns.count() * totals().groups; }
  Io io(const Sizes& x) const {
    const auto sums = totals();
    return io_of_passes(x, columns.count(), sums.groups, sums.coordinates);
  }
  /// f(group, columns), in order.
  template <class F>
  void for_each(const F& f) const {
    for (index_t C = 0; C < columns.count(); ++C)
      groups.for_each([&](index_t D) { return most(D); }, [&](const MonomialGroup& g) { f(g, columns(C)); });
  }

 private:
  template <class Size>
  Words largest(const Sizes& x, const Size& size) const {
    const auto of_group = [&](Words rows, index_t D) {
      return columns.largest([&](StateColumns c) { return size(polynomial_phase(x, c, rows, D, br, bc)); });
    };
    return groups.totals([&](index_t D) { return most(D); }, of_group).largest;
  }
  MonomialGroups::Totals totals() const {
    return groups.totals([&](index_t D) { return most(D); }, [](Words, index_t) { return Words(0); });
  }
};

/// Do the passes of schedule S fit? Second buffers are counted only where there are any.
template <class S>
bool fit(const Sizes& x, const Limits& limits, const PolynomialPasses& passes) {
  return limits.fit(S::footprint(x, passes), limits.double_buffer ? S::prefetch(x, passes) : Words(0));
}

/// The largest groups that fit; 0 if none do. Where the constant joins a group of more coordinates, larger groups with
/// which it joins another may take less room: those of a row or two more are tried.
template <class S>
index_t largest_groups(const Sizes& x, const Limits& limits, PolynomialPasses& passes) {
  const index_t cb = passes.columns.columns;
  const Words all = monomials(x.d, passes.degree) * cb + x.d + cb + passes.degree;
  const index_t most = std::min(std::max(limits.M, Words(1)), all).to_index();
  const auto fits = [&](index_t w) {
    passes.w = w;
    return fit<S>(x, limits, passes);
  };
  index_t w = largest_tile(most, 1, fits);
  for (const index_t rows : {1, 2})
    if (const index_t more = w + rows * cb; more <= most && fits(more))
      w = more + largest_tile(most - more, 1, [&](index_t words) { return fits(more + words); });
  return w;
}

/// The cheapest tiling of schedule S among every s and every number of column blocks, with the largest groups that fit
/// beside the rows of the smallest tiles t.
template <class S>
std::optional<PolynomialTiles> cheapest_passes(const Sizes& x, const Limits& limits, PolynomialTiles t) {
  std::optional<PolynomialTiles> best;
  Words least;
  const index_t step = limits.multiple.feature;
  const std::vector<index_t> columns = numbers_of_values(x.d_v, step);
  for (t.s = smallest_tile(x.d, step); t.s <= x.d; t.s = t.s < x.d ? std::min(x.d, t.s + step) : x.d + 1) {
    PolynomialPasses passes(x, t);
    for (const index_t values : columns) {
      t.values = values;
      passes.columns = {x.d_v, values};
      t.w = largest_groups<S>(x, limits, passes);
      if (t.w == 0) continue;
      passes.w = t.w;
      if (const Words cost = limits.price.of(S::io(x, passes)); !best || cost < least) {
        best = t;
        least = cost;
      }
    }
  }
  if (!best) return best;
  // By how much w may shrink while there are as few groups, and they fit.
  const Words words = S::io(x, PolynomialPasses(x, *best)).total();
  best->w -= largest_tile(best->w - 1, 1, [&](index_t spare) {
    PolynomialTiles less = *best;
    less.w -= spare;
    const PolynomialPasses passes(x, less);
    return S::io(x, passes).total() == words && fit<S>(x, limits, passes);
  });
  return best;
}

}  // namespace redblue::schedule
