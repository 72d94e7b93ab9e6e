#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/gemm.hpp"

namespace redblue::schedule {

/// Saha & Ye 2024 (arXiv 2402.07443), Algorithm 1 SquareTilingAttention, as printed: B = floor(sqrt(M/4)), three square
/// tiles resident, exp without a shift. For comparison only: it moves twice the words that M allows and overflows on
/// large scores, so the planner never chooses it. The row sums d are kept as their logarithm, which is the lse.
///   reads ceil(n_k/B) n_q d + ceil(n_q/B) n_k d + n_q + ceil(d_v/B) n_q n_k + ceil(n_q/B) n_k d_v
///   writes n_q n_k + n_q + n_q d_v   footprint 3 B^2 + B
struct SahaYeForward {
  static constexpr std::string_view name = "saha_ye";
  static constexpr bool stable = false;
  static constexpr bool masks = false;
  static constexpr bool rewrites_outputs = false;

  struct Tiling {
    index_t B = 1;  ///< side of every tile
    std::vector<Knob> knobs() const { return {{"B", B}}; }
  };

  static Tiling smallest(const ForwardShape&, const Multiples&) { return {1}; }
  /// The paper's B for the memory that is left (less where second buffers must fit), whatever the multiples: it is
  /// printed, not tuned.
  static std::optional<Tiling> choose_tiling(const ForwardShape& x, const Limits& limits) {
    const Words M = limits.M - limits.reserve;
    const index_t longest = std::max({x.n_q, x.n_k, x.d, x.d_v});
    const index_t B = largest_tile(longest, 1, [&](index_t b) {
      return Words(4) * b * b <= M && limits.fit(footprint(x, {b}), prefetch(x, {b}));
    });
    if (B == 0) return std::nullopt;
    return Tiling{B};
  }

  static Words footprint(const ForwardShape& x, Tiling t) {
    const Words a = std::min(t.B, x.n_q), b = std::min(t.B, x.n_k), k = std::min(t.B, x.d), v = std::min(t.B, x.d_v);
    return a + std::max(a * b + a * k + b * k, a * v + a * b + b * v);
  }
  /// The next pair of tiles.
  static Words prefetch(const ForwardShape& x, Tiling t) {
    const Words a = std::min(t.B, x.n_q), b = std::min(t.B, x.n_k), k = std::min(t.B, x.d), v = std::min(t.B, x.d_v);
    return std::max((a + b) * k, a * b + b * v);
  }
  static Io io(const ForwardShape& x, Tiling t) {
    return Io()
        .read(SlowArray::Q, c(x.n_k, t.B) * x.n_q * x.d)
        .read(SlowArray::K, c(x.n_q, t.B) * x.n_k * x.d)
        .write(SlowArray::S, x.N())
        .write(SlowArray::lse, x.n_q)
        .read(SlowArray::lse, x.n_q)
        .read(SlowArray::S, c(x.d_v, t.B) * x.N())
        .read(SlowArray::V, c(x.n_q, t.B) * x.n_k * x.d_v)
        .write(SlowArray::O, Words(x.n_q) * x.d_v);
  }
  static Words workspace(const ForwardShape& x) { return x.N(); }
  static Words macs(const ForwardShape& x, Tiling) { return x.N() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const Forward& x, Tiling t) {
    const auto A = tiled(x.S, t.B, t.B), Q = tiled(x.Q, t.B, t.B), K = tiled(x.K, t.B, t.B);
    const auto V = tiled(x.V, t.B, t.B), O = tiled(x.O, t.B, t.B), lse = tiled(x.lse, t.B);
    m.each(A.rows(), [&](auto& w, index_t i) {
      const auto d_i = w.alloc(lse(i).shape);
      w.compute(kernel::Zero{}, d_i);
      for (index_t j = 0; j < A.cols(); ++j) {
        const auto A_ij = w.alloc(A(i, j).shape);
        w.compute(kernel::Zero{}, A_ij);
        for (index_t k = 0; k < Q.cols(); ++k) {
          const auto Q_ik = w.load(Q(i, k)), K_jk = w.load(K(j, k));
          w.compute(kernel::Gemm{false, true}, A_ij, Q_ik, K_jk);  // A += Q K^T
        }
        w.compute(kernel::UnshiftedExp{x.scale}, A_ij);  // A <- exp(scale A)
        w.compute(kernel::AddRowSums{}, d_i, A_ij);
        w.store(A_ij, A(i, j));
      }
      w.compute(kernel::Log{}, d_i);
      w.store(d_i, lse(i));
    });
    m.each(O.rows(), [&](auto& w, index_t i) {
      const auto lse_i = w.load(lse(i));
      for (index_t k = 0; k < O.cols(); ++k) {
        const auto O_ik = w.alloc(O(i, k).shape);
        w.compute(kernel::Zero{}, O_ik);
        for (index_t j = 0; j < V.rows(); ++j) {
          const auto A_ij = w.load(A(i, j)), V_jk = w.load(V(j, k));
          w.compute(kernel::DivideAccumulate{}, O_ik, A_ij, lse_i, V_jk);  // O += diag(d)^-1 A V
        }
        w.store(O_ik, O(i, k));
      }
    });
  }
};

}  // namespace redblue::schedule
