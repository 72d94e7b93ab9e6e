#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/parts/visible.hpp"

namespace redblue::schedule {

/// FlashAttention-2 forward: a block of Br queries stays red while keys and values stream past it.
/// Dao 2023 (arXiv 2307.08691); Saha & Ye 2024 (arXiv 2402.07443): Theta(n^2 d^2 / M) for M >= d^2, with the best
/// constant for d_v = d, 4 d^2 <= M << n d (docs/proofs/f-prime.md).
///   reads n_q d + (d + d_v) A(Br)   writes n_q (d_v + 1)   footprint Br (d + d_v + 2 + Bc) + 1
/// (without the words of m, l, lse if the score function has no statistics; bias and others: parts/modifiers.hpp).
/// A given O and lse (Sizes::accumulate) are n_q (d_v + 1) words more to read, and none in fast memory.
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask ceil(n_q/Br) n_k. The words do not depend on Bc.
struct FlashForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash";
  static constexpr std::string_view idea = "keeping a block of queries resident";
  static constexpr Traits traits{
      .masks = true, .patterns = true, .modifiers = true, .any_score = true, .accumulates = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Bc = smallest_tile(x.n_k, limits.multiple.key), step = limits.multiple.query;
    const index_t Br = choose_query_block(
        x, step, [&](index_t size) { return limits.fit(footprint(x, {size, Bc}), prefetch(x, {size, Bc})); },
        query_block_prices(x, limits));
    if (Br == 0) return std::nullopt;
    return Tiling{Br, Bc};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const index_t rows = std::min(t.Br, x.n_q);
    return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::O, rows, x.d_v) + 2 * x.statistic(SlowArray::lse, rows) +
           x.tile(SlowArray::S, rows, std::min(t.Bc, x.n_k)) + slopes_tile(x) + passing(x);
  }
  /// A word of K, of V, or of what passes beside them.
  static Words passing(const Sizes& x) {
    return std::max({x.word(SlowArray::K), x.word(SlowArray::V), passing_beside_keys(x)});
  }
  /// Second buffers: the next streamed word.
  static Words prefetch(const Sizes& x, Tiling) { return passing(x); }
  /// A word of what modifies scores, or of the lse that is given.
  static Words passing_beside_keys(const Sizes& x) { return std::max(passing_modifiers(x), passing_given(x)); }
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, t.Br, x.pairs().visited_keys(t.Br)); }
  static Words macs(const Sizes& x, Tiling t) { return x.pairs().pairs_of_rows(t.Br) * (Words(x.d) + x.d_v); }
  static IndexWords index(const Sizes& x, Tiling t) { return row_pass_index(x, t.Br).words(); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      attend(w, x, {I, x.O.rows(I), x.lse.rows(I)}, pairs.runs_of_keys(I), t.Bc,
             [](auto& v, const Block& b) { return v.stream(b); });
    });
  }

  /// A block of queries, and where its output goes.
  struct Rows {
    Range queries;
    Block O, lse;
    bool first = true;  ///< do these rows begin with their sinks, or with the O and lse that are given?
  };
  /// The rows attend to these keys alone, if any, at most Bc at a time. `pass(w, block)` brings keys or values to the
  /// queries; `also(w, keys, K_j, V_j, slopes)` comes before each step.
  template <class W, class Pass, class Also = NothingElse>
  static void attend(W& w, const ForwardOperands& x, const Rows& i, const Runs& keys, index_t Bc, const Pass& pass,
                     const Also& also = {}) {
    using Attention = kernel::OnlineAttention;  // S = scale Q K^T; S <- exp(S - m), O and l rescaled; O += S V
    const bool given = x.shape.accumulate && i.first;
    const auto Q_i = w.load(x.Q.rows(i.queries), Attention::Q),
               O_i = given ? w.load(x.O.rows(i.queries), Attention::O) : w.alloc(i.O, Attention::O);
    const auto m_i = w.alloc(i.lse), l_i = w.alloc(i.lse);
    const Slopes slopes(w, x);
    const auto S = w.alloc(SlowArray::S, {i.queries.size(), std::min(Bc, x.shape.n_k)}, Attention::S);
    if (given)
      begin_with_given(w, x, i.queries, O_i, m_i, l_i);
    else
      w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
    if (i.first) begin_with_sinks(w, x, i.queries.begin, m_i, l_i);
    for_steps(w, keys, Bc, [&](Range J, index_t next) {
      const auto K_j = pass(w, x.K.rows(J)), V_j = pass(w, x.V.rows(J));
      also(w, J, K_j, V_j, slopes.arg());
      w.compute(x.attention_at(i.queries.begin, J.begin, next), S.cols(J.size()), O_i, m_i, l_i, Q_i, K_j, V_j,
                x.bias_of(i.queries, J), slopes.arg());
    });
    w.compute(kernel::SoftmaxFinish{x.shape.score}, O_i, m_i, l_i);  // O <- O / l, m <- lse
    w.store(O_i, i.O);
    if (x.store_lse) w.store(m_i, i.lse);
  }
};

}  // namespace redblue::schedule
