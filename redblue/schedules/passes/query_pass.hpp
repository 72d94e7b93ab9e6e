#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/sequences.hpp"

/// Gradients with a block of queries resident and keys passing: dQ_i = SUM_j dS_ij K_j. Every schedule whose outer loop
/// goes over queries adds its own beginning and end to this text.
namespace redblue::schedule {

struct QueryPass {
  index_t Br = 1;  ///< queries resident at a time
  index_t bc = 1;  ///< keys per step
  void tile_sizes(const auto& tile_size) {
    tile_size({"Br", &Sizes::n_q}, Br);
    tile_size({"bc", &Sizes::n_k}, bc);
  }
};

/// dQ, Q, dO, lse, D and the tiles P and dP of these queries; P and dP of `own` of them, those in one part.
inline Words query_pass_rows(const Sizes& x, index_t rows, index_t own, index_t bc) {
  return x.tile(SlowArray::dQ, rows, x.d) + x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::dO, rows, x.d_v) +
         x.statistic(SlowArray::lse, rows) + x.statistic(SlowArray::D, rows) +
         (x.modifiers.two_weights() ? 3 : 2) * x.tile(SlowArray::P, own, std::min(bc, x.n_k)) + slopes_tile(x);
}
/// The tiles of a block of queries, K_j and one streamed word: of V, or of the schedule's own work, which takes `also`.
/// Second buffers: the next keys and the next streamed word.
inline Phase query_pass_phase(const Sizes& x, QueryPass t, Words also = 0) {
  const Words word = std::max(passing_bias(x, x.word(SlowArray::V)), also),
              O = x.statistics() > 0 ? std::max(x.word(SlowArray::O), passing_lse_gradient(x)) : Words(0);
  const auto block = [&](const Sizes& part, index_t rows, index_t own, index_t kappa) {
    const Words keys = x.tile(SlowArray::K, std::min(t.bc, kappa), x.d) + word;
    return query_pass_rows(part, rows, own, t.bc) + std::max(keys, O);
  };
  return {shared_query_footprint(x, t.Br, block), x.tile(SlowArray::K, std::min(t.bc, x.n_k), x.d) + word};
}
/// Keys and values.
inline Io keys_io(const Sizes& x, Words visits) {
  return Io().read(SlowArray::K, visits * x.d).read(SlowArray::V, visits * x.d_v);
}
/// What all blocks of Br queries read: n_q (d + 2 d_v + 1) + A(Br) (d + d_v).
inline Io query_pass_io(const Sizes& x, index_t Br) {
  const Words visits = x.pairs().visited_keys(Br);
  return modifiers_io(x, x.pairs().pairs_of_rows(Br), visits, x.pairs().row_blocks(Br).count()) +
         Io().read(SlowArray::Q, Words(x.n_q) * x.d)
             .read(SlowArray::dO, Words(x.n_q) * x.d_v)
             .read(SlowArray::O, x.row_statistics() * x.d_v)
             .read(SlowArray::lse, x.row_statistics()) +
         lse_gradient_io(x, x.n_q) + keys_io(x, visits);
}

/// The cheapest Br for which phase(pass) fits.
template <class PhaseOf>
std::optional<QueryPass> choose_query_pass(const Sizes& x, const Limits& limits, const PhaseOf& phase,
                                           const VisitPrices& price) {
  const index_t bc = smallest_tile(x.n_k, limits.multiple.key), step = limits.multiple.query;
  const index_t Br =
      choose_query_block(x, step, [&](index_t size) { return limits.fit(phase(QueryPass{size, bc})); }, price);
  if (Br == 0) return std::nullopt;
  return QueryPass{Br, bc};
}

/// The resident tiles of a block of queries, or their rows of some of these.
struct QueryTiles {
  Range queries;
  Arg dQ, Q, dO, lse, D;
  std::optional<Block> O{};  ///< D is formed from it; none if D is loaded
};

/// The usual `pass` of query_pass: loads keys and streams values.
template <class Operands>
auto keys_from_slow_memory(const Operands& x) {
  return [&x](auto& w, Range J, const auto& step) {
    const auto K_j = w.load(x.K.rows(J));
    step(K_j, w.stream(x.V.rows(J)));
  };
}

/// Forms D_i, unless it was loaded, and adds SUM_j dS_ij K_j to dQ_i. pass(w, J, step) brings the keys J and their
/// values and calls step(K_j, V_j); also(J, P_ij, dS_ij) is the schedule's own work on them.
template <class W, class Operands, class Pass, class Also>
void query_pass(W& w, const Operands& x, const QueryTiles& i, index_t bc, const Pass& pass, const Also& also) {
  const Sizes& s = x.shape;
  const auto P = w.alloc(SlowArray::P, {i.queries.size(), std::min(bc, s.n_k)}), dP = w.alloc(SlowArray::P, P.shape()),
             G = w.alloc(SlowArray::P, s.modifiers.two_weights() ? P.shape() : Shape{0, 0});
  const Slopes slopes(w, x);
  if (i.O && i.D.shape().words() > 0) {  // D = rowsum(dO o O)
    w.compute(kernel::RowDots{}, i.D, i.dO, w.stream(*i.O));
    subtract_lse_gradient(w, x, i.D, i.queries);
  }
  for_steps(w, s.pairs().runs_of_keys(i.queries), bc, [&](Range J, index_t) {
    const Arg P_ij = P.cols(J.size()), dS_ij = dP.cols(J.size()),
              G_ij = G.cols(s.modifiers.two_weights() ? J.size() : 0);
    const Place place = s.place(i.queries.begin, J.begin);
    const kernel::WeightsOfTile weights = weights_of_tile(s, x.instance(), place);
    const auto visit = [&](const auto& k, const auto&... a) { w.compute(k, a...); };
    pass(w, J, [&](const auto& K_j, const auto& V_j) {
      w.compute(kernel::Scores{x.scale, place}, P_ij, i.Q, K_j);
      weights.parts(visit, P_ij, G_ij, kNoWords, i.lse, bias_of(x, i.queries, J),
                    slopes.arg());  // P = exp(S - lse)
      w.compute(kernel::Zero{}, dS_ij);
      w.compute(kernel::Gemm{false, true}, dS_ij, i.dO, V_j);              // dP = dO V^T
      weights.gradient(visit, x.scale, dS_ij, P_ij, G_ij, kNoWords, i.D);  // dS = scale P o (dP - D)
      w.compute(kernel::Gemm{}, i.dQ, dS_ij, K_j);                         // dQ += dS K
      also(J, P_ij, dS_ij);
    });
  });
}

template <class W, class Operands, class Pass>
void query_pass(W& w, const Operands& x, const QueryTiles& i, index_t bc, const Pass& pass) {
  query_pass(w, x, i, bc, pass, [](Range, const Arg&, const Arg&) {});
}

}  // namespace redblue::schedule
