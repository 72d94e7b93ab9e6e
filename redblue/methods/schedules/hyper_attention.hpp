#pragma once
#include <cmath>
#include <vector>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/clusters.hpp"
#include "redblue/methods/schedules/parts/counting_sort.hpp"

namespace redblue::schedule {

/// HyperAttention (Han et al. 2023, arXiv 2310.05869) without its search for large entries: exact attention within
/// blocks of queries and keys sorted by bucket, and s sampled keys for the rest, those outside of the block counted
/// n_k/s times each. A row sums the samples first, and takes all of them up by log(n_k/s): one softmax, nothing to
/// merge. T blocks, a_t queries and e_t keys in block t, s_t samples outside of it, which the seed says:
///   reads (n_q + n_k)(d + 1) + n_q (d + 1) + (SUM_t e_t c_t + z)(d + d_v + 1), c_t = ceil(a_t/Br), or min(a_t, 1)
///   where the keys of a block are resident, z = s where samples are pinned, else SUM_t ceil(a_t/Br) s_t
///   writes 2 (n_q + n_k) + n_q d_v
///   footprint the largest of 2^planes + planes + 1 and, of a block, [pinned] s (d + d_v) +
///   min(Br, a_t)(d + d_v + 4) + 2, or (e_t + 1)(d + d_v) + 4 + [s_t > 0, not pinned] 2 for Br = Bc = 1
struct HyperAttentionForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "hyper_attention";
  static constexpr std::string_view idea = "sorting queries and keys into blocks, and sampling keys for the rest";
  static constexpr Traits traits{.method = methods::kHyperAttention};
  static constexpr std::array workspace{SlowArray::hash_q, SlowArray::hash_k, SlowArray::order_q, SlowArray::order_k};

  struct Tiling {
    index_t Br = 1;    ///< queries at a time
    index_t Bc = 1;    ///< keys per step, where they are resident
    index_t keep = 0;  ///< 1: the keys of a block are resident; 0: they pass one by one
    index_t pin = 0;   ///< 1: samples are resident throughout; 0: they pass for every Br queries
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc, keep == 1);
      tile_size({"keep", nullptr, 0, 1}, keep);
      tile_size({"pin", nullptr, 0, 1}, pin);
    }
    ClusterTiling of_blocks() const { return {Br, Bc, keep}; }
  };

  static const HyperAttention& method(const Sizes& x) { return std::get<HyperAttention>(method_of(x)); }
  static Clusters blocks(const Sizes& x) { return clusters_of(x, method(x).block); }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return sorts_rows_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), 0, 0};
  }
  /// Samples and keys resident, or one of both, or none, with as many queries as fit.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    std::optional<Tiling> best;
    for (const index_t pin : {1, 0})
      for (const index_t keep : {1, 0}) {
        const auto fits = [&](ClusterTiling b) {
          const Tiling t{b.Br, b.Bc, b.keep, pin};
          return limits.fit(footprint(x, t), prefetch(x, t));
        };
        const bool rows_first = keep == 0 || pin == 0;
        const auto b = choose_cluster_tiling(x, limits.multiple, blocks(x).largest(), keep, rows_first, fits);
        if (!b) continue;
        const Tiling t{b->Br, b->Bc, keep, pin};
        if (!best || limits.price.of(io(x, t)) < limits.price.of(io(x, *best))) best = t;
      }
    return best;
  }

  /// The samples by rank, and of a block how many lie before it and before its end.
  struct Samples {
    explicit Samples(const Sizes& x) : ranks(random_ranks(method(x).samples, x.n_k, method(x).seed)) {}
    index_t count() const { return std::ssize(ranks); }
    Range within(Range keys) const {
      const auto before = [&](index_t rank) {
        return std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
      };
      return {before(keys.begin), before(keys.end)};
    }
    index_t outside(Range keys) const { return count() - within(keys).size(); }
    std::vector<index_t> ranks;
  };
  static Phase blocks_phase(const Sizes& x, const Tiling& t) {
    const Samples samples(x);
    const Clusters all = blocks(x);
    const Words pinned =
        t.pin * (x.tile(SlowArray::K, samples.count(), x.d) + x.tile(SlowArray::V, samples.count(), x.d_v));
    const auto passes = [&](index_t c) { return t.pin == 0 && samples.outside(all.keys(c)) > 0; };
    Phase phase = cluster_phase(x, all, t.of_blocks(), passes);
    phase.footprint += pinned;
    return phase;
  }
  static std::array<Phase, 2> phases(const Sizes& x, const Tiling& t) {
    const auto hashing = [&](SlowArray hash, SlowArray row) {
      return x.tile(hash, 1, index_t{1} << method(x).planes) + x.tile(hash, 1, method(x).planes) + x.word(row);
    };
    const Words word = std::max(x.word(SlowArray::Q), x.word(SlowArray::K));
    return {Phase{std::max(hashing(SlowArray::hash_q, SlowArray::Q), hashing(SlowArray::hash_k, SlowArray::K)), word},
            blocks_phase(x, t)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    using A = SlowArray;
    const Clusters all = blocks(x);
    const Samples samples(x);
    const Words rows = x.n_q, keys = x.n_k;
    Words visits = cluster_key_visits(all, t.of_blocks()) + t.pin * samples.count();
    for (index_t c = 0; c < all.count && t.pin == 0; ++c)
      visits += Words(ceil_div(all.queries(c).size(), t.Br)) * samples.outside(all.keys(c));
    return Io()
        .read(A::Q, 2 * rows * x.d)
        .read(A::K, (keys + visits) * x.d)
        .read(A::V, visits * x.d_v)
        .read(A::hash_q, rows)
        .read(A::hash_k, keys)
        .read(A::order_q, rows)
        .read(A::order_k, visits)
        .write(A::hash_q, rows)
        .write(A::hash_k, keys)
        .write(A::order_q, rows)
        .write(A::order_k, keys)
        .write(A::O, rows * x.d_v);
  }
  static Words macs(const Sizes& x, const Tiling&) {
    const Clusters all = blocks(x);
    const Samples samples(x);
    Words pairs = cluster_pairs(all);
    for (index_t c = 0; c < all.count; ++c) pairs += Words(all.queries(c).size()) * samples.outside(all.keys(c));
    return (Words(x.n_q) + x.n_k) * x.d * method(x).planes + pairs * (Words(x.d) + x.d_v);
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    sort_side(m, x, x.Q, x.hash_q, x.order_q);
    sort_side(m, x, x.K, x.hash_k, x.order_k);
    const Samples samples(x.shape);
    const index_t pinned = t.pin * samples.count();
    const auto K = m.alloc(SlowArray::K, {pinned, x.shape.d}), V = m.alloc(SlowArray::V, {pinned, x.shape.d_v});
    for (index_t u = 0; u < pinned; ++u) {
      const index_t rank = samples.ranks[static_cast<std::size_t>(u)];
      for_sorted(m, x.order_k, {rank, rank + 1}, [&](const auto&, index_t row) {
        m.load_into(K.rows(u, 1), x.K.rows(row, 1));
        m.load_into(V.rows(u, 1), x.V.rows(row, 1));
      });
    }
    const Clusters all = blocks(x.shape);
    m.each(all.count, [&](auto& w, index_t c) {
      attend_in_cluster(w, x, all, c, x.order_q, x.order_k, t.of_blocks(), {},
                        [&](auto& v, const auto& rows, const auto& S) {
                          const Range own = samples.within(all.keys(c));
                          for (const Range& some : {Range{0, own.begin}, Range{own.end, samples.count()}})
                            if (t.pin == 1)
                              attend_to_pinned(v, x, rows, S, K, V, some);
                            else
                              attend_to_samples(v, x, rows, S, samples, some);
                          if (samples.outside(all.keys(c)) > 0)
                            v.compute(kernel::AddToScores{std::log(static_cast<double>(x.shape.n_k) /
                                                                   static_cast<double>(samples.count()))},
                                      rows.out.most);
                        });
    });
  }

  /// The buckets of all rows, counted as they are found, and the sort.
  template <class M>
  static void sort_side(M& m, const ForwardOperands& x, const SlowMatrix& X, const SlowMatrix& hash,
                        const SlowMatrix& order) {
    const HyperAttention& h = method(x.shape);
    const auto counts = m.alloc(hash.array, {1, index_t{1} << h.planes});
    m.compute(kernel::Zero{}, counts);
    for (index_t i = 0; i < X.shape.rows; ++i) {
      const auto sums = m.alloc(hash.array, {1, h.planes});
      m.compute(kernel::SignBucket{h.seed}, sums, m.stream(X.rows(i, 1)));
      m.compute(kernel::Count{}, counts, sums.cols(1));
      m.store(sums.cols(1), hash.rows(i, 1));
    }
    counting_sort(m, hash, order, counts.arg());
  }
  template <class M, class Rows, class Held>
  static void attend_to_pinned(M& m, const ForwardOperands& x, const Rows& rows, const Tile<M>& S, const Held& K,
                               const Held& V, Range samples) {
    const index_t step = S.shape().cols;
    for (index_t u = samples.begin; u < samples.end; u += step) {
      const index_t some = std::min(step, samples.end - u);
      rows.attend(m, x, S.cols(some), K.rows(u, some), V.rows(u, some), kNoWords);
    }
  }
  template <class M, class Rows>
  static void attend_to_samples(M& m, const ForwardOperands& x, const Rows& rows, const Tile<M>& S,
                                const Samples& samples, Range which) {
    for (index_t u = which.begin; u < which.end; ++u) {
      const index_t rank = samples.ranks[static_cast<std::size_t>(u)];
      for_sorted(m, x.order_k, {rank, rank + 1}, [&](const auto& number, index_t row) {
        rows.attend(m, x, S.cols(1), m.stream(x.K.rows(row, 1)), m.stream(x.V.rows(row, 1)), number);
      });
    }
  }
};

}  // namespace redblue::schedule
