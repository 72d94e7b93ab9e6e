#pragma once
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/parts/visible.hpp"

/// Gradients with a block of keys and values resident and queries passing: dK_j = SUM_i dS_ij^T Q_i and
/// dV_j = SUM_i P_ij^T dO_i. Every schedule whose outer loop goes over keys adds its own beginning and end to this
/// text.
namespace redblue::schedule {

struct KeyPass {
  index_t Bc = 1;  ///< keys and values resident at a time
  index_t br = 1;  ///< queries per step
  void knobs(const auto& knob) {
    knob({"Bc", &Sizes::n_k}, Bc);
    knob({"br", &Sizes::n_q}, br);
  }
};

/// Queries that see key j: under a mask the last ones.
inline index_t queries_seeing(const Sizes& x, index_t j) {
  return x.n_q - first_row_seeing(x.mask, x.n_q, x.n_k, j + 1);
}

/// SUM_J over all blocks of Bc keys of the queries that see the block's first key.
inline Words visited_queries(const Sizes& x, index_t Bc) {
  const index_t T = ceil_div(x.n_k, Bc);
  if (!x.mask.causal) return Words(T) * x.n_q;
  // Key j is seen by n_q - group (j - offset) queries where that lies between 0 and n_q.
  const index_t all = detail::first_that(T, [&](index_t J) { return queries_seeing(x, J * Bc) < x.n_q; });
  const index_t some = detail::first_that(T, [&](index_t J) { return queries_seeing(x, J * Bc) == 0; });
  const Words between = some - all, first = Words(x.n_q) + Words(x.mask.group) * x.mask.offset;
  const Words indices = between * (Words(all) + some - 1) / 2;  // SUM J
  return Words(all) * x.n_q + between * first - Words(x.mask.group) * Bc * indices;
}
/// SUM_J |J| times the queries that see the first key of J: the pairs whose scores are formed.
inline Words visited_query_pairs(const Sizes& x, index_t Bc) {
  const index_t T = ceil_div(x.n_k, Bc), last = x.n_k - (T - 1) * Bc;
  return visited_queries(x, Bc) * Bc - Words(queries_seeing(x, (T - 1) * Bc)) * (Bc - last);
}

/// The tiles of a block of keys, the arriving queries with their statistics, and one streamed word: of dO, or of the
/// schedule's own work, which takes `also`. The most queries see the first block. Second buffers: the next queries and
/// the next streamed word.
inline Phase key_pass_phase(const Sizes& x, KeyPass t, Words also = 0) {
  const index_t Bc = std::min(t.Bc, x.n_k), br = std::min(t.br, x.n_q), seeing = queries_seeing(x, 0);
  const auto arriving = [&](index_t rows) {
    return x.tile(SlowArray::Q, rows, x.d) + x.statistic(SlowArray::lse, rows) + x.statistic(SlowArray::D, rows);
  };
  const Words keys = x.tile(SlowArray::K, Bc, x.d) + x.tile(SlowArray::V, Bc, x.d_v) + x.tile(SlowArray::dK, Bc, x.d) +
                     x.tile(SlowArray::dV, Bc, x.d_v) + 2 * x.tile(SlowArray::P, br, Bc);
  const Words word = std::max(x.word(SlowArray::dO), also);
  return {keys + (seeing > 0 ? arriving(std::min(br, seeing)) + word : Words(0)), arriving(br) + word};
}
/// What all blocks read and write: reads n_k (d + d_v) + SUM_J rows_J (d + d_v + 2), writes n_k (d + d_v).
inline Io key_pass_io(const Sizes& x, Words visits) {
  return Io()
      .read(SlowArray::K, Words(x.n_k) * x.d)
      .read(SlowArray::V, Words(x.n_k) * x.d_v)
      .read(SlowArray::Q, visits * x.d)
      .read(SlowArray::dO, visits * x.d_v)
      .read(SlowArray::lse, visits * x.statistics())
      .read(SlowArray::D, visits * x.statistics())
      .write(SlowArray::dK, Words(x.n_k) * x.d)
      .write(SlowArray::dV, Words(x.n_k) * x.d_v);
}

/// The Bc for which blocks visit the fewest queries. Under a mask this sum is not monotone in Bc. Among all Bc with the
/// same number of blocks the largest is best; and since Bc SUM rows >= visible pairs, the search can stop where a
/// smaller Bc cannot win.
inline std::optional<KeyPass> choose_key_pass(const Sizes& x, const Limits& limits, Words also = 0) {
  const index_t br = smallest_tile(x.n_q, limits.multiple.query), step = limits.multiple.key;
  const auto fits = [&](index_t Bc) { return limits.fit(key_pass_phase(x, {Bc, br}, also)); };
  const index_t largest = largest_tile(x.n_k, step, fits);
  if (largest == 0) return std::nullopt;
  if (!x.mask.causal) return KeyPass{balanced(x.n_k, largest, step), br};
  const Words pairs = visible_pairs(x.mask, x.n_q, x.n_k), least = queries_seeing(x, 0);
  index_t best = largest;
  Words fewest = visited_queries(x, largest);
  for (index_t Bc = next_smaller(x.n_k, largest, step); Bc > 0 && fewest > least && pairs < fewest * Bc;
       Bc = next_smaller(x.n_k, Bc, step)) {
    const Words visits = visited_queries(x, Bc);
    if (visits < fewest) {
      fewest = visits;
      best = Bc;
    }
  }
  return KeyPass{best, br};
}

/// The word of dQ that a schedule writes for the queries that see no key, before anything is resident.
inline Phase zero_unseeing_phase(const Sizes& x) {
  return {queries_seeing(x, 0) < x.n_q ? x.word(SlowArray::dQ) : Words(0), 0};
}
/// dQ of the queries that see no key.
template <class M>
void zero_unseeing(M& m, const BackwardOperands& x) {
  const index_t unseeing = x.shape.n_q - queries_seeing(x.shape, 0);
  if (unseeing > 0) m.update(kernel::ZeroOver{}, x.dQ.rows(0, unseeing));
}

/// dK and dV of keys j .. j + keys, written when all queries have passed. also(w, i, rows, dS_ij, K_j) is the
/// schedule's own work on the queries i .. i + rows.
template <class W, class Also>
void key_pass(W& w, const BackwardOperands& x, index_t j, index_t keys, index_t br, const Also& also) {
  const Sizes& s = x.shape;
  using Step = kernel::KeyGradients;  // P = exp(S - lse); dV += P^T dO; dS = scale P o (dO V^T - D); dK += dS^T Q
  const auto K_j = w.load(x.K.rows(j, keys), Step::K), V_j = w.load(x.V.rows(j, keys), Step::V);
  const auto dK_j = w.alloc(x.dK.rows(j, keys)), dV_j = w.alloc(x.dV.rows(j, keys));
  w.compute(kernel::Zero{}, dK_j);
  w.compute(kernel::Zero{}, dV_j);
  const auto P = w.alloc(SlowArray::P, {std::min(br, s.n_q), keys}, Step::P),
             dS = w.alloc(SlowArray::P, P.shape(), Step::dS);
  for (index_t i = s.n_q - queries_seeing(s, j); i < s.n_q; i += br) {
    const index_t rows = std::min(br, s.n_q - i);
    const Arg P_ij = P.rows(0, rows), dS_ij = dS.rows(0, rows);
    const auto lse_i = w.load(x.lse.rows(i, rows)), D_i = w.load(x.D.rows(i, rows));
    const auto Q_i = w.load(x.Q.rows(i, rows), Step::Q);
    const Step step{{x.scale, s.mask, i, j}, s.score};
    w.compute(step, P_ij, dS_ij, dK_j, dV_j, Q_i, K_j, V_j, lse_i, D_i, w.stream(x.dO.rows(i, rows)));
    also(w, i, rows, dS_ij, K_j);
  }
  w.store(dK_j, x.dK.rows(j, keys));
  w.store(dV_j, x.dV.rows(j, keys));
}

}  // namespace redblue::schedule
