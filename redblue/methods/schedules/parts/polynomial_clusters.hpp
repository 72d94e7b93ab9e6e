#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_rows.hpp"
#include "redblue/methods/schedules/parts/smyrf_sort.hpp"

/// Polynomial attention with a polynomial for each row, and exact weights for pairs that meet in a cluster of sorted
/// rows: the state has all keys, and a pair that meets adds what e^z has more than the polynomial.
namespace redblue::schedule {

/// The clusters of a problem, and the one round of SMYRF that makes them.
inline Smyrf clustering(const Sizes& x) { return {1, row_polynomials_of(x)->cluster, row_polynomials_of(x)->seed}; }
inline Clusters exact_clusters(const Sizes& x) { return clusters_of(x, row_polynomials_of(x)->cluster); }

/// The rows of these ranks by the state and the keys of their cluster, which pass one by one. Rows that are beyond the
/// range are listed; they stay where they are until the others are done, and are not written.
template <class M>
void sorted_rows_by_state(M& m, const ForwardOperands& x, const Tile<M>& mean, const RowState<M>& state, Range ranks,
                          Range keys, std::vector<index_t>& listed) {
  const RowPolynomials& fits = *row_polynomials_of(x.shape);
  const index_t rows = ranks.size();
  const auto numbers = m.load(x.order_q.rows(ranks)), Q = m.alloc(SlowArray::Q, {rows, x.shape.d}),
             O = m.alloc(SlowArray::O, {rows, x.shape.d_v}), S = m.alloc(SlowArray::S, {rows, 1});
  const auto most = m.alloc(SlowArray::den, {rows, 1}), sums = m.alloc(SlowArray::den, {rows, 1}),
             rescale = m.alloc(SlowArray::den, {rows, 1});
  const auto row_of = [&](index_t r) { return look_up(m, numbers.rows(r, 1), ranks.begin + r); };
  gather(m, Q, x.Q, numbers.arg(), ranks.begin);
  for (const auto* words : {&O, &most, &sums, &rescale}) m.compute(kernel::Zero{}, *words);
  std::vector<std::pair<index_t, index_t>> near;  // rows, and the numbers of their polynomials
  near.reserve(static_cast<std::size_t>(rows));
  for (index_t r = 0; r < rows; ++r) {
    const auto stack = m.alloc(SlowArray::den, {fits.degree(), 1});
    const auto k = polynomial_of_row(m, x, state, Q.rows(r, 1), S.rows(r, 1), stack);
    if (k) {
      read_state(m, x, state, *k, O.rows(r, 1), sums.rows(r, 1), Q.rows(r, 1), stack);
      begin_maximum(m, x.shape, *k, false, most.rows(r, 1));
      near.emplace_back(r, *k);
    } else {
      m.store(numbers.rows(r, 1), x.ids.rows(std::ssize(listed), 1));
      listed.push_back(row_of(r));
    }
  }
  for_sorted(m, x.order_k, keys, [&](const auto&, index_t key) {
    m.compute(kernel::CentredScores{x.scale}, S, Q, m.stream(x.K.rows(key, 1)), mean);
    for (const auto& [r, k] : near) {
      kernel::ExactLessPolynomial more{fits.log_unit(k)};
      std::copy(fits[k].c.begin(), fits[k].c.end(), more.c.begin());
      m.compute(more, S.rows(r, 1), most.rows(r, 1), rescale.rows(r, 1));
    }
    m.compute(kernel::ScaleRows{}, O, rescale);
    m.compute(kernel::ScaleRows{}, sums, rescale);
    m.compute(kernel::Gemm{}, O, S, m.stream(x.V.rows(key, 1)));
    m.compute(kernel::Add{}, sums, S);
  });
  for (const auto& [r, k] : near) {
    m.compute(kernel::DivideRows{}, O.rows(r, 1), sums.rows(r, 1));
    m.store(O.rows(r, 1), x.O.rows(row_of(r), 1));
  }
}

/// The phases after the sorts, `br` sorted queries at a time; exact_rows not among them.
inline std::vector<Phase> phases_of_clusters(const Sizes& x, index_t br, index_t bc) {
  using A = SlowArray;
  const RowPolynomials& fits = *row_polynomials_of(x);
  const index_t g = fits.degree(), entering = std::min(bc, x.n_k);
  const Words r = monomials(x.d, g), stack = x.tile(A::den, g, 1), key = x.tile(A::K, 1, x.d);
  const Words state =
      x.tile(A::Z, r, x.d_v) + x.tile(A::Z, r, 1) + x.tile(A::den, 1, 1) + (fits.centred ? key : Words(0));
  const Words arriving = x.tile(A::K, entering, x.d) + x.tile(A::V, entering, x.d_v);
  const Words passing = std::max(x.word(A::K), x.word(A::V));
  const Clusters all = exact_clusters(x);
  const index_t rows = std::min(br, all.largest().rows);
  const Words block = x.tile(A::order_q, rows, 1) + x.tile(A::Q, rows, x.d) + x.tile(A::O, rows, x.d_v) +
                      x.tile(A::S, rows, 1) + 3 * x.tile(A::den, rows, 1);
  std::vector<Phase> phases;
  phases.reserve(3);
  if (fits.centred) phases.push_back({key + x.word(A::K), x.word(A::K)});
  phases.push_back({state + arriving + stack, arriving});
  phases.push_back({state + block + std::max(stack, x.tile(A::order_k, 1, 1) + passing),
                    std::max(passing, x.tile(A::Q, rows, x.d))});
  return phases;
}

}  // namespace redblue::schedule
