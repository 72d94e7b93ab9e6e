#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_passes.hpp"
#include "redblue/methods/schedules/parts/polynomial_rows.hpp"

namespace redblue::schedule {

/// Polynomial attention with a polynomial for each row where the state of all monomials does not fit: the tiles of
/// polynomial_tiled. Which polynomial a row takes needs whole rows: keys and queries pass once more, before all, and
/// leave its number, which every pass reads. Keys are taken less their mean (cen), for one more pass over them; it
/// stays. No row is exact. With mg groups, h blocks of columns, and the reads and writes of polynomial_tiled:
///   reads those + ([cen] + 1) n_k d + n_q d + h mg n_q   writes those + n_q
///   footprint [cen] d + the largest of that of polynomial_tiled and, for a radius, d + 2 (for a spread, which takes
///   the squares of keys, C(d + 2, 2) + d + 3) for bc = 1
struct PolynomialRowsTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_rows_tiled";
  static constexpr std::string_view idea =
      "a polynomial for the radius or the spread of each row, and a state in tiles, one pass over the rows for each "
      "tile";
  static constexpr Traits traits{
      .masks = true, .rewrites_outputs = true, .method = methods::kPolynomial, .by_rows = true};
  static constexpr bool one_core = true;  // a mask that it knows has one; packed sequences have several
  static constexpr std::array workspace{SlowArray::den, SlowArray::ids};

  struct Tiling {
    index_t s = 1;       ///< coordinates of a block
    index_t values = 0;  ///< columns of V in the first block of columns, beside the row sums: cb - 1
    index_t w = 1;       ///< words that a group of monomials and a row may take: they say how many monomials it has
    index_t bc = 1;      ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"s", &Sizes::d}, s);
      tile_size({"values", &Sizes::d_v, 0}, values);
      tile_size({"w"}, w);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
    PolynomialTiles tiles() const { return {s, values, w, 1, bc}; }
  };

  static constexpr std::string_view restricted_bound(const Sizes& x) {
    return x.d + x.d_v <= 4096 && !unsupported(x) ? "polynomial state" : "";
  }
  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (row_polynomials_of(x) == nullptr) return std::nullopt;  // Schedule::obstacle
    const RowPolynomials& fits = *row_polynomials_of(x);
    if (fits.cluster > 0) return "knows no clusters: leave out cluster=N";
    if (fits.exact_rows) return "has no exact rows: give no-exact-rows";
    if (fits.exact_keys > 0) return "has no exact keys: leave out exact-keys=N";
    if (fits.by_spread() && !x.mask.full())
      return "knows a gaussian fit without a mask only: of the keys that a row sees scores have a mean";
    return state_of_monomials_unsupported(x);
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.d, m.feature), 0, 1, smallest_tile(x.n_k, m.key)};
  }
  /// The cheapest passes; then more keys per step while there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto best = cheapest_passes<PolynomialRowsTiledForward>(x, limits, smallest(x, limits.multiple).tiles());
    if (!best) return std::nullopt;
    Tiling t{best->s, best->values, best->w, best->bc};
    t.bc = doubled(t.bc, x.n_k, [&](index_t keys) {
      return fits<PolynomialRowsTiledForward>(x, Tiling{t.s, t.values, t.w, keys}, limits);
    });
    return t;
  }

  static Words mean(const Sizes& x) { return x.tile(SlowArray::K, row_polynomials_of(x)->centred ? 1 : 0, x.d); }
  /// Before the passes, beside the mean of the keys: it is formed; keys, and rows, pass to be numbered.
  static std::array<Phase, 3> numbering(const Sizes& x, index_t bc) {
    using A = SlowArray;
    const bool by_spread = row_polynomials_of(x)->by_spread();
    const Words word = x.tile(A::den, 1, 1), stack = x.tile(A::den, by_spread ? 2 : 0, 1);
    const Words measures = by_spread ? x.tile(A::Z, monomials(x.d, 2), 1) : word;
    const Words keys = x.tile(A::K, keys_entering(x, bc), x.d), query = x.tile(A::Q, 1, x.d);
    return {Phase{row_polynomials_of(x)->centred ? x.word(A::K) : Words(0), x.word(A::K)},
            Phase{measures + keys + stack, keys}, Phase{measures + query + word + stack, query}};
  }
  static Words footprint(const Sizes& x, const PolynomialPasses& passes) {
    return mean(x) + std::max(footprint_of(numbering(x, passes.bc)), passes.footprint(x));
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint(x, PolynomialPasses(x, t.tiles())); }
  /// The next keys and values, or the next queries.
  static Words prefetch(const Sizes& x, const PolynomialPasses& passes) {
    const auto before = numbering(x, passes.bc);
    const Words all = std::max(footprint_of(before) + prefetch_of(before), passes.with_second_buffers(x));
    return mean(x) + all - footprint(x, passes);
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch(x, PolynomialPasses(x, t.tiles())); }
  static Io io(const Sizes& x, Tiling t) { return io(x, PolynomialPasses(x, t.tiles())); }
  static Io io(const Sizes& x, const PolynomialPasses& passes) {
    const Words rows = x.n_q, keys = x.n_k;
    return passes.io(x) + Io().read(SlowArray::K, (row_polynomials_of(x)->centred ? 2 : 1) * keys * x.d)
                              .read(SlowArray::Q, rows * x.d)
                              .read(SlowArray::ids, passes.count() * rows)
                              .write(SlowArray::ids, rows);
  }
  static Words macs(const Sizes& x, Tiling) {
    const Words squares = row_polynomials_of(x)->by_spread() ? (Words(x.n_k) + x.n_q) * monomials(x.d, 2) : Words(0);
    return polynomial_macs(x) + squares;
  }
  /// What rows take does not change their words.
  static Costs decided(const Sizes& x, Tiling t, const Decisions&) { return {io(x, t), footprint(x, t), macs(x, t)}; }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const bool centred = row_polynomials_of(x.shape)->centred;
    const auto mean = m.alloc(SlowArray::K, {centred ? 1 : 0, x.shape.d});
    if (centred) mean_of_keys(m, x, mean);
    number_rows(m, x, mean, t.bc);
    const RowPolynomials& fits = *row_polynomials_of(x.shape);
    const auto of_row = [&](Range I) -> const Polynomial& {
      const auto number = m.load(x.ids.rows(I));
      return fits[look_up(m, number, fits.steps() - 1)];
    };
    PolynomialPasses(x.shape, t.tiles()).for_each([&](const MonomialGroup& g, StateColumns c) {
      polynomial_pass(m, x, g, c, 1, t.bc, of_row, centred ? &mean : nullptr);
    });
  }

 private:
  /// What tells the polynomials of rows: the length of the longest key, or the squares of the keys.
  template <class M>
  struct Measures {
    Measures(M& m, const Sizes& s)
        : all(all_monomials(s, 2)),
          Z(m.alloc(SlowArray::Z, {row_polynomials_of(s)->by_spread() ? all.rows : 0, 0})),
          z(m.alloc(SlowArray::Z, {Z.shape().rows, 1})),
          longest(m.alloc(SlowArray::den, {row_polynomials_of(s)->by_spread() ? 0 : 1, 1})) {
      m.compute(kernel::Zero{}, z);
      m.compute(kernel::Zero{}, longest);
    }
    MonomialGroup all;
    Tile<M> Z, z, longest;
  };

  /// ids_i <- the number of the polynomial of row i, which sees the keys that are there.
  template <class M>
  static void number_rows(M& m, const ForwardOperands& x, const Tile<M>& mean, index_t bc) {
    const Measures<M> measures(m, x.shape);
    const bool by_spread = row_polynomials_of(x.shape)->by_spread();
    for_queries_after_keys(
        x.shape, 1, bc,
        [&](Range J) {
          const auto K_j = m.load(x.K.rows(J));
          if (mean.shape().rows > 0) m.compute(kernel::SubtractFromRows{}, K_j, mean);
          if (!by_spread) return m.compute(kernel::LongestRow{}, measures.longest, K_j);
          const auto none = m.alloc(SlowArray::V, {J.size(), 0}), stack = m.alloc(SlowArray::den, {2, 1});
          m.compute(kernel::AddMonomials{measures.all.monomials}, measures.Z, measures.z, stack, K_j, none, kNoWords);
        },
        [&](Range I) {
          const auto Q_i = m.load(x.Q.rows(I)), number = m.alloc(SlowArray::den, {1, 1});
          const auto stack = m.alloc(SlowArray::den, {by_spread ? 2 : 0, 1});
          number_row(m, x, measures, Q_i, number, stack);
          m.store(number, x.ids.rows(I));
        });
  }
};

}  // namespace redblue::schedule
