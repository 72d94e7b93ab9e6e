#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/chunks.hpp"
#include "redblue/methods/schedules/parts/counting_sort.hpp"

namespace redblue::schedule {

/// Reformer (Kitaev et al. 2020, arXiv 2001.04451): keys are the queries, as long as a unit, and K is not read. Rows
/// are hashed once for all rounds and sorted by bucket; a chunk of C of them attends to itself and to the chunk before
/// it (the first one to the last; to none under the causal mask), `rounds` times; a round after the first goes on from
/// O and lse. Chunk t has C_t rows, the one before it P_t:
///   reads n d + rounds n + (rounds - 1) n (d_v + 1) + rounds times (n + P_0)(d + d_v + 1) where chunks are resident,
///   or n (d + 1) + SUM_t ceil(C_t/Br)(P_t + C_t)(d + d_v + 1) writes 2 rounds n + rounds n d_v + (rounds - 1) n
///   footprint the largest of rounds b + d + 3 and, for Br = Bc = 1, max_t (P_t + C_t)(d + d_v) + C_t + [causal] P_t +
///   d_v + 4, or min(Br, C)(d + d_v + 4) + 3
struct ReformerForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "reformer";
  static constexpr std::string_view idea = "sorting rows by hash into chunks that attend to themselves and the last";
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = methods::kReformer};
  static constexpr std::array workspace{SlowArray::hash_q, SlowArray::order_q, SlowArray::den};
  static constexpr bool one_core = true;

  struct Tiling {
    index_t Br = 1;    ///< queries at a time
    index_t Bc = 1;    ///< keys per step, where they are resident
    index_t keep = 0;  ///< 1: the rows of two chunks are resident; 0: keys pass one by one
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc, keep == 1);
      tile_size({"keep", nullptr, 0, 1}, keep);
    }
    ClusterTiling of_chunks() const { return {Br, Bc, keep}; }
  };

  static const Reformer& method(const Sizes& x) { return std::get<Reformer>(method_of(x)); }
  static Chunks chunks(const Sizes& x) { return {x.n_q, method(x).chunk, !x.mask.full()}; }
  static std::optional<std::string_view> unsupported(const Sizes& x) {
    const bool causal = x.mask.lo == -Mask::kFar && x.mask.hi == 1 && x.mask.prefix == 0;
    if (const auto why = sorts_rows_unsupported(x)) return why;
    if (x.n_q != x.n_k || x.row0 != x.key0) return "takes its queries for keys: n_q must be n_k";
    if (!x.mask.full() && !causal) return "knows no mask but the causal one";
    return std::nullopt;
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), 0};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](ClusterTiling c) {
      const Tiling t{c.Br, c.Bc, c.keep};
      return limits.fit(footprint(x, t), prefetch(x, t));
    };
    for (const index_t keep : {1, 0})
      if (const auto t = choose_cluster_tiling(x, limits.multiple, chunks(x).largest(), keep, keep == 0, fits))
        return Tiling{t->Br, t->Bc, keep};
    return std::nullopt;
  }

  static std::array<Phase, 2> phases(const Sizes& x, const Tiling& t) {
    const Words row = x.tile(SlowArray::Q, 1, x.d);
    return {Phase{x.tile(SlowArray::hash_q, method(x).rounds, method(x).buckets) + row +
                      3 * x.tile(SlowArray::hash_q, 1, 1),
                  row},
            chunks_phase(x, chunks(x), t.of_chunks())};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    using A = SlowArray;
    const Words rounds = method(x).rounds, n = x.n_q, visits = chunk_visits(chunks(x), t.of_chunks()),
                more = rounds - 1;
    const Words queries = t.keep == 0 ? n : Words(0);  // resident chunks have them
    return Io()
        .read(A::Q, (n + rounds * (visits + queries)) * x.d)
        .read(A::V, rounds * visits * x.d_v)
        .read(A::hash_q, rounds * n)
        .read(A::order_q, rounds * (visits + queries))
        .read(A::O, more * n * x.d_v)
        .read(A::den, more * n)
        .write(A::hash_q, rounds * n)
        .write(A::order_q, rounds * n)
        .write(A::O, rounds * n * x.d_v)
        .write(A::den, more * n);
  }
  static Words macs(const Sizes& x, const Tiling&) {
    const Words rounds = method(x).rounds;
    return rounds * (Words(x.n_q) * x.d * (method(x).buckets / 2) + chunk_pairs(chunks(x)) * (Words(x.d) + x.d_v));
  }

  template <DataMachine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    const index_t rounds = method(x.shape).rounds;
    sort_rows(m, x);
    for (index_t r = 0; r < rounds; ++r) {
      const Round round{r == 0, r == rounds - 1};
      const SlowMatrix order = x.order_q.columns(r, 1);
      if (t.keep == 1)
        attend_in_resident_chunks(m, x, chunks(x.shape), order, t.of_chunks(), round);
      else
        attend_in_passing_chunks(m, x, chunks(x.shape), order, t.Br, round);
    }
  }

  /// The buckets of all rows in all rounds, counted as they are found, and the sorts.
  template <class M>
  static void sort_rows(M& m, const ForwardOperands& x) {
    const Reformer& r = method(x.shape);
    const auto counts = m.alloc(SlowArray::hash_q, {r.rounds, r.buckets});
    m.compute(kernel::Zero{}, counts);
    for (index_t i = 0; i < x.shape.n_q; ++i) {
      const auto X_i = m.load(x.Q.rows(i, 1)), id = m.alloc(SlowArray::hash_q, {1, 1}),
                 y = m.alloc(SlowArray::hash_q, {1, 1}), best = m.alloc(SlowArray::hash_q, {1, 1});
      for (index_t round = 0; round < r.rounds; ++round) {
        m.compute(kernel::RotationBucket{r.rounds, round, r.buckets, r.seed}, id, y, best, X_i);
        m.compute(kernel::Count{}, counts.rows(round, 1), id);
        m.store(id, x.hash_q.block(i, round, {1, 1}));
      }
    }
    for (index_t round = 0; round < r.rounds; ++round)
      counting_sort(m, x.hash_q.columns(round, 1), x.order_q.columns(round, 1), counts.rows(round, 1));
  }
};

}  // namespace redblue::schedule
