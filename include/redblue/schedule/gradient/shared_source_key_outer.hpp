#pragma once
#include "redblue/schedule/gradient/key_outer.hpp"

namespace redblue::schedule {

/// Shared source, A2 = A3 = A, with keys, X, Y and g resident. dU_i = dO_i Y^T is multiplied with the rows of A that
/// the scores need, so h is never formed. A3 is never read: it must hold the same numbers as A2.
///   T = ceil(n_k/Bc): reads 2 n_q d_v + d^2 + d d_v + n_k d + T n_q (d + d_v + 2)   writes n_q + d^2
///   footprint max(3, 2 d^2 + d d_v + Bc (d + 2 br) + br (3 d + 2))
/// Leading 2 n^2 d^2/M for d_v = d, the proved constant (docs/proofs/gradient.md).
struct SharedSourceKeyOuterGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "shared_source_key_outer";
  static constexpr std::string_view idea = "keeping rows that are key and value, X, Y and the gradient resident";
  static constexpr Traits traits{.any_score = true, .shared_source = true};
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    index_t Bc = 1;  ///< rows of A resident at a time
    index_t br = 1;  ///< queries per step
    void knobs(const auto& knob) {
      knob({"Bc", &Sizes::n_k}, Bc);
      knob({"br", &Sizes::n_q}, br);
    }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_tile(s.n_k, m.key), smallest_tile(s.n_q, m.query)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t br = smallest_tile(s.n_q, limits.multiple.query), step = limits.multiple.key;
    const index_t Bc = largest_tile(s.n_k, step, [&](index_t b) { return limits.fit(pass(s, {b, br})); });
    if (Bc == 0 || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{balanced(s.n_k, Bc, step), br};
  }

  /// X, g and Y; A_j and the tiles f and p; lse, D, dU, A1 and S of the arriving queries. Second buffers: the next
  /// queries and the next word of dO.
  static Phase pass(const Sizes& s, Tiling t) {
    const index_t Bc = std::min(t.Bc, s.n_k), br = std::min(t.br, s.n_q), d = s.d;
    const Words statistics = s.statistic(SlowArray::lse, br) + s.statistic(SlowArray::D, br);
    const Words A1_i = s.tile(SlowArray::A1, br, d), word = s.word(SlowArray::dO);
    return {s.tile(SlowArray::X, d, d) + s.tile(SlowArray::g, d, d) + s.tile(SlowArray::Y, d, s.d_v) +
                s.tile(SlowArray::A2, Bc, d) + 2 * s.tile(SlowArray::P, br, Bc) + statistics +
                s.tile(SlowArray::dU, br, d) + std::max(A1_i + s.tile(SlowArray::A1X, br, d), word),
            A1_i + statistics + word};
  }
  static Words footprint(const Sizes& s, Tiling t) { return footprint_of({output_dots_phase(s), pass(s, t)}); }
  static Words prefetch(const Sizes& s, Tiling t) { return prefetch_of({output_dots_phase(s), pass(s, t)}); }
  static Io io(const Sizes& s, Tiling t) {
    const Words T = c(s.n_k, t.Bc), d = s.d;
    return output_dots_io(s) + Io().read(SlowArray::X, d * d)
                                   .read(SlowArray::Y, d * s.d_v)
                                   .read(SlowArray::A2, d * s.n_k)
                                   .read(SlowArray::A1, T * s.n_q * d)
                                   .read(SlowArray::dO, T * s.n_q * s.d_v)
                                   .read(SlowArray::lse, T * s.row_statistics())
                                   .read(SlowArray::D, T * s.row_statistics())
                                   .write(SlowArray::g, d * d);
  }
  static Words macs(const Sizes& s, Tiling t) {
    const Words d = s.d;
    return s.N() * 3 * d + c(s.n_k, t.Bc) * s.n_q * d * (2 * d + s.d_v);
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
    const auto A = tiled(x.A2, t.Bc), A1 = tiled(x.A1, t.br), dO = tiled(x.dO, t.br), lse = tiled(x.lse, t.br),
               D = tiled(x.D, t.br);
    const auto X = m.load(x.X.all()), Y = m.load(x.Y.all()), G = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, G);
    for (index_t j = 0; j < A.rows(); ++j) {
      const auto A_j = m.load(A(j));
      const auto f = m.alloc(SlowArray::P, {std::min(t.br, x.shape.n_q), A(j).shape.rows}),
                 p = m.alloc(SlowArray::P, f.shape());
      for (index_t i = 0; i < A1.rows(); ++i) {
        const auto lse_i = m.load(lse(i)), D_i = m.load(D(i)), dU_i = m.alloc(SlowArray::dU, A1(i).shape);
        m.compute(kernel::Zero{}, dU_i);
        m.compute(kernel::Gemm{false, true}, dU_i, m.stream(dO(i)), Y);  // dU = dO Y^T
        const auto A1_i = m.load(A1(i));
        const index_t rows = A1(i).shape.rows;
        absorb_queries(m, x, X, G, A_j, f.rows(0, rows), p.rows(0, rows), A1_i, lse_i, D_i, [&](const Arg& q_ij) {
          m.compute(kernel::Gemm{false, true}, q_ij, dU_i, A_j);  // q = dU A^T
        });
      }
    }
    m.store(G, x.g.all());
  }
};

}  // namespace redblue::schedule
