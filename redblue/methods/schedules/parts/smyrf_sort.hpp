#pragma once
#include <array>

#include "redblue/methods/schedules/parts/clusters.hpp"
#include "redblue/methods/schedules/parts/external_sort.hpp"

/// The sorts of SMYRF (methods/maths/method.hpp): queries and keys by a random projection, for each round anew. Rows
/// are projected once for all rounds.
namespace redblue::schedule {

/// hash <- projections and square of each row of X; most <- the largest square.
template <class M>
void project_rows(M& m, const SlowMatrix& X, const SlowMatrix& hash, index_t seed, const Tile<M>& most) {
  m.compute(kernel::Zero{}, most);
  const index_t words = hash.shape.cols;
  for (index_t i = 0; i < X.shape.rows; ++i) {
    const auto out = m.alloc(hash.array, {1, words});
    m.compute(kernel::ProjectRow{seed}, out, m.stream(X.rows(i, 1)));
    m.compute(kernel::Larger{}, most, out.cols(words - 1, 1));
    m.store(out, hash.rows(i, 1));
  }
}

/// x.order_q and x.order_k <- the rows of each round in order, a column for each.
template <class M>
void sort_rows(M& m, const ForwardOperands& x, const Smyrf& s, SortTiling t) {
  const auto S = m.alloc(SlowArray::hash_k, {1, 1});
  {
    const auto of_queries = m.alloc(SlowArray::hash_k, {1, 1});
    project_rows(m, x.Q, x.hash_q, s.seed, of_queries);
    project_rows(m, x.K, x.hash_k, s.seed, S);
    m.compute(kernel::AddRounded{}, S, of_queries);
  }
  const auto sort_side = [&](const SlowMatrix& hash, const SlowMatrix& order, index_t round, bool of_keys) {
    sort_positions(m, hash.shape.rows, x.runs, order.columns(round, 1), t,
                   [&](const Arg& keys, const Arg& positions, Range I) {
                     m.load_into(keys, hash.block(I, {round, round + 1}));
                     m.compute(kernel::SmyrfKeys{s.rounds, round, x.shape.d, s.seed, of_keys, I.begin}, keys, positions,
                               m.stream(hash.block(I, {s.rounds, s.rounds + 1})), S);
                   });
  };
  for (index_t round = 0; round < s.rounds; ++round) {
    sort_side(x.hash_q, x.order_q, round, false);
    sort_side(x.hash_k, x.order_k, round, true);
  }
}

inline std::array<Phase, 4> sort_phases(const Sizes& x, const Smyrf& s, SortTiling t) {
  const Words word = x.tile(SlowArray::hash_k, 1, 1), row = std::max(x.word(SlowArray::Q), x.word(SlowArray::K)),
              hash = std::max(x.tile(SlowArray::hash_q, 1, s.rounds + 1) + x.word(SlowArray::Q),
                              x.tile(SlowArray::hash_k, 1, s.rounds + 1) + x.word(SlowArray::K));
  const auto forming = [&](index_t pairs, Words square) {
    return Phase{word + forming_words(x, pairs, t, square), square};
  };
  return {Phase{2 * word + hash, row}, forming(x.n_q, x.word(SlowArray::hash_q)),
          forming(x.n_k, x.word(SlowArray::hash_k)), Phase{word + merging_words(x, std::max(x.n_q, x.n_k), t), 0}};
}

inline Io sort_io(const Sizes& x, const Smyrf& s, SortTiling t) {
  using A = SlowArray;
  const Words rounds = s.rounds, rows = x.n_q, keys = x.n_k,
              runs = rounds * (run_words(x.n_q, t) + run_words(x.n_k, t));
  return Io()
      .read(A::Q, rows * x.d)
      .read(A::K, keys * x.d)
      .read(A::hash_q, 2 * rounds * rows)
      .read(A::hash_k, 2 * rounds * keys)
      .read(A::runs, runs)
      .write(A::hash_q, (rounds + 1) * rows)
      .write(A::hash_k, (rounds + 1) * keys)
      .write(A::runs, runs)
      .write(A::order_q, rounds * rows)
      .write(A::order_k, rounds * keys);
}
inline Words sort_macs(const Sizes& x, const Smyrf& s) { return (Words(x.n_q) + x.n_k) * x.d * (Words(s.rounds) + 1); }

/// The longest runs, and then the most of them merged at a time, that fit.
template <class Fits>
SortTiling largest_sorts(const Sizes& x, const Fits& fits) {
  SortTiling t;
  const index_t n = std::max(x.n_q, x.n_k);
  t.rho = largest_tile(n, 1, [&](index_t pairs) { return fits(SortTiling{pairs, t.f}); });
  const auto merges = [&](index_t runs) { return fits(SortTiling{t.rho, std::max(t.f, runs)}); };
  t.f = std::max(t.f, largest_tile(ceil_div(n, t.rho), 1, merges));
  return t;
}

}  // namespace redblue::schedule
