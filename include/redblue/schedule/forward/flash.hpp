#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/attention.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/limits.hpp"
#include "redblue/schedule/parts/visible.hpp"

namespace redblue::schedule {

/// FlashAttention-2 forward: a block of Br queries stays red while keys and values stream past it.
/// Dao 2023 (arXiv 2307.08691); Saha & Ye 2024 (arXiv 2402.07443): Theta(n^2 d^2 / M) for M >= d^2. Optimal including
/// the constant for d_v = d, 4 d^2 <= M << n d (docs/proofs/f-prime.md).
///   reads n_q d + (d + d_v) SUM_I kappa_I   writes n_q (d_v + 1)   footprint Br (d + d_v + 2 + Bc) + 1
/// (without the words of m, l and lse if the score function has no statistics).
/// kappa_I: keys that block I sees; n_k without a mask, so the sum is ceil(n_q/Br) n_k. The words do not depend on Bc.
struct FlashForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "flash";
  static constexpr std::string_view idea = "keeping a block of queries resident";
  static constexpr Traits traits{.masks = true, .any_score = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys per step
    void knobs(const auto& knob) {
      knob({"Br", &Sizes::n_q}, Br);
      knob({"Bc", &Sizes::n_k}, Bc);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Bc = smallest_tile(x.n_k, limits.multiple.key);
    const index_t step = limits.multiple.query;
    const auto fits = [&](index_t Br) { return limits.fit(footprint(x, {Br, Bc}), prefetch(x, {Br, Bc})); };
    const index_t Br = fewest_visits(x, largest_tile(x.n_q, step, fits), step, fits);
    if (Br == 0) return std::nullopt;
    return Tiling{Br, Bc};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    return query_blocks_footprint(x, t.Br, [&](index_t rows, index_t kappa) {
      return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::O, rows, x.d_v) +
             2 * x.statistic(SlowArray::lse, rows) + x.tile(SlowArray::S, rows, std::min(t.Bc, x.n_k)) +
             (kappa > 0 ? passing(x) : Words(0));
    });
  }
  /// A word of K or V.
  static Words passing(const Sizes& x) { return std::max(x.word(SlowArray::K), x.word(SlowArray::V)); }
  /// Second buffers: the next streamed word.
  static Words prefetch(const Sizes& x, Tiling) { return passing(x); }
  static Io io(const Sizes& x, Tiling t) { return query_outer_io(x, visited_keys(x, t.Br)); }
  static Words macs(const Sizes& x, Tiling t) { return visited_pairs(x, t.Br) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    run(m, x, t, [](auto& w, const Block& b) { return w.stream(b); });
  }

  /// `pass(w, block)` brings a block of keys or values to the queries: flash streams it, flash_pinned may hold it
  /// resident.
  template <Machine M, class Pass>
  static void run(M& m, const ForwardOperands& x, Tiling t, const Pass& pass) {
    const auto Q = tiled(x.Q, t.Br), O = tiled(x.O, t.Br), lse = tiled(x.lse, t.Br);
    m.each(Q.rows(), [&](auto& w, index_t i) {
      const index_t kappa = x.shape.mask.visible(Q(i).row, Q(i).shape.rows, x.shape.n_k);
      attend(w, x, {Q(i), O(i), lse(i)}, {0, kappa}, t.Bc, pass);
    });
  }

  /// A block of queries, and where its output goes.
  struct Rows {
    Block Q, O, lse;
  };
  struct Keys {
    index_t first, end;
  };
  /// The rows attend to these keys alone, Bc at a time. There may be no key.
  template <class W, class Pass>
  static void attend(W& w, const ForwardOperands& x, const Rows& i, Keys keys, index_t Bc, const Pass& pass) {
    using Step = kernel::OnlineAttention;  // S = scale Q K^T; S <- exp(S - m), O and l rescaled; O += S V
    const auto Q_i = w.load(i.Q, Step::Q);
    const auto O_i = w.alloc(i.O, Step::O);
    const auto m_i = w.alloc(i.lse), l_i = w.alloc(i.lse);
    const auto S = w.alloc(SlowArray::S, {i.Q.shape.rows, std::min(Bc, x.shape.n_k)}, Step::S);
    w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
    for (index_t j = keys.first; j < keys.end; j += Bc) {
      const index_t count = std::min(Bc, keys.end - j);
      const Step step{{x.scale, x.shape.mask, i.Q.row, j}, x.shape.score};
      w.compute(step, S.cols(count), O_i, m_i, l_i, Q_i, pass(w, x.K.rows(j, count)), pass(w, x.V.rows(j, count)));
    }
    w.compute(kernel::SoftmaxFinish{x.shape.score}, O_i, m_i, l_i);  // O <- O / l, m <- lse
    w.store(O_i, i.O);
    if (x.store_lse) w.store(m_i, i.lse);
  }
};

}  // namespace redblue::schedule
