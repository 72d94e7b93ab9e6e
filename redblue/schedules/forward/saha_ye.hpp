#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/three_tiles.hpp"

namespace redblue::schedule {

/// Saha & Ye 2024 (arXiv 2402.07443), Algorithm 1 SquareTilingAttention, as printed: B = floor(sqrt(M/4)), three square
/// tiles resident, exp without a shift. For comparison only: it moves twice the words that M allows and overflows on
/// large scores, so the planner never chooses it. The row sums d are kept as their logarithm, which is the lse.
///   reads ceil(n_k/B) n_q d + ceil(n_q/B) n_k d + n_q + ceil(d_v/B) n_q n_k + ceil(n_q/B) n_k d_v
///   writes n_q n_k + n_q + n_q d_v   footprint 3 B^2 + B
struct SahaYeForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "saha_ye";
  static constexpr std::string_view idea = "the printed three-tile algorithm";
  static constexpr Traits traits{.stable = false};
  static constexpr std::array workspace{SlowArray::S};

  struct Tiling {
    index_t B = 1;  ///< side of every tile
    void tile_sizes(const auto& tile_size) { tile_size({"B"}, B); }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) { return {SquareSides(m, x).smallest()}; }
  /// The paper's B for the memory that is left (less where second buffers must fit, or multiples ask for it).
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto B = paper_side(x, limits, x.word(SlowArray::S),
                              [&](index_t b) { return limits.fit(footprint(x, {b}), prefetch(x, {b})); });
    if (!B) return std::nullopt;
    return Tiling{*B};
  }

  /// The row sums d beside three tiles, in both phases.
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const Words sums = x.tile(SlowArray::lse, std::min(t.B, x.n_q), 1);
    Phase scores = three_tile_phase(x, {SlowArray::S, SlowArray::Q, SlowArray::K, x.n_q, x.d, x.n_k}, t.B, false, true);
    Phase output =
        three_tile_phase(x, {SlowArray::O, SlowArray::S, SlowArray::V, x.n_q, x.n_k, x.d_v}, t.B, false, false);
    scores.footprint += sums;
    output.footprint += sums;
    return {scores, output};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return Io()
        .read(SlowArray::Q, c(x.n_k, t.B) * x.n_q * x.d)
        .read(SlowArray::K, c(x.n_q, t.B) * x.n_k * x.d)
        .write(SlowArray::S, x.nnz())
        .write(SlowArray::lse, x.n_q)
        .read(SlowArray::lse, x.n_q)
        .read(SlowArray::S, c(x.d_v, t.B) * x.nnz())
        .read(SlowArray::V, c(x.n_q, t.B) * x.n_k * x.d_v)
        .write(SlowArray::O, Words(x.n_q) * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) { return x.nnz() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto A = tiled(x.S, t.B, t.B), O = tiled(x.O, t.B, t.B), lse = tiled(x.lse, t.B);
    m.each(A.rows(), [&](auto& w, index_t i) {
      const auto d_i = w.alloc(lse(i));
      w.compute(kernel::Zero{}, d_i);
      for (index_t j = 0; j < A.cols(); ++j) {
        const auto A_ij = w.alloc(A(i, j));
        w.compute(kernel::Zero{}, A_ij);
        add_tile_pairs(w, A_ij, {x.Q}, A(i, j).row, transposed(x.K), A(i, j).col, t.B);  // A = Q K^T
        w.compute(kernel::UnshiftedExp{x.scale}, A_ij);                                  // A <- exp(scale A)
        w.compute(kernel::AddRowSums{}, d_i, A_ij);
        w.store(A_ij, A(i, j));
      }
      w.compute(kernel::Log{}, d_i);
      w.store(d_i, lse(i));
    });
    m.each(O.rows(), [&](auto& w, index_t i) {
      const auto lse_i = w.load(lse(i));
      for (index_t k = 0; k < O.cols(); ++k) {
        const auto O_ik = w.alloc(O(i, k));
        w.compute(kernel::Zero{}, O_ik);
        for_tile_pairs(w, O_ik.shape(), {x.S}, O(i, k).row, {x.V}, O(i, k).col, t.B, [&](const auto& a, const auto& v) {
          w.compute(kernel::DivideAccumulate{}, O_ik, a, lse_i, v);  // O += diag(d)^-1 A V
        });
        w.store(O_ik, O(i, k));
      }
    });
  }
};

}  // namespace redblue::schedule
