#pragma once
#include "redblue/core/machine.hpp"
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/limits.hpp"

namespace redblue::schedule {

/// The order of FlashAttention-1: a block of keys and values stays red while queries stream past; outputs are revisited
/// in slow memory. O is kept normalised, so one statistic (lse) per query suffices where Dao et al. 2022 (arXiv
/// 2205.14135) move m and l. With all keys in one block every word moves once.
///   T = ceil(n_k/Bc): reads n_k (d + d_v) + T n_q d + (T-1) n_q (d_v + 1)   writes T n_q (d_v + 1)
///   footprint Bc (d + d_v) + Br (Bc + 3) + 1
struct KeyOuterForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "key_outer";
  static constexpr std::string_view idea = "keeping keys and values resident";
  static constexpr Traits traits{.rewrites_outputs = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Bc = 1;  ///< keys and values resident at a time
    index_t Br = 1;  ///< queries per step
    void knobs(const auto& knob) {
      knob({"Bc", &Sizes::n_k}, Bc);
      knob({"Br", &Sizes::n_q}, Br);
    }
  };
  static std::string_view caveat(const Sizes& x, Tiling t) {
    return t.Bc < x.n_k ? "it keeps lse in one word from visit to visit, so outputs err by about eps |lse| a visit"
                        : "";
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Br = smallest_tile(x.n_q, limits.multiple.query);  // the words do not depend on Br
    const index_t step = limits.multiple.key;
    const index_t Bc =
        largest_tile(x.n_k, step, [&](index_t b) { return limits.fit(footprint(x, {b, Br}), prefetch(x, {b, Br})); });
    if (Bc == 0) return std::nullopt;
    return Tiling{balanced(x.n_k, Bc, step), Br};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const index_t Bc = std::min(t.Bc, x.n_k), Br = std::min(t.Br, x.n_q);
    return x.tile(SlowArray::K, Bc, x.d) + x.tile(SlowArray::V, Bc, x.d_v) + x.tile(SlowArray::S, Br, Bc) +
           3 * x.statistic(SlowArray::lse, Br) + prefetch(x, t);
  }
  /// A word of Q or O; with second buffers, the next one.
  static Words prefetch(const Sizes& x, Tiling) { return std::max(x.word(SlowArray::Q), x.word(SlowArray::O)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words T = c(x.n_k, t.Bc), n_q = x.n_q;
    return Io()
        .read(SlowArray::K, Words(x.n_k) * x.d)
        .read(SlowArray::V, Words(x.n_k) * x.d_v)
        .read(SlowArray::Q, T * n_q * x.d)
        .read(SlowArray::O, (T - 1) * n_q * x.d_v)
        .read(SlowArray::lse, (T - 1) * n_q)
        .write(SlowArray::O, T * n_q * x.d_v)
        .write(SlowArray::lse, T * n_q);
  }
  static Words macs(const Sizes& x, Tiling) { return x.N() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto K = tiled(x.K, t.Bc), V = tiled(x.V, t.Bc);
    const auto Q = tiled(x.Q, t.Br), O = tiled(x.O, t.Br), lse = tiled(x.lse, t.Br);
    for (index_t j = 0; j < K.rows(); ++j) {
      const bool first = j == 0;
      const auto K_j = m.load(K(j)), V_j = m.load(V(j));
      m.each(Q.rows(), [&](auto& w, index_t i) {
        const auto s = w.alloc(SlowArray::S, {Q(i).shape.rows, K(j).shape.rows});
        const auto ln = w.alloc(lse(i)), alpha = w.alloc(lse(i)), beta = w.alloc(lse(i));
        w.compute(kernel::Scores{x.scale}, s, w.stream(Q(i)), K_j);
        w.compute(kernel::BlockSoftmax{}, s, ln);  // s <- softmax(s); ln <- its lse
        if (first) {
          w.compute(kernel::Zero{}, alpha);
        } else {
          w.load_into(alpha, lse(i));                      // lse of the keys before
          w.compute(kernel::MergeLse{}, ln, alpha, beta);  // ln <- lse of all; alpha, beta <- shares of old and new
          w.compute(kernel::ScaleRows{}, s, beta);
        }
        w.update(kernel::MergeOutput{first}, O(i), alpha, s, V_j);  // O <- alpha O + s V
        w.store(ln, lse(i));
      });
    }
  }
};

}  // namespace redblue::schedule
