#pragma once
#include "redblue/schedule/parts/clusters.hpp"
#include "redblue/schedule/parts/external_sort.hpp"

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
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = MethodKind::smyrf};
  static constexpr std::array workspace{SlowArray::hash_q,  SlowArray::hash_k, SlowArray::order_q,
                                        SlowArray::order_k, SlowArray::runs,   SlowArray::den};
  static constexpr bool one_core = true;

  struct Tiling {
    index_t Br = 1;    ///< queries at a time
    index_t Bc = 1;    ///< keys per step, where they are resident
    index_t keep = 0;  ///< 1: the keys of a cluster are resident; 0: they pass one by one
    index_t rho = 1;   ///< pairs that are sorted in fast memory
    index_t f = 2;     ///< runs merged at a time
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"Bc", &Sizes::n_k}, Bc, keep == 1);
      knob({"keep", nullptr, 0, 1}, keep);
      knob({"sort.rho"}, rho);
      knob({"sort.f", nullptr, 2}, f);
    }
    ClusterTiling of_clusters() const { return {Br, Bc, keep}; }
    SortTiling of_sorts() const { return {rho, f}; }
  };

  static const Smyrf& method(const Sizes& x) { return std::get<Smyrf>(x.method); }
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
    Tiling t{best->Br, best->Bc, best->keep, 1, 2};
    const index_t n = std::max(x.n_q, x.n_k);
    t.rho = largest_tile(n, 1, [&](index_t pairs) { return fits({t.Br, t.Bc, t.keep, pairs, t.f}); });
    const auto merges = [&](index_t runs) { return fits({t.Br, t.Bc, t.keep, t.rho, std::max(t.f, runs)}); };
    t.f = std::max(t.f, largest_tile(ceil_div(n, t.rho), 1, merges));
    return t;
  }

  static std::array<Phase, 5> phases(const Sizes& x, const Tiling& t) {
    const index_t n = std::max(x.n_q, x.n_k), rounds = method(x).rounds;
    const Words word = x.tile(SlowArray::hash_k, 1, 1), row = std::max(x.word(SlowArray::Q), x.word(SlowArray::K)),
                hash = std::max(x.tile(SlowArray::hash_q, 1, rounds + 1) + x.word(SlowArray::Q),
                                x.tile(SlowArray::hash_k, 1, rounds + 1) + x.word(SlowArray::K));
    const auto forming = [&](index_t pairs, Words square) {
      return Phase{word + forming_words(x, pairs, t.of_sorts(), square), square};
    };
    return {Phase{2 * word + hash, row}, forming(x.n_q, x.word(SlowArray::hash_q)),
            forming(x.n_k, x.word(SlowArray::hash_k)), Phase{word + merging_words(x, n, t.of_sorts()), 0},
            cluster_phase(x, clusters(x), t.of_clusters(), [](index_t) { return false; })};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    using A = SlowArray;
    const Words rounds = method(x).rounds, rows = x.n_q, keys = x.n_k;
    const Words visits = cluster_key_visits(clusters(x), t.of_clusters()), more = rounds - 1,
                runs = rounds * (run_words(x.n_q, t.of_sorts()) + run_words(x.n_k, t.of_sorts()));
    return Io()
        .read(A::Q, (1 + rounds) * rows * x.d)
        .read(A::K, (keys + rounds * visits) * x.d)
        .read(A::V, rounds * visits * x.d_v)
        .read(A::hash_q, 2 * rounds * rows)
        .read(A::hash_k, 2 * rounds * keys)
        .read(A::runs, runs)
        .read(A::order_q, rounds * rows)
        .read(A::order_k, rounds * visits)
        .read(A::O, more * rows * x.d_v)
        .read(A::den, more * rows)
        .write(A::hash_q, (rounds + 1) * rows)
        .write(A::hash_k, (rounds + 1) * keys)
        .write(A::runs, runs)
        .write(A::order_q, rounds * rows)
        .write(A::order_k, rounds * keys)
        .write(A::O, rounds * rows * x.d_v)
        .write(A::den, more * rows);
  }
  static Words macs(const Sizes& x, const Tiling&) {
    const Words rounds = method(x).rounds;
    return (Words(x.n_q) + x.n_k) * x.d * (rounds + 1) + rounds * cluster_pairs(clusters(x)) * (Words(x.d) + x.d_v);
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    const index_t rounds = method(x.shape).rounds;
    sort_rows(m, x, t.of_sorts());
    const Clusters all = clusters(x.shape);
    for (index_t r = 0; r < rounds; ++r)
      m.each(all.count, [&](auto& w, index_t c) {
        attend_in_cluster(w, x, all, c, x.order_q.columns(r, 1), x.order_k.columns(r, 1), t.of_clusters(),
                          {r == 0, r == rounds - 1}, NothingElse{});
      });
  }

  /// What the queries and the keys of each round are sorted by, and the sorts.
  template <class M>
  static void sort_rows(M& m, const ForwardOperands& x, SortTiling t) {
    const auto S = m.alloc(SlowArray::hash_k, {1, 1});
    {
      const auto of_queries = m.alloc(SlowArray::hash_k, {1, 1});
      project(m, x, x.Q, x.hash_q, of_queries);
      project(m, x, x.K, x.hash_k, S);
      m.compute(kernel::AddRounded{}, S, of_queries);
    }
    for (index_t r = 0; r < method(x.shape).rounds; ++r) {
      sort_side(m, x, x.hash_q, x.order_q.columns(r, 1), r, false, S, t);
      sort_side(m, x, x.hash_k, x.order_k.columns(r, 1), r, true, S, t);
    }
  }
  /// hash <- projections and square of each row of X; most <- the largest square.
  template <class M>
  static void project(M& m, const ForwardOperands& x, const SlowMatrix& X, const SlowMatrix& hash,
                      const Tile<M>& most) {
    m.compute(kernel::Zero{}, most);
    const index_t words = hash.shape.cols;
    for (index_t i = 0; i < X.shape.rows; ++i) {
      const auto out = m.alloc(hash.array, {1, words});
      m.compute(kernel::ProjectRow{method(x.shape).seed}, out, m.stream(X.rows(i, 1)));
      m.compute(kernel::Larger{}, most, out.cols(words - 1, 1));
      m.store(out, hash.rows(i, 1));
    }
  }
  template <class M>
  static void sort_side(M& m, const ForwardOperands& x, const SlowMatrix& hash, const SlowMatrix& order, index_t round,
                        bool of_keys, const Tile<M>& S, SortTiling t) {
    const Smyrf& s = method(x.shape);
    sort_positions(m, hash.shape.rows, x.runs, order, t, [&](const Arg& keys, const Arg& positions, Range I) {
      m.load_into(keys, hash.block(I, {round, round + 1}));
      m.compute(kernel::SmyrfKeys{s.rounds, round, x.shape.d, s.seed, of_keys, I.begin}, keys, positions,
                m.stream(hash.block(I, {s.rounds, s.rounds + 1})), S);
    });
  }
};

}  // namespace redblue::schedule
