#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_clusters.hpp"
#include "redblue/methods/schedules/polynomial_rows.hpp"

namespace redblue::schedule {

/// A hybrid by pairs: one round of SMYRF sorts queries and keys into clusters, pairs that meet have their exact weights
/// e^z, and all others go by the polynomial of their row. The state has all keys; a row reads it and then adds
/// e^z - p(z) for each key of its cluster. Rows beyond the range are listed and get exact attention afterwards (h of
/// them). T clusters of a_t queries and e_t keys, p_q and p_k passes that merge runs, r monomials:
///   reads (n_q + n_k) d + 2 (n_q + n_k) + 2 n_q p_q + 2 n_k p_k + [cen] n_k d + n_k (d + d_v) + n_q (d + 1) +
///   SUM_t e_t (d + d_v + 1) ceil(a_t/br) + h (d + 1) + ceil(h/Br) n_k (d + d_v)
///   writes 2 (n_q + n_k) + n_q (1 + 2 p_q) + n_k (1 + 2 p_k) + n_q d_v + h
///   footprint the largest of the sorts (smyrf.hpp), r (d_v + 1) + 1 + [cen] d + max(bc (d + d_v) + g,
///   min(br, max a_t)(d + d_v + 5) + max(g, 2)) and Br (d + d_v + 3 + Bc) + 1
/// After the support basis of arXiv 2510.01643 and SMYRF (Daras et al. 2020, arXiv 2010.05315); the schedule is this
/// project's. io and footprint say the most that any data cost, macs what the same data do, decided() what they cost
/// where h is known.
struct PolynomialClustersForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_clusters";
  static constexpr std::string_view idea = "exact weights within clusters of sorted rows, a polynomial for other pairs";
  static constexpr Traits traits{.method = methods::kPolynomial, .by_rows = true};
  static constexpr std::array workspace{SlowArray::hash_q,  SlowArray::hash_k, SlowArray::order_q,
                                        SlowArray::order_k, SlowArray::runs,   SlowArray::ids};

  struct Tiling {
    index_t br = 1;   ///< sorted queries at a time
    index_t bc = 1;   ///< keys that enter the state per step
    index_t Br = 1;   ///< listed queries at a time
    index_t Bc = 1;   ///< keys per step of theirs
    index_t rho = 1;  ///< pairs that are sorted in fast memory
    index_t f = 2;    ///< runs merged at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"sort.rho"}, rho);
      tile_size({"sort.f", nullptr, 2}, f);
    }
    SortTiling of_sorts() const { return {rho, f}; }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (const auto why = sorts_rows_unsupported(x)) return why;
    if (row_polynomials_of(x) != nullptr && row_polynomials_of(x)->cluster == 0) return "is for clusters (cluster=N)";
    return state_of_monomials_unsupported(x);
  }
  static std::string_view caveat(const Sizes& x, const Tiling& t) { return PolynomialRowsForward::caveat(x, {t.Br}); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t rows = smallest_tile(x.n_q, m.query), keys = smallest_tile(x.n_k, m.key);
    return {rows, keys, rows, keys, 1, 2};
  }
  /// The phases follow each other: each has tiles of its own.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](const Tiling& u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    const index_t step = limits.multiple.query, largest = exact_clusters(x).largest().rows;
    Tiling t = smallest(x, limits.multiple);
    if (!fits(t)) return std::nullopt;
    const auto with = [&](index_t Tiling::* size, index_t value) {
      Tiling u = t;
      u.*size = value;
      return u;
    };
    t.br = largest_tile(std::min(x.n_q, ceil_div(largest, step) * step), step,
                        [&](index_t rows) { return fits(with(&Tiling::br, rows)); });
    if (most_listed(x) > 0) {
      t.Br = largest_tile(x.n_q, step, [&](index_t rows) { return fits(with(&Tiling::Br, rows)); });
      t.Bc = doubled(t.Bc, x.n_k, [&](index_t keys) { return fits(with(&Tiling::Bc, keys)); });
    }
    t.bc = doubled(t.bc, x.n_k, [&](index_t keys) { return fits(with(&Tiling::bc, keys)); });
    const auto tiling = [&](SortTiling sorts) {
      Tiling u = t;
      u.rho = sorts.rho;
      u.f = sorts.f;
      return u;
    };
    return tiling(largest_sorts(x, [&](SortTiling sorts) { return fits(tiling(sorts)); }));
  }

  /// How many rows data may make it list.
  static index_t most_listed(const Sizes& x) { return PolynomialRowsForward::most_listed(x); }
  static std::vector<Phase> phases(const Sizes& x, const Tiling& t, index_t h) {
    std::vector<Phase> all = phases_of_clusters(x, t.br, t.bc);
    for (const Phase& phase : sort_phases(x, clustering(x), t.of_sorts())) all.push_back(phase);
    if (h > 0) all.push_back(phase_of_exact_rows(x, t.Br, t.Bc, h));
    return all;
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t, most_listed(x))); }
  /// The next keys and values, the next queries, or the next streamed word.
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t, most_listed(x))); }
  static Io io(const Sizes& x, const Tiling& t) { return decided(x, t, {x.n_q, most_listed(x)}).io; }
  static Words macs(const Sizes& x, const Tiling& t) { return decided(x, t, {x.n_q, most_listed(x)}).macs; }

  /// The worst of a decision is that its row is listed.
  static Costs decided(const Sizes& x, const Tiling& t, const Decisions& decisions) {
    using A = SlowArray;
    const RowPolynomials& fits = *row_polynomials_of(x);
    const index_t h = decisions.worst;
    const Clusters all = exact_clusters(x);
    const Words listed = h, rows = x.n_q, keys = x.n_k, met = cluster_key_visits(all, {t.br, 1, 0});
    const Words visits = met + (c(h, t.Br) + 1) * keys;  // of keys and values, by those who use both
    const Words state = monomials(x.d, fits.degree()) * (Words(x.d_v) + 1), pair = Words(x.d) + x.d_v;
    return {sort_io(x, clustering(x), t.of_sorts()) + Io().read(A::K, (visits + (fits.centred ? 1 : 0) * keys) * x.d)
                                                          .read(A::V, visits * x.d_v)
                                                          .read(A::Q, (rows + listed) * x.d)
                                                          .read(A::order_q, rows)
                                                          .read(A::order_k, met)
                                                          .read(A::ids, listed)
                                                          .write(A::ids, listed)
                                                          .write(A::O, rows * x.d_v),
            footprint_of(phases(x, t, h)),
            sort_macs(x, clustering(x)) + (keys + rows - listed) * state + macs_of_numbers(x) +
                (cluster_pairs(all) + listed * keys) * pair};
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    const Sizes& s = x.shape;
    sort_rows(m, x, clustering(s), t.of_sorts());
    std::vector<index_t> listed;  // a machine with data reads their numbers from slow memory
    {
      const auto mean = m.alloc(SlowArray::K, {row_polynomials_of(s)->centred ? 1 : 0, s.d});
      if (row_polynomials_of(s)->centred) mean_of_keys(m, x, mean);
      const RowState<M> state(m, s, 0);
      keys_by_length(m, x, state, mean, {0, s.n_k}, t.bc);
      const Clusters all = exact_clusters(s);
      for (index_t one = 0; one < all.count; ++one) {
        const Range queries = all.queries(one);
        for (index_t i = queries.begin; i < queries.end; i += t.br)
          sorted_rows_by_state(m, x, mean, state, {i, std::min(i + t.br, queries.end)}, all.keys(one), listed);
      }
    }
    const index_t h = std::ssize(listed);
    m.each(ceil_div(h, t.Br),
           [&](auto& w, index_t i) { exact_rows(w, x, {i * t.Br, std::min(h, (i + 1) * t.Br)}, listed, t.Br, t.Bc); });
  }
};

}  // namespace redblue::schedule
