#pragma once
#include <span>

#include "redblue/kernels/attention.hpp"
#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"
#include "redblue/schedules/parts/modifiers.hpp"

namespace redblue::schedule {

/// The operands of every forward schedule, O = softmax(scale Q K^T) V and lse: Q n_q x d, K n_k x d, V n_k x d_v,
/// O n_q x d_v, lse n_q x 1 (no column where the score function has no statistics). Workspace that only schedules which
/// declare it touch: S n_q x n_k, scores; Z d x d_v, the state K^T V of linear attention; Og and lse_g, O and lse of
/// one group of keys: a schedule keeps as many copies as its tiling says (schedules/parts/workspace.hpp); den n_q x 1,
/// the row sums of the weights of polynomial attention, or logarithms of those of the rounds so far; ids n_q x 1,
/// numbers of rows that it chose for the data, or of the polynomials that rows take; of hashing methods hash_q and
/// hash_k, what each query and key is sorted by, order_q and order_k, a column of sorted rows for each round, and runs,
/// two lists of pairs under way; K_few, V_few and w_few, the keys, values and weights of Linformer and coresets in
/// place of all.
struct ForwardOperands : ModifierOperands {
  static constexpr Operation operation = Operation::forward;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  Sizes shape;
  double scale = 1;
  SlowMatrix Q, K, V, O, lse, S, Z, Og, lse_g, den, ids, hash_q, hash_k, order_q, order_k, runs, K_few, V_few, w_few;
  bool store_lse = true;  ///< false in all but one pass of a schedule that goes over the queries several times

  [[gnu::noinline]] ForwardOperands(const Sizes& s, double scale, index_t instance = 0)
      : ForwardOperands(s, scale, instance,
                        s.approximation == nullptr ? MethodWorkspace() : s.approximation->workspace(s)) {}
  ForwardOperands(const Sizes& s, double scale, index_t instance, const MethodWorkspace& method)
      : ModifierOperands(s, instance),
        shape(s),
        scale(scale),
        Q{SlowArray::Q, {s.n_q, s.d}, instance, s.row0},
        K{SlowArray::K, {s.n_k, s.d}, instance, s.key0},
        V{SlowArray::V, {s.n_k, s.d_v}, instance, s.key0},
        O{SlowArray::O, {s.n_q, s.d_v}, instance, s.row0},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        S(matrix_of_pairs(s, SlowArray::S, instance)),
        Z{SlowArray::Z, {s.d, s.d_v}, instance},
        Og{SlowArray::Og, O.shape, instance},
        lse_g{SlowArray::lse_g, lse.shape, instance},
        den{SlowArray::den, {s.n_q, 1}, instance, s.row0},
        ids{SlowArray::ids, {s.n_q, 1}, instance, s.row0},
        hash_q{SlowArray::hash_q, {s.n_q, method.hash_words}, instance, s.row0},
        hash_k{SlowArray::hash_k, {s.n_k, method.hash_words}, instance, s.key0},
        order_q{SlowArray::order_q, {s.n_q, method.rounds}, instance, s.row0},
        order_k{SlowArray::order_k, {s.n_k, method.rounds}, instance, s.key0},
        runs{SlowArray::runs, {std::max(s.n_q, s.n_k), 4}, instance},
        K_few{SlowArray::K_few, {method.few_rows, s.d}, instance},
        V_few{SlowArray::V_few, {method.few_rows, s.d_v}, instance},
        w_few{SlowArray::w_few, {method.few_rows, 1}, instance} {}

  /// One step of attention on the scores at (row, col); the keys of the next step begin at `next`.
  kernel::OnlineAttention attention_at(index_t row, index_t col, index_t next) const {
    const Place place = shape.place(row, col);
    return {{scale, place}, shape.score, modify_scores(shape, place), drop(shape, instance(), place), next - col};
  }
  index_t instance() const { return Q.instance; }

  auto all() const {
    return std::array{Q,     K,   V,   bias,   slopes, sinks,   O,       lse,  S,     Z,     Og,
                      lse_g, den, ids, hash_q, hash_k, order_q, order_k, runs, K_few, V_few, w_few};
  }
};

/// The keys before these are as one key, whose value is the O that is given, and whose score is lse: m <- lse, l <- 1,
/// or 0 where there was none: there O may hold anything, and becomes 0. O is resident. Reads lse.
template <class W, class Output, class Statistics>
[[gnu::noinline]] void begin_with_given(W& w, const ForwardOperands& x, Range rows, const Output& O,
                                        const Statistics& m, const Statistics& l) {
  if (x.shape.statistics() == 0) return;
  w.compute(kernel::StatisticsInit{}, m, l);
  w.compute(kernel::StatisticsAdd{}, m, l, w.stream(x.lse.rows(rows)));
  w.compute(kernel::SoftmaxFinish{}, O, m, l);  // O <- O / 1, or 0 where l is 0; m <- m + log 1
}

}  // namespace redblue::schedule
