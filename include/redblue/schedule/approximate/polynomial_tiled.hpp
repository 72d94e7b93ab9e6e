#pragma once
#include <vector>

#include "redblue/schedule/parts/one_pass.hpp"
#include "redblue/schedule/parts/polynomial_state.hpp"

namespace redblue::schedule {

/// Polynomial attention where the state of all monomials does not fit: groups of monomials in the coordinates of a few
/// blocks of s (polynomial_groups.hpp), and cb of the d_v + 1 columns of values and row sums. Each group and block of
/// columns is a pass over keys and queries that reads only the coordinates of its blocks, D_G of them. Partial outputs
/// go through slow memory from group to group. With mg groups and h = c(d_v + 1, cb):
///   reads h (n_k + n_q) SUM |D_G| + mg n_k d_v + (mg - 1) n_q (d_v + 1) + (h - 1) n_q
///   writes (mg - 1) n_q (d_v + 1) + n_q d_v + [h > 1] n_q
///   footprint max |G| cb + |D_G| + cb + g for br = bc = 1; about n r d_v / M^(g / (g + 1)) words in all
/// Under a mask queries read the state one by one, whatever br.
struct PolynomialTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_tiled";
  static constexpr std::string_view idea = "forming the state of monomials in tiles, one pass over the rows for each";
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = MethodKind::polynomial};
  static constexpr std::array workspace{SlowArray::den};

  struct Tiling {
    index_t s = 1;       ///< coordinates of a block
    index_t values = 0;  ///< columns of V in the first block of columns, beside the row sums: cb - 1
    index_t w = 1;       ///< words that a group of monomials and a row may take: they say how many monomials it has
    index_t br = 1;      ///< queries per step
    index_t bc = 1;      ///< keys per step
    void knobs(const auto& knob) {
      knob({"s", &Sizes::d}, s);
      knob({"values", &Sizes::d_v, 0}, values);
      knob({"w"}, w);
      knob({"br", &Sizes::n_q}, br);
      knob({"bc", &Sizes::n_k}, bc);
    }
  };

  /// The passes of a tiling: groups of monomials, and blocks of columns.
  struct Passes {
    index_t degree, cb, h, w, br, bc;
    MonomialGroups groups;
    Passes(const Sizes& x, Tiling t)
        : degree(x.polynomial->degree()),
          cb(std::min(t.values, x.d_v) + 1),
          h(ceil_div(x.d_v + 1, cb)),
          w(t.w),
          br(t.br),
          bc(t.bc),
          groups(x.d, degree, t.s) {}
    /// The most monomials of a group of this many coordinates.
    Words most(index_t coordinates) const { return std::max(Words(1), (Words(w) - coordinates - cb - degree) / cb); }
    StateColumns columns(index_t block, index_t d_v) const {
      if (block == 0) return {0, cb - 1, 1};
      const index_t first = block * cb - 1;
      return {first, std::min(cb, d_v - first), 0};
    }
    /// Sums over all groups, and the largest phase.
    MonomialGroups::Totals totals(const Sizes& x, Words Phase::* of) const {
      return groups.totals([&](index_t D) { return most(D); },
                           [&](Words rows, index_t D) {
                             const auto phase = [&](StateColumns c) {
                               const Phase p = polynomial_phase(x, c, rows, D, br, bc);
                               return of == &Phase::footprint ? p.footprint : p.footprint + p.prefetch;
                             };
                             return std::max(phase(columns(0, x.d_v)),
                                             phase(columns(std::min<index_t>(1, h - 1), x.d_v)));
                           });
    }
  };

  static constexpr std::string_view restricted_bound(const Sizes& x) {
    return x.d + x.d_v <= 4096 ? "polynomial state" : "";
  }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.d, m.feature), 0, 1, smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  /// Every s and every number of column blocks, with the largest groups that fit; then more rows and keys per step
  /// where there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    std::optional<Tiling> best;
    Words least;
    Tiling t = smallest(x, limits.multiple);
    const index_t step = limits.multiple.feature;
    const std::vector<index_t> columns = numbers_of_values(x.d_v, step);
    for (t.s = smallest_tile(x.d, step); t.s <= x.d; t.s = t.s < x.d ? std::min(x.d, t.s + step) : x.d + 1) {
      Passes passes(x, t);
      for (const index_t values : columns) {
        t.values = values;
        passes.cb = values + 1;
        passes.h = ceil_div(x.d_v + 1, passes.cb);
        t.w = largest_w(x, limits, passes);
        if (t.w == 0) continue;
        passes.w = t.w;
        if (const Words cost = limits.price.of(io(x, passes)); !best || cost < least) {
          best = t;
          least = cost;
        }
      }
    }
    if (!best) return best;
    best->w -= spare_words(x, limits, *best);
    return doubled_in_turn<PolynomialTiledForward>(*best, x, limits);
  }
  /// How many values the first block of columns may have, the most first: multiples of step, or all; of those that make
  /// as many blocks the least.
  static std::vector<index_t> numbers_of_values(index_t d_v, index_t step) {
    std::vector<index_t> list;
    const auto blocks = [&](index_t values) { return ceil_div(d_v + 1, values + 1); };
    for (index_t values = d_v; values > 0;) {
      const index_t fewer = (values - 1) / step * step;
      if (blocks(fewer) != blocks(values)) list.push_back(values);
      values = fewer;
    }
    list.push_back(0);
    return list;
  }
  /// By how much w may shrink while there are as few groups, and they fit.
  static index_t spare_words(const Sizes& x, const Limits& limits, Tiling t) {
    const Words words = io(x, t).total();
    return largest_tile(t.w - 1, 1, [&](index_t spare) {
      Tiling less = t;
      less.w -= spare;
      return io(x, less).total() == words && fits<PolynomialTiledForward>(x, less, limits);
    });
  }
  /// The largest groups that fit; 0 if none do. Where the constant joins a group of more coordinates, larger groups
  /// with which it joins another may take less room: those of a row or two more are tried.
  static index_t largest_w(const Sizes& x, const Limits& limits, Passes& passes) {
    const Words all = monomials(x.d, passes.degree) * passes.cb + x.d + passes.cb + passes.degree;
    const index_t most = std::min(std::max(limits.M, Words(1)), all).to_index();
    const auto fits = [&](index_t w) {
      passes.w = w;
      const Words footprint = passes.totals(x, &Phase::footprint).largest;
      const Words prefetch = limits.double_buffer ? passes.totals(x, &Phase::prefetch).largest - footprint : Words(0);
      return limits.fit(footprint, prefetch);
    };
    index_t w = largest_tile(most, 1, fits);
    for (const index_t rows : {1, 2})
      if (const index_t more = w + rows * passes.cb; more <= most && fits(more))
        w = more + largest_tile(most - more, 1, [&](index_t words) { return fits(more + words); });
    return w;
  }

  static Words footprint(const Sizes& x, Tiling t) { return Passes(x, t).totals(x, &Phase::footprint).largest; }
  /// The next keys and values, or the next queries.
  static Words prefetch(const Sizes& x, Tiling t) {
    return Passes(x, t).totals(x, &Phase::prefetch).largest - footprint(x, t);
  }
  static Io io(const Sizes& x, Tiling t) { return io(x, Passes(x, t)); }
  static Io io(const Sizes& x, const Passes& p) {
    const auto sums = p.groups.totals([&](index_t D) { return p.most(D); }, [](Words, index_t) { return Words(0); });
    const Words rows = x.n_q, keys = x.n_k, between = sums.groups - 1, h = p.h;
    return Io()
        .read(SlowArray::K, h * keys * sums.coordinates)
        .read(SlowArray::V, sums.groups * keys * x.d_v)
        .read(SlowArray::Q, h * rows * sums.coordinates)
        .read(SlowArray::O, between * rows * x.d_v)
        .read(SlowArray::den, (between + h - 1) * rows)
        .write(SlowArray::O, sums.groups * rows * x.d_v)
        .write(SlowArray::den, (between + (p.h > 1 ? 1 : 0)) * rows);
  }
  static Words macs(const Sizes& x, Tiling) { return polynomial_macs(x); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Passes passes(x.shape, t);
    for (index_t C = 0; C < passes.h; ++C)
      passes.groups.for_each(
          [&](index_t D) { return passes.most(D); },
          [&](const MonomialGroup& g) { polynomial_pass(m, x, g, passes.columns(C, x.shape.d_v), t.br, t.bc); });
  }
};

}  // namespace redblue::schedule
