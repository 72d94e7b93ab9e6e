#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/smyrf_sort.hpp"

namespace redblue::schedule {

/// SMYRF (Daras et al. 2020, arXiv 2010.05315): exact attention within balanced clusters of sorted queries and keys,
/// `rounds` times. Rows are projected once for all rounds; a round after the first goes on from O and lse.
/// T clusters, a_t queries and e_t keys in cluster t, p_q and p_k passes that merge runs:
///   reads (n_q + n_k) d + rounds (2 (n_q + n_k) + 2 n_q p_q + 2 n_k p_k + n_q (d + 1) + SUM_t e_t (d + d_v + 1) c_t) +
///   (rounds - 1) n_q (d_v + 1), c_t = ceil(a_t/Br), or min(a_t, 1) where the keys of a cluster are resident
///   writes (rounds + 1)(n_q + n_k) + rounds (n_q (1 + 2 p_q) + n_k (1 + 2 p_k) + n_q d_v) + (rounds - 1) n_q
///   footprint the largest of rounds + 4, 2 min(rho, n) + 2, [p > 0] 2 min(f, ceil(n/rho)) + 1 and, of a cluster,
///   min(Br, a_t)(d + d_v + 4) + 2, or e_t (d + d_v + [mask]) + d + d_v + 4 for Br = Bc = 1
struct SmyrfForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "smyrf";
  static constexpr std::string_view idea = "sorting queries and keys into clusters that attend within";
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = methods::kSmyrf};
  static constexpr std::array workspace{SlowArray::hash_q,  SlowArray::hash_k, SlowArray::order_q,
                                        SlowArray::order_k, SlowArray::runs,   SlowArray::den};
  static constexpr bool one_core = true;

  struct Tiling {
    index_t Br = 1;    ///< queries at a time
    index_t Bc = 1;    ///< keys per step, where they are resident
    index_t keep = 0;  ///< 1: the keys of a cluster are resident; 0: they pass one by one
    index_t rho = 1;   ///< pairs that are sorted in fast memory
    index_t f = 2;     ///< runs merged at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc, keep == 1);
      tile_size({"keep", nullptr, 0, 1}, keep);
      tile_size({"sort.rho"}, rho);
      tile_size({"sort.f", nullptr, 2}, f);
    }
    ClusterTiling of_clusters() const { return {Br, Bc, keep}; }
    SortTiling of_sorts() const { return {rho, f}; }
  };

  static const Smyrf& method(const Sizes& x) { return std::get<Smyrf>(method_of(x)); }
  static Clusters clusters(const Sizes& x) { return clusters_of(x, method(x).cluster); }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return sorts_rows_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), 0, 1, 2};
  }
  /// The phases follow each other: each has tiles of its own.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](const Tiling& t) { return limits.fit(footprint(x, t), prefetch(x, t)); };
    const auto chosen = [&](index_t keep) {
      return choose_cluster_tiling(x, limits.multiple, clusters(x).largest(), keep, keep == 0,
                                   [&](ClusterTiling c) { return fits({c.Br, c.Bc, c.keep, 1, 2}); });
    };
    auto best = chosen(1);  // resident keys pass least
    if (!best) best = chosen(0);
    if (!best) return std::nullopt;
    const auto tiling = [&](SortTiling sorts) { return Tiling{best->Br, best->Bc, best->keep, sorts.rho, sorts.f}; };
    return tiling(largest_sorts(x, [&](SortTiling sorts) { return fits(tiling(sorts)); }));
  }

  static std::array<Phase, 5> phases(const Sizes& x, const Tiling& t) {
    const auto sorts = sort_phases(x, method(x), t.of_sorts());
    return {sorts[0], sorts[1], sorts[2], sorts[3],
            cluster_phase(x, clusters(x), t.of_clusters(), [](index_t) { return false; })};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    using A = SlowArray;
    const Words rounds = method(x).rounds, rows = x.n_q, more = rounds - 1,
                visits = cluster_key_visits(clusters(x), t.of_clusters());
    return sort_io(x, method(x), t.of_sorts()) + Io().read(A::Q, rounds * rows * x.d)
                                                     .read(A::K, rounds * visits * x.d)
                                                     .read(A::V, rounds * visits * x.d_v)
                                                     .read(A::order_q, rounds * rows)
                                                     .read(A::order_k, rounds * visits)
                                                     .read(A::O, more * rows * x.d_v)
                                                     .read(A::den, more * rows)
                                                     .write(A::O, rounds * rows * x.d_v)
                                                     .write(A::den, more * rows);
  }
  static Words macs(const Sizes& x, const Tiling&) {
    return sort_macs(x, method(x)) + method(x).rounds * cluster_pairs(clusters(x)) * (Words(x.d) + x.d_v);
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    const index_t rounds = method(x.shape).rounds;
    sort_rows(m, x, method(x.shape), t.of_sorts());
    const Clusters all = clusters(x.shape);
    for (index_t r = 0; r < rounds; ++r)
      m.each(all.count, [&](auto& w, index_t c) {
        attend_in_cluster(w, x, all, c, x.order_q.columns(r, 1), x.order_k.columns(r, 1), t.of_clusters(),
                          {r == 0, r == rounds - 1}, NothingElse{});
      });
  }
};

}  // namespace redblue::schedule
