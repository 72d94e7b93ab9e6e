#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_rows.hpp"

namespace redblue::schedule {

/// Polynomial attention whose error is proved for any data: each row takes the polynomial for its own radius
/// B_i = |scale| |q_i| max_j |k_j| (methods/maths/row_polynomials.hpp), and rows whose radius exceeds the range are
/// listed and get exact attention afterwards, Br at a time. Or for the spread of its scores, read off the state at no
/// word more, of which nothing is proved. Keys may be taken less their mean (cen), for one more pass over them, and the
/// H longest may be kept with their exact weights e^z. Which rows and keys these are the data say: h rows are listed.
///   reads [cen] n_k d + n_k (d + d_v) + n_q d + h (d + 1) + ceil(h/Br) n_k (d + d_v)
///   writes n_q d_v + h
///   footprint the largest of Z0 + [cen] d + bc (d + d_v) + max(g, 2 if H > 0), Z0 + d + d_v + 2 + g, and
///   Br (d + d_v + 3 + Bc) + 1, where Z0 = r (d_v + 1) + 1 + H (d + d_v)
/// Under a mask without a left edge keys enter just before the first query that sees them, so radii and exact keys are
/// those of the keys that a query sees; the mean is that of all keys, and stays: d more words beside each query. The
/// last of Br listed rows says how many keys pass. Means of the scores that a row sees are then not 0, as a gaussian
/// fit takes them to be: there is none.
/// io and footprint say the most that any data cost, macs what the same data do, decided() what they cost where it is
/// known which rows are listed.
struct PolynomialRowsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_rows";
  static constexpr std::string_view idea =
      "a polynomial for the radius or the spread of each row, and exact rows beyond the range";
  static constexpr Traits traits{.masks = true, .method = methods::kPolynomial, .by_rows = true};
  static constexpr bool one_core = true;  // a mask that it knows has one; packed sequences have several
  static constexpr std::array workspace{SlowArray::ids};

  struct Tiling {
    index_t Br = 1;  ///< listed queries at a time
    index_t Bc = 1;  ///< keys per step of theirs
    index_t bc = 1;  ///< keys that enter the state per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    constexpr index_t kMostRows = 1 << 24;  // a word of fast memory that is an f32 has their numbers
    const bool lists = row_polynomials_of(x) != nullptr && row_polynomials_of(x)->exact_rows;
    if (lists && x.n_q > kMostRows) return "lists rows by a number in a word: 2^24 at most";
    if (row_polynomials_of(x) != nullptr && row_polynomials_of(x)->cluster > 0) return "knows no clusters (cluster=N)";
    if (row_polynomials_of(x) != nullptr && row_polynomials_of(x)->by_spread() && !x.mask.full())
      return "knows a gaussian fit without a mask only: of the keys that a row sees scores have a mean";
    return state_of_monomials_unsupported(x);
  }
  static std::string_view caveat(const Sizes& x, const Tiling&) {
    return row_polynomials_of(x) != nullptr && row_polynomials_of(x)->exact_rows
               ? "its words are the most that any data cost, with every row exact; a run says what they were"
               : "";
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t keys = smallest_tile(x.n_k, m.key);
    return {smallest_tile(x.n_q, m.query), keys, keys};
  }
  /// As many listed rows at a time as fit, even where fewer would do if all are listed: data may list fewer. Larger
  /// steps of keys, which move the same words, while there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    Tiling t = smallest(x, limits.multiple);
    if (!fits(t)) return std::nullopt;
    if (most_listed(x) > 0) {
      const index_t step = limits.multiple.query;
      t.Br = largest_tile(x.n_q, step, [&](index_t rows) { return fits({rows, t.Bc, t.bc}); });
      t.Bc = doubled(t.Bc, x.n_k, [&](index_t keys) { return fits({t.Br, keys, t.bc}); });
    }
    t.bc = doubled(t.bc, x.n_k, [&](index_t keys) { return fits({t.Br, t.Bc, keys}); });
    return t;
  }

  /// How many rows data may make it list.
  static index_t most_listed(const Sizes& x) { return row_polynomials_of(x)->exact_rows ? x.n_q : 0; }
  static Words footprint(const Sizes& x, Tiling t) {
    return std::max(footprint_of(phases_of_rows(x, t.Br, t.Bc, t.bc, 0)),
                    footprint_of(phases_of_rows(x, t.Br, t.Bc, t.bc, most_listed(x))));
  }
  /// The next keys and values, the next query, or the next streamed word.
  static Words prefetch(const Sizes& x, Tiling t) {
    const auto with = [&](index_t h) {
      const auto phases = phases_of_rows(x, t.Br, t.Bc, t.bc, h);
      return footprint_of(phases) + prefetch_of(phases);
    };
    return std::max(with(0), with(most_listed(x))) - footprint(x, t);
  }
  static Io io(const Sizes& x, Tiling t) { return decided(x, t, {x.n_q, most_listed(x)}).io; }
  static Words macs(const Sizes& x, Tiling t) { return decided(x, t, {x.n_q, most_listed(x)}).macs; }

  /// The worst of a decision is that its row is listed.
  static Costs decided(const Sizes& x, Tiling t, const Decisions& decisions) {
    const RowPolynomials& fits = *row_polynomials_of(x);
    const index_t h = decisions.worst, kept = exact_keys(x);
    const MetAsScores met(x, t.Br, decisions);
    const Words listed = h, rows = x.n_q, keys = x.n_k;
    const Words state = monomials(x.d, fits.degree()) * (Words(x.d_v) + 1), pair = Words(x.d) + x.d_v;
    return {Io().read(SlowArray::K, (met.keys + (fits.centred ? 2 : 1) * keys) * x.d)
                .read(SlowArray::V, (met.keys + keys) * x.d_v)
                .read(SlowArray::Q, (rows + listed) * x.d)
                .read(SlowArray::ids, listed)
                .write(SlowArray::ids, listed)
                .write(SlowArray::O, rows * x.d_v),
            footprint_of(phases_of_rows(x, t.Br, t.Bc, t.bc, h)),
            (keys - kept + rows - listed) * state + met.pairs * pair + macs_of_numbers(x)};
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    std::vector<index_t> listed;  // a machine with data reads their numbers from slow memory
    {
      const RowState<M> state(m, x.shape, exact_keys(x.shape));
      rows_after_keys(m, x, state, t.bc, listed);
    }
    // Under a mask the ragged block is the first: blocks then meet fewer keys, and the most if all rows are listed.
    const Blocks blocks{std::ssize(listed), t.Br, !x.shape.mask.full()};
    m.each(blocks.count(), [&](auto& w, index_t i) { exact_rows(w, x, blocks(i), listed, t.Br, t.Bc); });
  }
};

}  // namespace redblue::schedule
