#pragma once
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/parts/three_tiles.hpp"

namespace redblue::schedule {

/// Algorithm 6 of Li et al. 2024 (arXiv 2410.09397; its four phases are Algorithms 2 to 5), as printed: B =
/// floor(sqrt(M/4)), three square tiles resident, exp without a shift, A and f both written. For comparison only: 6R
/// moves half the words. It needs neither O nor lse: l is summed anew, and kept as its logarithm in fast memory.
///   reads  S: c(d) n_q d + c(n_q) d^2   A: c(n_k) n_q d + c(n_q) n_k d   f: n_q n_k
///          h: c(d_v) n_k d + c(n_k) d d_v   q: c(n_k) n_q d_v + c(n_q) n_k d_v   p: 4 n_q n_k
///          T: c(n_k) n_q d + c(d) n_q n_k   g: 2 c(d) n_k d                            c(n) = ceil(n/B)
///   writes n_q d + n_k d_v + n_k d + 4 n_q n_k + d^2   footprint 3 B^2 + B (B <= n_q, n_k, d, d_v)
/// Leading 12 n^2 d/sqrt(M) + 9 n^2 + 12 n d^2/sqrt(M).
struct Algorithm6Gradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "algorithm_6";
  static constexpr std::string_view idea = "the printed small-cache algorithm";
  static constexpr Traits traits{.stable = false, .keeps_scores = true, .printed = true};
  static constexpr bool one_core = true;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::A, SlowArray::f, SlowArray::h,
                                        SlowArray::q,   SlowArray::p, SlowArray::T};

  struct Tiling {
    index_t B = 1;  ///< side of every tile
    void tile_sizes(const auto& tile_size) { tile_size({"B"}, B); }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) { return {SquareSides(m, s).smallest()}; }
  /// The paper's B for the memory that is left (less where second buffers must fit, or multiples ask for it).
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const auto B = paper_side(s, limits, s.word(SlowArray::A),
                              [&](index_t b) { return limits.fit(footprint(s, {b}), prefetch(s, {b})); });
    if (!B) return std::nullopt;
    return Tiling{*B};
  }

  /// The products in the order of the phases; the second and the third stand between.
  static std::array<Product, 6> products(const GradientXOperands& x) {
    return {Product{x.S, {x.A1}, {x.X}},    {x.A, {x.S}, transposed(x.A2)}, {x.h, {x.A3}, {x.Y}},
            {x.q, {x.dO}, transposed(x.h)}, {x.T, transposed(x.A1), {x.p}}, {x.g, {x.T}, {x.A2}}};
  }
  static std::vector<Phase> phases(const Sizes& s, Tiling t) {
    const index_t a = std::min(t.B, s.n_q), b = std::min(t.B, s.n_k);
    const Words sums = s.tile(SlowArray::lse, a, 1), tile = s.tile(SlowArray::p, a, b);
    std::vector<Phase> phases{{sums + 3 * tile, 2 * tile}};  // p; f has one tile less
    for (const Product& x : products(GradientXOperands(s, 1)))
      phases.push_back(three_tile_phase(s, x.cost(), t.B, x.A.transposed, x.B.transposed));
    phases[2].footprint += sums;  // l beside the tiles of A
    return phases;
  }
  static Words footprint(const Sizes& s, Tiling t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, Tiling t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, Tiling t) {
    Io io = Io().read(SlowArray::A, s.nnz())
                .write(SlowArray::f, s.nnz())
                .read(SlowArray::f, 2 * s.nnz())
                .read(SlowArray::q, 2 * s.nnz())
                .write(SlowArray::p, s.nnz());
    for (const Product& x : products(GradientXOperands(s, 1))) io = io + x.io({t.B, t.B});
    return io;
  }
  static Words macs(const Sizes& s, Tiling) { return macs_of(products(GradientXOperands(s, 1))); }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling t) {
    three_tile_gemm(m, x.S, {x.A1}, {x.X}, t.B);  // phase 1: S = A1 X
    form_f(m, x, t.B);
    three_tile_gemm(m, x.h, {x.A3}, {x.Y}, t.B);            // phase 2: h = A3 Y
    three_tile_gemm(m, x.q, {x.dO}, transposed(x.h), t.B);  // q = dO h^T
    form_p(m, x, t.B);                                      // phase 3
    three_tile_gemm(m, x.T, transposed(x.A1), {x.p}, t.B);  // phase 4: T = A1^T p
    three_tile_gemm(m, x.g, {x.T}, {x.A2}, t.B);            // g = T A2
  }

  /// A = exp(S A2^T), l = A 1, f = diag(l)^-1 A
  template <Machine M>
  static void form_f(M& m, const GradientXOperands& x, index_t B) {
    const auto A = tiled(x.A, B, B), f = tiled(x.f, B, B);
    m.each(A.rows(), [&](auto& w, index_t i) {
      const auto l_i = w.alloc(SlowArray::lse, {A(i).shape.rows, 1});
      w.compute(kernel::Zero{}, l_i);
      for (index_t j = 0; j < A.cols(); ++j) {
        const auto A_ij = w.alloc(A(i, j));
        w.compute(kernel::Zero{}, A_ij);
        add_tile_pairs(w, A_ij, {x.S}, A(i, j).row, transposed(x.A2), A(i, j).col, B);
        w.compute(kernel::UnshiftedExp{x.scale}, A_ij);
        w.store(A_ij, A(i, j));
        w.compute(kernel::AddRowSums{}, l_i, A_ij);
      }
      w.compute(kernel::Log{}, l_i);
      for (index_t j = 0; j < A.cols(); ++j) {
        const auto f_ij = w.alloc(f(i, j)), A_ij = w.load(A(i, j));
        w.compute(kernel::Zero{}, f_ij);
        w.compute(kernel::AddNormalised{}, f_ij, A_ij, l_i);
        w.store(f_ij, f(i, j));
      }
    });
  }

  /// v = (f o q) 1, p = f o q - diag(v) f
  template <Machine M>
  static void form_p(M& m, const GradientXOperands& x, index_t B) {
    const auto f = tiled(x.f, B, B), q = tiled(x.q, B, B), p = tiled(x.p, B, B);
    m.each(p.rows(), [&](auto& w, index_t i) {
      const auto v_i = w.alloc(SlowArray::lse, {p(i).shape.rows, 1});
      w.compute(kernel::Zero{}, v_i);
      for (index_t j = 0; j < p.cols(); ++j) {
        const auto f_ij = w.load(f(i, j)), q_ij = w.load(q(i, j));
        w.compute(kernel::AddRowDots{}, v_i, f_ij, q_ij);
      }
      for (index_t j = 0; j < p.cols(); ++j) {
        const auto p_ij = w.alloc(p(i, j)), f_ij = w.load(f(i, j)), q_ij = w.load(q(i, j));
        w.compute(kernel::Zero{}, p_ij);
        w.compute(kernel::AddScoreGradient{x.scale}, p_ij, f_ij, q_ij, v_i);
        w.store(p_ij, p(i, j));
      }
    });
  }
};

}  // namespace redblue::schedule
