#pragma once
#include <algorithm>
#include <array>

#include "redblue/methods/schedules/parts/clusters.hpp"

/// Chunks of sorted rows, each of which attends to itself and to the one before it, with keys as long as a unit.
namespace redblue::schedule {

struct Chunks {
  index_t n = 0, size = 1;
  bool causal = false;
  index_t count() const { return ceil_div(n, size); }
  Shape largest() const { return {std::min(size, n), std::min(size, n)}; }
  Range operator()(index_t t) const { return {t * size, std::min(n, (t + 1) * size)}; }
  /// The chunk before: of the first it is the last, or none.
  Range before(index_t t) const {
    if (t == 0 && (causal || count() == 1)) return {0, 0};
    return (*this)(t == 0 ? count() - 1 : t - 1);
  }
};

/// Rows that are read for their keys and values in a round, with those of the queries where chunks are resident.
inline Words chunk_visits(const Chunks& chunks, ClusterTiling t) {
  Words visits = t.keep == 1 ? chunks.n + chunks.before(0).size() : 0;
  for (index_t c = 0; c < chunks.count() && t.keep == 0; ++c)
    visits += Words(ceil_div(chunks(c).size(), t.Br)) * (chunks.before(c).size() + chunks(c).size());
  return visits;
}
inline Words chunk_pairs(const Chunks& chunks) {
  Words pairs;
  for (index_t c = 0; c < chunks.count(); ++c)
    pairs += Words(chunks(c).size()) * (chunks.before(c).size() + chunks(c).size());
  return pairs;
}

/// The queries `rows` attend to these keys.
template <class M, class Queries, class Keys, class Values>
void attend_to_units(M& m, const ForwardOperands& x, const SortedOutputs<M>& rows, const Arg& S, const Arg& lengths,
                     const Queries& Q, const Keys& K, const Values& V, const Arg& positions, const Arg& key_positions) {
  m.compute(kernel::UnitScores{x.scale}, S, lengths, Q, K);
  if (key_positions.shape().rows > 0)
    m.compute(kernel::HideItself{Reformer::own, !x.shape.mask.full()}, S, positions, key_positions);
  m.compute(kernel::OnlineSoftmax{}, S, rows.O, rows.most, rows.sums);
  m.compute(kernel::Gemm{}, rows.O, S, V);
}

/// Br queries of a chunk at a time; keys and values pass one by one.
template <class M>
void attend_in_passing_chunks(M& m, const ForwardOperands& x, const Chunks& chunks, const SlowMatrix& order, index_t Br,
                              Round round) {
  m.each(chunks.count(), [&](auto& w, index_t c) {
    using W = std::remove_reference_t<decltype(w)>;
    for (index_t i = chunks(c).begin; i < chunks(c).end; i += Br) {
      const SortedQueries<W> rows(w, x, order, {i, std::min(i + Br, chunks(c).end)}, round);
      const index_t count = rows.Q.shape().rows;
      const auto S = w.alloc(SlowArray::S, {count, 1}), length = w.alloc(SlowArray::S, {1, 1});
      for (const Range& keys : {chunks.before(c), chunks(c)})
        for_sorted(w, order, keys, [&](const auto& number, index_t row) {
          attend_to_units(w, x, rows.out, S.arg(), length.arg(), rows.Q, w.stream(x.Q.rows(row, 1)),
                          w.stream(x.V.rows(row, 1)), rows.numbers.arg(), number.arg());
        });
      rows.finish(w, x, round);
    }
  });
}

/// Room for the rows and values of a chunk.
template <class M>
struct ChunkRoom {
  ChunkRoom(M& m, const ForwardOperands& x, index_t rows)
      : X(m.alloc(SlowArray::Q, {rows, x.shape.d})), V(m.alloc(SlowArray::V, {rows, x.shape.d_v})) {}
  /// Brings these ranks. Their positions stay in `numbers` if that has room, else each goes after its row has come.
  void bring(M& m, const ForwardOperands& x, const SlowMatrix& order, Range ranks, const Tile<M>& numbers) const {
    const bool stay = numbers.shape().rows > 0;
    const auto one = m.alloc(SlowArray::order_q, {stay ? 0 : 1, 1});
    for (index_t r = 0; r < ranks.size(); ++r) {
      const Arg number = stay ? numbers.rows(r, 1) : one.arg();
      m.load_into(number, order.rows(ranks.begin + r, 1));
      const index_t row = look_up(m, number, ranks.begin + r);
      m.load_into(X.rows(r, 1), x.Q.rows(row, 1));
      m.load_into(V.rows(r, 1), x.V.rows(row, 1));
    }
  }
  Tile<M> X, V;
};
/// Rows of the two rooms: that of the chunks 0, 2, .., and that of the others and of the one before the first.
inline std::array<index_t, 2> chunk_rooms(const Chunks& chunks) {
  const index_t most = std::min(chunks.size, chunks.n);
  if (chunks.count() <= 2) return {most, chunks.n - most};
  return {most, most};
}

/// A chunk and the one before it are resident. Positions are those of the chunk, for a row is itself only there; and
/// under a mask those of the one before.
template <class M>
void attend_in_resident_chunks(M& m, const ForwardOperands& x, const Chunks& chunks, const SlowMatrix& order,
                               ClusterTiling t, Round round) {
  const auto [evens, odds] = chunk_rooms(chunks);
  const auto even_numbers = m.alloc(SlowArray::order_q, {evens, 1}),
             odd_numbers = m.alloc(SlowArray::order_q, {chunks.causal ? odds : 0, 1});
  const ChunkRoom<M> even(m, x, evens), odd(m, x, odds);
  odd.bring(m, x, order, chunks.before(0), odd_numbers);
  for (index_t c = 0; c < chunks.count(); ++c) {
    const Range own = chunks(c), before = chunks.before(c);
    const ChunkRoom<M>&room = c % 2 == 0 ? even : odd, &last = c % 2 == 0 ? odd : even;
    const Tile<M>&numbers = chunks.causal && c % 2 == 1 ? odd_numbers : even_numbers,
          &last_numbers = c % 2 == 0 ? odd_numbers : even_numbers;
    room.bring(m, x, order, own, numbers);
    for (index_t i = 0; i < own.size(); i += t.Br) {
      const index_t count = std::min(t.Br, own.size() - i), step = std::min(t.Bc, evens);
      const Arg positions = numbers.rows(i, count);
      const SortedOutputs<M> rows(m, x, positions, own.begin + i, round);
      const auto S = m.alloc(SlowArray::S, {count, step}), lengths = m.alloc(SlowArray::S, {1, step});
      const auto attend = [&](const ChunkRoom<M>& keys, index_t j, index_t some, const Arg& key_positions) {
        attend_to_units(m, x, rows, S.cols(some), lengths.cols(some), room.X.rows(i, count), keys.X.rows(j, some),
                        keys.V.rows(j, some), positions, key_positions);
      };
      for (index_t j = 0; j < before.size(); j += step) {
        const index_t some = std::min(step, before.size() - j);
        attend(last, j, some, chunks.causal ? last_numbers.rows(j, some) : Arg(kNoWords));
      }
      for (index_t j = 0; j < own.size(); j += step) {
        const index_t some = std::min(step, own.size() - j);
        attend(room, j, some, numbers.rows(j, some));
      }
      rows.finish(m, x, positions, own.begin + i, round);
    }
  }
}

inline Phase chunks_phase(const Sizes& x, const Chunks& chunks, ClusterTiling t) {
  using A = SlowArray;
  const auto [evens, odds] = chunk_rooms(chunks);
  const index_t rows = std::min(t.Br, evens), step = t.keep == 0 ? 1 : std::min(t.Bc, evens);
  const Words outputs =
      x.tile(A::O, rows, x.d_v) + 2 * x.tile(A::den, rows, 1) + x.tile(A::S, rows, step) + x.tile(A::S, 1, step);
  const auto of_rows = [&](index_t n) { return x.tile(A::Q, n, x.d) + x.tile(A::V, n, x.d_v); };
  if (t.keep == 1)
    return {outputs + x.tile(A::order_q, evens, 1) + x.tile(A::order_q, chunks.causal ? odds : 0, 1) + of_rows(evens) +
                of_rows(odds),
            of_rows(evens)};
  const Words passing = std::max(x.word(A::Q), x.word(A::V));
  return {outputs + x.tile(A::order_q, rows, 1) + x.tile(A::Q, rows, x.d) + x.tile(A::order_q, 1, 1) + passing,
          passing};
}

}  // namespace redblue::schedule
