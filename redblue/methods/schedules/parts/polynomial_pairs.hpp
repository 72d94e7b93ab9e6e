#pragma once
#include <algorithm>
#include <vector>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_rows.hpp"

/// Polynomial attention with a polynomial for each row, where the keys that have exact weights need not fit in fast
/// memory: their numbers stay there, a word for each, and they pass the queries a few at a time.
namespace redblue::schedule {

/// Keys by whether they have exact weights.
struct SplitKeys {
  std::vector<index_t> exact, others;  ///< ascending
};

/// These keys, from list[first] on, less the mean (if there is one), and their values.
template <class M>
void gather(M& m, const ForwardOperands& x, const Tile<M>& mean, const std::vector<index_t>& list, index_t first,
            const Tile<M>& K, const Tile<M>& V) {
  const auto rows = [&](const Tile<M>& to, const SlowMatrix& from) {
    for (index_t r = 0; r < to.shape().rows; ++r)
      m.load_into(to.rows(r, 1), from.rows(list[static_cast<std::size_t>(first + r)], 1));
  };
  rows(K, x.K);
  if (mean.shape().rows > 0) m.compute(kernel::SubtractFromRows{}, K, mean);
  rows(V, x.V);
}

/// ids <- the numbers of the longest keys, as many as it has words: keys pass one by one, and only lengths and numbers
/// stay.
template <class M>
void select_longest(M& m, const ForwardOperands& x, const Tile<M>& mean, const Tile<M>& ids) {
  const index_t kept = ids.shape().rows, n_k = x.shape.n_k;
  const auto lengths = m.alloc(SlowArray::den, {kept, 1});
  for (index_t j = 0; j < n_k; ++j) {
    const auto K_j = m.load(x.K.rows(j, 1)), length = m.alloc(SlowArray::den, {1, 1}),
               id = m.alloc(SlowArray::ids, {1, 1});
    if (mean.shape().rows > 0) m.compute(kernel::SubtractFromRows{}, K_j, mean);
    const bool is_first = j < kept;
    const Arg of = is_first ? lengths.rows(j, 1) : length.rows(0, 1);
    const Arg number = is_first ? ids.rows(j, 1) : id.rows(0, 1);
    m.compute(kernel::Zero{}, of);
    m.compute(kernel::LongestRow{}, of, K_j);
    m.compute(kernel::SetTo{static_cast<double>(j)}, number);
    if (is_first) continue;
    const auto shortest = m.alloc(SlowArray::den, {2, 1});
    m.compute(kernel::KeepLongest{}, lengths, ids, length, id, shortest);
  }
}

/// What the numbers in `ids` say.
template <class M>
SplitKeys split_keys(M& m, const ForwardOperands& x, const Tile<M>& ids) {
  SplitKeys keys;
  std::vector<bool> is_exact(static_cast<std::size_t>(x.shape.n_k));
  for (index_t h = 0; h < ids.shape().rows; ++h)
    is_exact[static_cast<std::size_t>(look_up(m, ids.rows(h, 1), h))] = true;
  for (index_t j = 0; j < x.shape.n_k; ++j)
    (is_exact[static_cast<std::size_t>(j)] ? keys.exact : keys.others).push_back(j);
  return keys;
}

/// The others enter the state, bc at a time.
template <class M>
void others_into_state(M& m, const ForwardOperands& x, const Tile<M>& mean, const SplitKeys& keys,
                       const RowState<M>& state, index_t bc) {
  const index_t n = std::ssize(keys.others);
  for (index_t j = 0; j < n; j += bc) {
    const index_t count = std::min(bc, n - j);
    const auto K_j = m.alloc(SlowArray::K, {count, x.shape.d}), V_j = m.alloc(SlowArray::V, {count, x.shape.d_v});
    gather(m, x, mean, keys.others, j, K_j, V_j);
    add_to_state(m, state, K_j, V_j);
  }
}

/// The rows I by the state and the exact keys, bc of them at a time. Rows whose radius is beyond the range are listed;
/// they stay where they are until the others are done, and are not written.
template <class M>
void rows_by_state(M& m, const ForwardOperands& x, const Tile<M>& mean, const SplitKeys& keys, const RowState<M>& state,
                   Range I, index_t bc, std::vector<index_t>& listed) {
  const Sizes& s = x.shape;
  const index_t rows = I.size(), exact = std::ssize(keys.exact), g = state.all.monomials.degree;
  const auto Q = m.load(x.Q.rows(I)), O = m.alloc(x.O.rows(I));
  const auto max = m.alloc(SlowArray::den, {rows, 1}), sum = m.alloc(SlowArray::den, {rows, 1});
  m.compute(kernel::Zero{}, O);
  m.compute(kernel::Zero{}, sum);
  std::vector<index_t> near;
  near.reserve(static_cast<std::size_t>(rows));
  for (index_t r = 0; r < rows; ++r) {
    const auto number = m.alloc(SlowArray::den, {1, 1}), stack = m.alloc(SlowArray::den, {g, 1});
    const auto k = polynomial_of_row(m, x, state, Q.rows(r, 1), number, stack);
    begin_maximum(m, s, k.value_or(0), exact == s.n_k, max.rows(r, 1));
    if (!k) {
      list_row(m, x, I.begin + r, number, listed);
      continue;
    }
    near.push_back(r);
    read_state(m, x, state, *k, O.rows(r, 1), sum.rows(r, 1), Q.rows(r, 1), stack);
  }
  for (index_t j = 0; j < exact; j += bc) {
    const index_t count = std::min(bc, exact - j);
    const auto K_j = m.alloc(SlowArray::K, {count, s.d}), V_j = m.alloc(SlowArray::V, {count, s.d_v});
    gather(m, x, mean, keys.exact, j, K_j, V_j);
    const auto S = m.alloc(SlowArray::S, {rows, count});
    m.compute(kernel::OnlineAttention{{x.scale}}, S, O, max, sum, Q, K_j, V_j, kNoWords, kNoWords);
  }
  for (const index_t r : near) {
    m.compute(kernel::DivideRows{}, O.rows(r, 1), sum.rows(r, 1));
    m.store(O.rows(r, 1), x.O.rows(I.begin + r, 1));
  }
}

/// The phases of `rows` queries at a time; exact_rows not among them.
inline std::vector<Phase> phases_of_pairs(const Sizes& x, index_t rows, index_t bc) {
  using A = SlowArray;
  const index_t kept = exact_keys(x), others = x.n_k - kept, g = row_polynomials_of(x)->degree();
  const index_t entering = std::min(bc, others), passing = std::min(bc, kept), br = std::min(rows, x.n_q);
  const Words word = x.tile(A::den, 1, 1), key = x.tile(A::K, 1, x.d), stack = x.tile(A::den, g, 1);
  const Words stays = (row_polynomials_of(x)->centred ? key : Words(0)) + x.tile(A::ids, kept, 1);
  const auto pairs = [&](index_t keys) { return x.tile(A::K, keys, x.d) + x.tile(A::V, keys, x.d_v); };
  std::vector<Phase> phases;
  phases.reserve(5);
  if (row_polynomials_of(x)->centred) phases.push_back({key + x.word(A::K), x.word(A::K)});
  phases.push_back({stays + x.tile(A::den, kept, 1) + key + word + x.tile(A::ids, 1, 1) +
                        (others > 0 ? x.tile(A::den, 2, 1) : Words(0)),
                    key});
  const Words r = monomials(x.d, g), state = stays + x.tile(A::Z, r, x.d_v) + x.tile(A::Z, r, 1) + word;
  phases.push_back({state + (entering > 0 ? pairs(entering) + stack : Words(0)), pairs(entering)});
  const Words block = x.tile(A::Q, br, x.d) + x.tile(A::O, br, x.d_v) + 2 * x.tile(A::den, br, 1);
  phases.push_back({state + block + std::max(word + stack, pairs(passing) + x.tile(A::S, br, passing)),
                    std::max(x.tile(A::Q, br, x.d), pairs(passing))});
  return phases;
}

}  // namespace redblue::schedule
