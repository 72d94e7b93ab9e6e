#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_pairs.hpp"
#include "redblue/methods/schedules/polynomial_rows.hpp"

namespace redblue::schedule {

/// The answer of polynomial_rows where the H exact keys do not fit in fast memory: a hybrid by pairs. All queries meet
/// the H longest keys exactly, the h queries whose radius exceeds the range meet all keys exactly, and the pairs that
/// are left go by the polynomial of their row. Numerators and denominators of both parts add up. One pass over the keys
/// finds the numbers of the longest, which stay; these keys are then read once for each br queries.
///   reads [cen] n_k d + n_k d + (n_k - H)(d + d_v) + ceil(n_q/br) H (d + d_v) + n_q d + h (d + 1) +
///   ceil(h/Br) n_k (d + d_v)   writes n_q d_v + h
///   footprint for bc = 1 the largest of [cen] d + 2 H + d + 4, Z0 + d + d_v + g,
///   Z0 + br (d + d_v + 2) + max(1 + g, d + d_v + br) and Br (d + d_v + 3 + Bc) + 1,
///   where Z0 = r (d_v + 1) + 1 + H + [cen] d
/// After the support basis of arXiv 2510.01643; the schedule is this project's. io and footprint say the most that any
/// data cost, macs what the same data do, decided() what they cost where h is known.
struct PolynomialPairsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_pairs";
  static constexpr std::string_view idea = "exact attention for long keys and queries, a polynomial for other pairs";
  static constexpr Traits traits{.method = methods::kPolynomial, .by_rows = true};
  static constexpr std::array workspace{SlowArray::ids};

  struct Tiling {
    index_t br = 1;  ///< queries that meet the exact keys at a time
    index_t bc = 1;  ///< keys per step of theirs, and that enter the state
    index_t Br = 1;  ///< listed queries at a time
    index_t Bc = 1;  ///< keys per step of theirs
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    constexpr index_t kMostRows = 1 << 24;  // a word of fast memory that is an f32 has their numbers
    if (x.n_q > kMostRows || x.n_k > kMostRows) return "lists rows and keys by a number in a word: 2^24 at most";
    if (row_polynomials_of(x) != nullptr && row_polynomials_of(x)->exact_keys == 0)
      return "is for exact keys (exact-keys=H)";
    return state_of_monomials_unsupported(x);
  }
  static std::string_view caveat(const Sizes& x, const Tiling& t) { return PolynomialRowsForward::caveat(x, {t.Br}); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t rows = smallest_tile(x.n_q, m.query), keys = smallest_tile(x.n_k, m.key);
    return {rows, keys, rows, keys};
  }
  /// The phases follow each other, so the most rows of each that fit; then larger steps of keys, which move the same
  /// words.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    const index_t step = limits.multiple.query;
    Tiling t = smallest(x, limits.multiple);
    if (!fits(t)) return std::nullopt;
    t.br =
        balanced(x.n_q, largest_tile(x.n_q, step, [&](index_t rows) { return fits({rows, t.bc, t.Br, t.Bc}); }), step);
    if (most_listed(x) > 0) {
      t.Br = largest_tile(x.n_q, step, [&](index_t rows) { return fits({t.br, t.bc, rows, t.Bc}); });
      t.Bc = doubled(t.Bc, x.n_k, [&](index_t keys) { return fits({t.br, t.bc, t.Br, keys}); });
    }
    t.bc = doubled(t.bc, x.n_k, [&](index_t keys) { return fits({t.br, keys, t.Br, t.Bc}); });
    return t;
  }

  /// How many rows data may make it list.
  static index_t most_listed(const Sizes& x) { return PolynomialRowsForward::most_listed(x); }
  static std::vector<Phase> phases(const Sizes& x, Tiling t, index_t h) {
    std::vector<Phase> all = phases_of_pairs(x, t.br, t.bc);
    if (h > 0) all.push_back(phase_of_exact_rows(x, t.Br, t.Bc, h));
    return all;
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return std::max(footprint_of(phases(x, t, 0)), footprint_of(phases(x, t, most_listed(x))));
  }
  /// The next keys and values, the next queries, or the next streamed word.
  static Words prefetch(const Sizes& x, Tiling t) {
    const auto with = [&](index_t h) { return footprint_of(phases(x, t, h)) + prefetch_of(phases(x, t, h)); };
    return std::max(with(0), with(most_listed(x))) - footprint(x, t);
  }
  static Io io(const Sizes& x, Tiling t) { return decided(x, t, {x.n_q, most_listed(x)}).io; }
  static Words macs(const Sizes& x, Tiling t) { return decided(x, t, {x.n_q, most_listed(x)}).macs; }

  /// The worst of a decision is that its row is listed.
  static Costs decided(const Sizes& x, Tiling t, const Decisions& decisions) {
    const RowPolynomials& fits = *row_polynomials_of(x);
    const index_t h = decisions.worst, kept = exact_keys(x);
    const Words listed = h, rows = x.n_q, keys = x.n_k, others = x.n_k - kept;
    const Words visits =
        others + c(x.n_q, t.br) * kept + c(h, t.Br) * keys;  // of keys and values, by those who use both
    const Words state = monomials(x.d, fits.degree()) * (Words(x.d_v) + 1), pair = Words(x.d) + x.d_v;
    return {Io().read(SlowArray::K, (visits + (fits.centred ? 2 : 1) * keys) * x.d)
                .read(SlowArray::V, visits * x.d_v)
                .read(SlowArray::Q, (rows + listed) * x.d)
                .read(SlowArray::ids, listed)
                .write(SlowArray::ids, listed)
                .write(SlowArray::O, rows * x.d_v),
            footprint_of(phases(x, t, h)),
            (others + rows - listed) * state + (rows * kept + listed * keys) * pair + macs_of_numbers(x)};
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    std::vector<index_t> listed;  // a machine with data reads their numbers from slow memory
    {
      const auto mean = m.alloc(SlowArray::K, {row_polynomials_of(s)->centred ? 1 : 0, s.d});
      if (row_polynomials_of(s)->centred) mean_of_keys(m, x, mean);
      const auto ids = m.alloc(SlowArray::ids, {exact_keys(s), 1});
      select_longest(m, x, mean, ids);
      const SplitKeys keys = split_keys(m, x, ids);
      const RowState<M> state(m, s, 0);
      others_into_state(m, x, mean, keys, state, t.bc);
      for (index_t i = 0; i < s.n_q; i += t.br)
        rows_by_state(m, x, mean, keys, state, {i, std::min(i + t.br, s.n_q)}, t.bc, listed);
    }
    const index_t h = std::ssize(listed);
    m.each(ceil_div(h, t.Br),
           [&](auto& w, index_t i) { exact_rows(w, x, {i * t.Br, std::min(h, (i + 1) * t.Br)}, listed, t.Br, t.Bc); });
  }
};

}  // namespace redblue::schedule
