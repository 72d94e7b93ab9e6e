#pragma once
#include "redblue/schedule/gradient/operands.hpp"
#include "redblue/schedule/parts/probabilities.hpp"

namespace redblue::schedule {

/// Where a schedule with resident keys takes h = A3 Y from.
enum class Values {
  stored,  ///< 9R-e: a product of its own, read back block by block
  formed,  ///< 9R-f: h_j from A3_j while Y streams past
};

/// G += A1_i^T p_ij A2_j for a block of arriving queries. S_i, then U_i in its place, exist for this step only;
/// form_q(p_ij) adds q = dO h^T to zeros.
template <class W, class FormQ>
void absorb_queries(W& w, const GradientXOperands& x, const Tile<W>& X, const Tile<W>& G, const Tile<W>& A2_j,
                    const Arg& f_ij, const Arg& p_ij, const Tile<W>& A1_i, const Tile<W>& lse_i, const Tile<W>& D_i,
                    const FormQ& form_q) {
  const auto S_i = w.alloc(x.S.array, A1_i.shape());
  w.compute(kernel::Zero{}, S_i);
  w.compute(kernel::Gemm{}, S_i, A1_i, X);  // S = A1 X
  w.compute(kernel::Scores{x.scale}, f_ij, S_i, A2_j);
  w.compute(kernel::Weights{x.shape.score}, f_ij, lse_i);  // f = exp(scale S A2^T - lse)
  w.compute(kernel::Zero{}, p_ij);
  form_q(p_ij);
  w.compute(kernel::ScoreGradient{x.shape.score, x.scale}, p_ij, f_ij, D_i);  // p = scale f o (q - D)
  w.compute(kernel::Zero{}, S_i);
  w.compute(kernel::Gemm{}, S_i, p_ij, A2_j);          // U = p A2, where S was
  w.compute(kernel::Gemm{true, false}, G, A1_i, S_i);  // g += A1^T U
}

/// 9R-e and 9R-f, for large caches, with keys, X and g resident: the rows S_i and U_i exist for one step only and never
/// leave fast memory. Optimal including the constant for d^2 << M << n d.
///   T = ceil(n_k/Bc)
///   e: reads R_mm(n_k, d, d_v) + 2 n_q d_v + d^2 + n_k (d + d_v) + T n_q (d + d_v + 2)   writes n_k d_v + n_q + d^2
///   f: reads 2 n_q d_v + d^2 + 2 n_k d + T d d_v + T n_q (d + d_v + 2)                   writes n_q + d^2
///   footprint max(3, e: F_mm, 2 d^2 + Bc (d + d_v + 2 br) + br (2 d + 2) + 1)
/// Leading 4 n^2 d^2/(M - 2 d^2).
template <Values values>
struct KeyOuterGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr bool stored = values == Values::stored;
  static constexpr std::string_view name = stored ? "9R-e" : "9R-f";
  static constexpr std::string_view idea = stored
                                               ? "keeping keys, values, X and the gradient resident"
                                               : "keeping keys, values formed on the fly, X and the gradient resident";
  static constexpr Traits traits{.any_score = true};
  static constexpr auto workspace = [] {
    if constexpr (stored)
      return std::array{SlowArray::h, SlowArray::D};
    else
      return std::array{SlowArray::D};
  }();

  struct Tiling {
    index_t Bc = 1;  ///< keys and values resident at a time
    index_t br = 1;  ///< queries per step
    GemmTiling h;    ///< 9R-e only
    void knobs(const auto& knob) {
      knob({"Bc", &Sizes::n_k}, Bc);
      knob({"br", &Sizes::n_q}, br);
      if (!stored) return;
      knob({"h.b1", &Sizes::n_k}, h.b1);
      knob({"h.b2", &Sizes::d_v}, h.b2);
    }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_tile(s.n_k, m.key), smallest_tile(s.n_q, m.query),
            value_projection(GradientXOperands(s, 1)).smallest(m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t br = smallest_tile(s.n_q, limits.multiple.query), step = limits.multiple.key;
    const index_t Bc = largest_tile(s.n_k, step, [&](index_t b) { return limits.fit(pass(s, {b, br, {}})); });
    const auto h = stored ? value_projection(GradientXOperands(s, 1)).choose(s, limits) : GemmTiling{};
    if (Bc == 0 || !h || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{balanced(s.n_k, Bc, step), br, *h};
  }

  /// X and g; h_j, A2_j, the tiles p and q; lse, D, A1 and S of the arriving queries; one streamed word. Second
  /// buffers: the next queries and the next word.
  static Phase pass(const Sizes& s, const Tiling& t) {
    const index_t Bc = std::min(t.Bc, s.n_k), br = std::min(t.br, s.n_q), d = s.d;
    const Words arriving = s.tile(SlowArray::A1, br, d) + s.statistic(SlowArray::lse, br) +
                           s.statistic(SlowArray::D, br) + s.word(SlowArray::dO);
    const Words visit =
        s.tile(SlowArray::A2, Bc, d) + 2 * s.tile(SlowArray::P, br, Bc) + s.tile(SlowArray::A1X, br, d) + arriving;
    const Words forming = stored ? Words(0) : s.tile(SlowArray::A3, Bc, d) + s.word(SlowArray::Y);
    return {s.tile(SlowArray::X, d, d) + s.tile(SlowArray::g, d, d) + s.tile(SlowArray::h, Bc, s.d_v) +
                std::max(visit, forming),
            arriving};
  }
  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    std::vector<Phase> phases{output_dots_phase(s), pass(s, t)};
    if (stored) phases.push_back(value_projection(GradientXOperands(s, 1)).phase(s, t.h));
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const Words T = c(s.n_k, t.Bc), d = s.d;
    Io io = output_dots_io(s) + Io().read(SlowArray::X, d * d)
                                    .read(SlowArray::A2, d * s.n_k)
                                    .read(SlowArray::A1, T * s.n_q * d)
                                    .read(SlowArray::dO, T * s.n_q * s.d_v)
                                    .read(SlowArray::lse, T * s.row_statistics())
                                    .read(SlowArray::D, T * s.row_statistics())
                                    .write(SlowArray::g, d * d);
    if (stored) return io.read(SlowArray::h, Words(s.n_k) * s.d_v) + value_projection(GradientXOperands(s, 1)).io(t.h);
    return io.read(SlowArray::A3, d * s.n_k).read(SlowArray::Y, T * d * s.d_v);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    return value_projection(GradientXOperands(s, 1)).macs() + s.N() * (Words(2) * s.d + s.d_v) +
           2 * c(s.n_k, t.Bc) * s.n_q * s.d * s.d;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const Tiling& t) {
    if constexpr (stored) value_projection(x).run(m, x.shape.fast, t.h);  // h = A3 Y
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });   // D = rowsum(dO o O)
    const auto h = tiled(x.h, t.Bc), A3 = tiled(x.A3, t.Bc), A2 = tiled(x.A2, t.Bc);
    const auto X = m.load(x.X.all()), G = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, G);
    for (index_t j = 0; j < A2.rows(); ++j) {
      if constexpr (stored) {
        const auto h_j = m.load(h(j));
        visit_queries(m, x, t, X, G, h_j, A2(j));
      } else {
        const auto h_j = m.alloc(h(j));
        m.compute(kernel::Zero{}, h_j);
        {
          const auto A3_j = m.load(A3(j));
          m.compute(kernel::Gemm{}, h_j, A3_j, m.stream(x.Y.all()));  // h = A3 Y
        }
        visit_queries(m, x, t, X, G, h_j, A2(j));
      }
    }
    m.store(G, x.g.all());
  }

  /// G += SUM_i A1_i^T p_ij A2_j
  template <class W>
  static void visit_queries(W& w, const GradientXOperands& x, const Tiling& t, const Tile<W>& X, const Tile<W>& G,
                            const Tile<W>& h_j, const Block& A2_J) {
    const auto lse = tiled(x.lse, t.br), D = tiled(x.D, t.br), A1 = tiled(x.A1, t.br), dO = tiled(x.dO, t.br);
    const auto A2_j = w.load(A2_J);
    const auto f = w.alloc(SlowArray::P, {std::min(t.br, x.shape.n_q), A2_J.shape.rows}),
               p = w.alloc(SlowArray::P, f.shape());
    for (index_t i = 0; i < A1.rows(); ++i) {
      const auto lse_i = w.load(lse(i)), D_i = w.load(D(i)), A1_i = w.load(A1(i));
      const index_t rows = A1(i).shape.rows;
      absorb_queries(w, x, X, G, A2_j, f.rows(0, rows), p.rows(0, rows), A1_i, lse_i, D_i, [&](const Arg& q_ij) {
        w.compute(kernel::Gemm{false, true}, q_ij, w.stream(dO(i)), h_j);  // q = dO h^T
      });
    }
  }
};

}  // namespace redblue::schedule
