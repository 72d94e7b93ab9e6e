#pragma once
#include "redblue/schedule.hpp"

namespace redblue::schedule {

/// A block of Br queries stays in fast memory while the keys stream past twice: first for lse, then, with the values,
/// for O. O is never rescaled, as it is in flash; the keys are read twice for it.
///   reads n_q d + ceil(n_q/Br) n_k (2 d + d_v)   writes n_q (d_v + 1)   footprint Br (d + d_v + 2) + 1
struct TwoSweepsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "two_sweeps";
  static constexpr std::string_view idea = "keeping a block of queries resident, once for lse and once for the output";
  static constexpr Traits traits{};  // softmax without a mask
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    void tile_sizes(const auto& tile_size) { tile_size({"Br", &Sizes::n_q}, Br); }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query)}; }
  /// As many queries as fit, then the fewest that make no more blocks.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t step = limits.multiple.query;
    const index_t Br =
        largest_tile(x.n_q, step, [&](index_t b) { return limits.fit(footprint(x, {b}), prefetch(x, {b})); });
    if (Br == 0) return std::nullopt;
    return Tiling{balanced(x.n_q, Br, step)};
  }

  /// Q_i, lse_i and a column of scores; beside them l_i and a word of K, or O_i and a word of K or V. tile() and word()
  /// are in words, or in the bytes that words of each array take.
  static Words footprint(const Sizes& x, Tiling t) {
    using enum SlowArray;
    const index_t Br = std::min(t.Br, x.n_q);
    return x.tile(Q, Br, x.d) + x.tile(lse, Br, 1) + x.tile(S, Br, 1) +
           std::max(x.tile(lse, Br, 1) + x.word(K), x.tile(O, Br, x.d_v) + prefetch(x, t));
  }
  /// The next word that passes.
  static Words prefetch(const Sizes& x, Tiling) { return std::max(x.word(SlowArray::K), x.word(SlowArray::V)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = c(x.n_q, t.Br) * x.n_k;
    return Io()
        .read(SlowArray::Q, Words(x.n_q) * x.d)
        .read(SlowArray::K, 2 * visits * x.d)
        .read(SlowArray::V, visits * x.d_v)
        .write(SlowArray::O, Words(x.n_q) * x.d_v)
        .write(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, Tiling) { return x.nnz() * (2 * Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto Q = tiled(x.Q, t.Br), O = tiled(x.O, t.Br), lse = tiled(x.lse, t.Br);
    const auto K = tiled(x.K, 1), V = tiled(x.V, 1);
    m.each(Q.rows(), [&](auto& w, index_t i) {  // blocks of queries are independent
      const auto Q_i = w.load(Q(i));            // resident until the closing brace
      const auto lse_i = w.alloc(lse(i)), s = w.alloc(SlowArray::S, lse(i).shape);
      {
        const auto l_i = w.alloc(lse(i));
        w.compute(kernel::StatisticsInit{}, lse_i, l_i);
        for (index_t j = 0; j < K.rows(); ++j) {
          w.compute(kernel::Scores{x.scale}, s, Q_i, w.stream(K(j)));  // s <- scale Q_i k_j
          w.compute(kernel::StatisticsAdd{}, lse_i, l_i, s);           // maximum, and sum of exp(s - maximum)
        }
        w.compute(kernel::LogSum{}, lse_i, l_i);  // lse <- maximum + log l
      }
      w.store(lse_i, lse(i));
      const auto O_i = w.alloc(O(i));
      w.compute(kernel::Zero{}, O_i);
      for (index_t j = 0; j < K.rows(); ++j) {
        w.compute(kernel::Scores{x.scale}, s, Q_i, w.stream(K(j)));
        w.compute(kernel::Weights{}, s, lse_i);             // s <- exp(s - lse)
        w.compute(kernel::Gemm{}, O_i, s, w.stream(V(j)));  // O_i += s v_j
      }
      w.store(O_i, O(i));
    });
  }
};

}  // namespace redblue::schedule
