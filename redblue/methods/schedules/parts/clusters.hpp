#pragma once
#include <algorithm>

#include "redblue/kernels/attention.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/methods/kernels/sorting.hpp"
#include "redblue/methods/maths/random_features.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// Exact attention within clusters of sorted rows. Which rows these are the data say: lists in slow memory have their
/// positions, and each is read before its row.
namespace redblue::schedule {

/// Cluster t has the queries and the keys of these ranks, as many on each side as its share.
struct Clusters {
  index_t n_q = 0, n_k = 0, count = 1;
  Range queries(index_t t) const { return segment(t, count, n_q); }
  Range keys(index_t t) const { return segment(t, count, n_k); }
  /// The queries and keys of the larger clusters.
  Shape largest() const { return {ceil_div(n_q, count), ceil_div(n_k, count)}; }
};
/// Clusters of at most `keys` keys.
inline Clusters clusters_of(const Sizes& x, index_t keys) { return {x.n_q, x.n_k, ceil_div(x.n_k, keys)}; }

/// Why schedules that sort rows cannot take this problem; empty where they can.
inline std::optional<std::string_view> sorts_rows_unsupported(const Sizes& x) {
  constexpr index_t kMostRows = 1 << 24;  // a word of fast memory that is an f32 has their numbers
  if (x.mask.group > 1) return "sorts queries: each head needs keys and values of its own";
  if (x.n_q > kMostRows || x.n_k > kMostRows) return "lists rows by a number in a word: 2^24 at most";
  return std::nullopt;
}

struct ClusterTiling {
  index_t Br = 1;    ///< queries at a time
  index_t Bc = 1;    ///< keys per step
  index_t keep = 0;  ///< 1: the keys of a cluster are resident; 0: they pass one by one, whatever Bc
};

/// Word r of a column, or of a part of one.
inline Arg row_of(Arg column, index_t r) {
  column.block.row += r;
  column.block.shape = {1, 1};
  return column;
}
/// Row r of the tile <- the row of the array that is r-th among the sorted ones from `rank` on.
template <class M>
void gather(M& m, const Tile<M>& tile, const SlowMatrix& from, const Arg& numbers, index_t rank) {
  for (index_t r = 0; r < tile.shape().rows; ++r)
    m.load_into(tile.rows(r, 1), from.rows(look_up(m, row_of(numbers, r), rank + r), 1));
}

/// The keys of a cluster, resident with their values; their positions only where a mask needs them.
template <class M>
struct ClusterKeys {
  ClusterKeys(M& m, const ForwardOperands& x, const SlowMatrix& order, Range ranks)
      : numbers(m.alloc(order.array, {x.shape.mask.full() ? 0 : ranks.size(), 1})),
        K(m.alloc(SlowArray::K, {ranks.size(), x.shape.d})),
        V(m.alloc(SlowArray::V, {ranks.size(), x.shape.d_v})) {
    const bool kept = numbers.shape().rows > 0;
    const auto one = m.alloc(order.array, {kept ? 0 : 1, 1});
    for (index_t r = 0; r < ranks.size(); ++r) {
      const Arg number = kept ? numbers.rows(r, 1) : one.arg();
      m.load_into(number, order.rows(ranks.begin + r, 1));
      const index_t row = look_up(m, number, ranks.begin + r);
      m.load_into(K.rows(r, 1), x.K.rows(row, 1));
      m.load_into(V.rows(r, 1), x.V.rows(row, 1));
    }
  }
  Tile<M> numbers, K, V;
};

/// One round of several: is it the first, and is it the last?
struct Round {
  bool first = true, last = true;
};

/// Outputs of sorted queries under way, as one row of flash each. From the second round on a row goes on from its O and
/// lse. `numbers` are their positions, `rank` is the rank of the first.
template <class M>
struct SortedOutputs {
  SortedOutputs(M& m, const ForwardOperands& x, const Arg& numbers, index_t rank, Round round)
      : O(m.alloc(SlowArray::O, {numbers.shape().rows, x.shape.d_v})),
        most(m.alloc(SlowArray::den, {numbers.shape().rows, 1})),
        sums(m.alloc(SlowArray::den, {numbers.shape().rows, 1})) {
    if (round.first) {
      m.compute(kernel::SoftmaxInit{}, O, most, sums);
    } else {
      gather(m, O, x.O, numbers, rank);
      gather(m, most, x.den, numbers, rank);
      m.compute(kernel::ResumeSoftmax{}, sums, most);
    }
  }
  /// O, and lse where more rounds come.
  void finish(M& m, const ForwardOperands& x, const Arg& numbers, index_t rank, Round round) const {
    m.compute(kernel::SoftmaxFinish{}, O, most, sums);
    for (index_t r = 0; r < O.shape().rows; ++r) {
      const index_t row = look_up(m, row_of(numbers, r), rank + r);
      m.store(O.rows(r, 1), x.O.rows(row, 1));
      if (!round.last) m.store(most.rows(r, 1), x.den.rows(row, 1));
    }
  }
  Tile<M> O, most, sums;
};

/// Queries under way.
template <class M>
struct SortedQueries {
  SortedQueries(M& m, const ForwardOperands& x, const SlowMatrix& order, Range ranks, Round round)
      : rank(ranks.begin),
        numbers(m.load(order.rows(ranks))),
        Q(m.alloc(SlowArray::Q, {ranks.size(), x.shape.d})),
        out(m, x, numbers.arg(), rank, round) {
    gather(m, Q, x.Q, numbers.arg(), rank);
  }
  /// One step, on these keys; `positions` of them where there is a mask.
  template <class Keys, class Values, class Positions>
  void attend(M& m, const ForwardOperands& x, const Arg& S, const Keys& K, const Values& V,
              const Positions& positions) const {
    const Mask& mask = x.shape.mask;
    if (mask.full())
      return m.compute(kernel::OnlineAttention{{x.scale}}, S, out.O, out.most, out.sums, Q, K, V, kNoWords, kNoWords);
    m.compute(kernel::Scores{x.scale}, S, Q, K);
    m.compute(kernel::HideByPosition{mask.lo, mask.hi, mask.prefix}, S, numbers, positions);
    m.compute(kernel::OnlineSoftmax{}, S, out.O, out.most, out.sums);
    m.compute(kernel::Gemm{}, out.O, S, V);
  }
  void finish(M& m, const ForwardOperands& x, Round round) const { out.finish(m, x, numbers.arg(), rank, round); }
  index_t rank;
  Tile<M> numbers, Q;
  SortedOutputs<M> out;
};

/// visit(position, row) for these ranks, one after another: the position is resident meanwhile.
template <class M, class Visit>
void for_sorted(M& m, const SlowMatrix& order, Range ranks, const Visit& visit) {
  for (index_t j = ranks.begin; j < ranks.end; ++j) {
    const auto number = m.load(order.rows(j, 1));
    visit(number, look_up(m, number, j));
  }
}

/// The sorted queries of cluster c attend to its sorted keys, and before to what `before(w, rows, S)` has for them.
template <class M, class Before>
void attend_in_cluster(M& m, const ForwardOperands& x, const Clusters& clusters, index_t c, const SlowMatrix& order_q,
                       const SlowMatrix& order_k, ClusterTiling t, Round round, const Before& before) {
  const Range queries = clusters.queries(c), keys = clusters.keys(c);
  const auto for_queries = [&](index_t step, const auto& visit) {
    for (index_t i = queries.begin; i < queries.end; i += t.Br) {
      const Range I{i, std::min(i + t.Br, queries.end)};
      const SortedQueries<M> rows(m, x, order_q, I, round);
      const auto S = m.alloc(SlowArray::S, {I.size(), std::min(step, keys.size())});
      before(m, rows, S);
      visit(rows, S);
      rows.finish(m, x, round);
    }
  };
  if (t.keep == 0)
    return for_queries(1, [&](const auto& rows, const auto& S) {
      for_sorted(m, order_k, keys, [&](const auto& number, index_t row) {
        rows.attend(m, x, S.arg(), m.stream(x.K.rows(row, 1)), m.stream(x.V.rows(row, 1)), number);
      });
    });
  if (queries.size() == 0) return;
  const ClusterKeys<M> all(m, x, order_k, keys);
  for_queries(t.Bc, [&](const auto& rows, const auto& S) {
    for (index_t j = 0; j < keys.size(); j += t.Bc) {
      const index_t some = std::min(t.Bc, keys.size() - j);
      rows.attend(m, x, S.cols(some), all.K.rows(j, some), all.V.rows(j, some), all.numbers.rows(j, some));
    }
  });
}

/// Br queries of a cluster with some keys: resident, or one that passes.
inline Words cluster_rows_words(const Sizes& x, index_t rows, index_t step) {
  return x.tile(SlowArray::order_q, rows, 1) + x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::O, rows, x.d_v) +
         2 * x.tile(SlowArray::den, rows, 1) + x.tile(SlowArray::S, rows, step);
}
/// `passes(c)`: do keys pass in cluster c even where its own are resident?
template <class Passes>
Phase cluster_phase(const Sizes& x, const Clusters& clusters, ClusterTiling t, const Passes& passes) {
  const Words passing = std::max(x.word(SlowArray::K), x.word(SlowArray::V));
  const index_t numbered = x.mask.full() ? 0 : 1;
  Words most;
  for (index_t c = 0; c < clusters.count; ++c) {
    const index_t rows = std::min(t.Br, clusters.queries(c).size()), keys = clusters.keys(c).size();
    if (rows == 0) continue;
    Words words = cluster_rows_words(x, rows, t.keep == 0 ? 1 : std::min(t.Bc, keys));
    if (t.keep == 0 || passes(c)) words += x.tile(SlowArray::order_k, 1, 1) + passing;
    if (t.keep == 1)
      words += x.tile(SlowArray::order_k, numbered * keys, 1) + x.tile(SlowArray::K, keys, x.d) +
               x.tile(SlowArray::V, keys, x.d_v);
    most = std::max(most, words);
  }
  return {most, std::max(passing, x.tile(SlowArray::Q, std::min(t.Br, x.n_q), x.d))};
}
/// The keys that are read, summed over the clusters, and the pairs that meet.
inline Words cluster_key_visits(const Clusters& clusters, ClusterTiling t) {
  Words visits;
  for (index_t c = 0; c < clusters.count; ++c) {
    const index_t blocks = ceil_div(clusters.queries(c).size(), t.Br);
    visits += Words(clusters.keys(c).size()) * (t.keep == 0 ? blocks : std::min<index_t>(blocks, 1));
  }
  return visits;
}
inline Words cluster_pairs(const Clusters& clusters) {
  Words pairs;
  for (index_t c = 0; c < clusters.count; ++c) pairs += Words(clusters.queries(c).size()) * clusters.keys(c).size();
  return pairs;
}

/// With keys of a cluster resident or passing: as many queries as fit where these say how often something passes
/// (`rows_first`), else both sizes doubled in turn, for they move the same words. The largest cluster has `largest`
/// queries and keys; `fits` says whether a tiling does.
template <class Fits>
std::optional<ClusterTiling> choose_cluster_tiling(const Sizes& x, const Multiples& multiple, Shape largest,
                                                   index_t keep, bool rows_first, const Fits& fits) {
  const index_t step = multiple.query, rows = std::min(x.n_q, ceil_div(largest.rows, step) * step), keys = largest.cols;
  ClusterTiling t{smallest_tile(x.n_q, step), smallest_tile(x.n_k, multiple.key), keep};
  if (!fits(t)) return std::nullopt;
  if (rows_first) t.Br = largest_tile(rows, step, [&](index_t more) { return fits(ClusterTiling{more, t.Bc, keep}); });
  for (index_t enough = 2; enough <= kEnough && keep == 1; enough *= 2) {
    t.Bc = doubled(t.Bc, keys, [&](index_t more) { return fits(ClusterTiling{t.Br, more, keep}); }, enough);
    if (!rows_first)
      t.Br = doubled(t.Br, rows, [&](index_t more) { return fits(ClusterTiling{more, t.Bc, keep}); }, enough);
  }
  return t;
}

}  // namespace redblue::schedule
