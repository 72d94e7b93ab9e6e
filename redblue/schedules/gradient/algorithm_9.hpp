#pragma once
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/gradient.hpp"

namespace redblue::schedule {

/// Algorithm 9 of Li et al. 2024 (arXiv 2410.09397; its phases are Algorithms 7 and 8), as printed: Br =
/// min(ceil(M/4d), d), Bc = ceil(M/4d), exp without a shift, l given (as its logarithm). For comparison only: with n/d
/// blocks of queries it moves 2 n^2 words however large M is, and more than M words are resident (docs/errata.md).
///   reads 6 n d + n + 2 ceil(n/Br) (n d + d^2)   writes 2 n d + d^2
///   footprint max(2 Br d + d b + Br b, d^2 + 4 Br d + 2 Br,
///                 d^2 + 3 Br d + 2 Br + 2 Bc d + max(3 Br Bc, Br Bc + d Bc))      b = min(Bc, d)
struct Algorithm9Gradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "algorithm_9";
  static constexpr std::string_view idea = "the printed large-cache algorithm";
  static constexpr Traits traits{.stable = false, .printed = true};
  static constexpr bool one_core = true;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::h};

  /// One loop goes over rows of A1 and A3, one over columns of X and Y.
  static std::optional<std::string_view> unsupported(const Sizes& s) {
    if (s.n_q != s.n_k) return "is printed for as many keys as queries";
    if (s.d != s.d_v) return "is printed for d_v = d";
    return std::nullopt;
  }

  struct Tiling {
    index_t Br = 1;  ///< rows of S, O, dO and A1 at a time
    index_t Bc = 1;  ///< rows of h and A2, columns of X and Y at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br"}, Br);
      tile_size({"Bc"}, Bc);
    }
  };

  static Tiling smallest(const Sizes&, const Multiples&) { return {1, 1}; }
  /// The tiles that the paper prints for M. They need more than M words.
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    if (unsupported(s) || limits.M < 1) return std::nullopt;
    const Words quarter = Words(4) * s.d, blocks = (limits.M + quarter - 1) / quarter;
    const index_t Bc = std::min(blocks, Words(std::max(s.n_k, s.d))).to_index();
    return Tiling{std::min(Bc, s.d), Bc};
  }

  static std::array<Phase, 3> phases(const Sizes& s, Tiling t) {
    const index_t Br = std::min(t.Br, s.n_q), Bc = std::min(t.Bc, s.n_k), b = std::min(t.Bc, s.d), d = s.d;
    const Words A1_i = s.tile(SlowArray::A1, Br, d), p = s.tile(SlowArray::p, Br, Bc);
    const Words X = s.tile(SlowArray::X, d, b), Y = s.tile(SlowArray::Y, d, b);
    const Words columns = std::max(X + s.tile(SlowArray::A1X, Br, b), Y + s.tile(SlowArray::h, Br, b));
    const Words rows = s.tile(SlowArray::g, d, d) + s.tile(SlowArray::A1X, Br, d) + s.tile(SlowArray::dO, Br, d) +
                       A1_i + 2 * s.tile(SlowArray::lse, Br, 1);
    const Words keys = s.tile(SlowArray::h, Bc, d) + s.tile(SlowArray::A2, Bc, d);
    return {Phase{A1_i + s.tile(SlowArray::A3, Br, d) + columns, std::max(X, Y)},
            Phase{rows + s.tile(SlowArray::O, Br, d), 0},
            Phase{rows + keys + p + std::max(2 * p, s.tile(SlowArray::T, d, Bc)), keys}};
  }
  static Words footprint(const Sizes& s, Tiling t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, Tiling t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, Tiling t) {
    const Words T = c(s.n_q, t.Br), nd = Words(s.n_q) * s.d, dd = Words(s.d) * s.d;
    return Io()
        .read(SlowArray::A1, 2 * nd)
        .read(SlowArray::A3, nd)
        .read(SlowArray::X, T * dd)
        .read(SlowArray::Y, T * dd)
        .write(SlowArray::A1X, nd)
        .write(SlowArray::h, nd)
        .read(SlowArray::A1X, nd)
        .read(SlowArray::O, nd)
        .read(SlowArray::dO, nd)
        .read(SlowArray::lse, s.n_q)
        .read(SlowArray::h, T * nd)
        .read(SlowArray::A2, T * nd)
        .write(SlowArray::g, dd);
  }
  static Words macs(const Sizes& s, Tiling t) {
    return s.d * (2 * Words(s.n_q) * s.d + 3 * s.nnz() + c(s.n_q, t.Br) * s.n_k * s.d);
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling t) {
    project(m, x, t);
    const auto S = tiled(x.S, t.Br), O = tiled(x.O, t.Br), dO = tiled(x.dO, t.Br), A1 = tiled(x.A1, t.Br),
               l = tiled(x.lse, t.Br), h = tiled(x.h, t.Bc), A2 = tiled(x.A2, t.Bc);
    const auto g = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, g);
    for (index_t i = 0; i < S.rows(); ++i) {
      const auto S_i = m.load(S(i)), dO_i = m.load(dO(i)), A1_i = m.load(A1(i)), l_i = m.load(l(i)),
                 v_i = m.alloc(l(i));
      {
        const auto O_i = m.load(O(i));
        m.compute(kernel::RowDots{}, v_i, dO_i, O_i);  // v = (dO o O) 1
      }
      for (index_t j = 0; j < h.rows(); ++j) {
        const auto h_j = m.load(h(j)), A2_j = m.load(A2(j)),
                   p = m.alloc(SlowArray::p, {S(i).shape.rows, h(j).shape.rows});
        {
          const auto q = m.alloc(SlowArray::q, p.shape()), f = m.alloc(SlowArray::f, p.shape());
          m.compute(kernel::Zero{}, q);
          m.compute(kernel::Gemm{false, true}, q, dO_i, h_j);  // q = dO h^T
          m.compute(kernel::Scores{x.scale}, p, S_i, A2_j);    // A = exp(S A2^T), where p will be
          m.compute(kernel::UnshiftedExp{}, p);
          m.compute(kernel::Zero{}, f);
          m.compute(kernel::AddNormalised{}, f, p, l_i);  // f = diag(l)^-1 A
          m.compute(kernel::Zero{}, p);
          m.compute(kernel::AddScoreGradient{x.scale}, p, f, q, v_i);  // p = f o q - diag(v) f
        }
        const auto T = m.alloc(SlowArray::T, {x.shape.d, p.shape().cols});
        m.compute(kernel::Zero{}, T);
        m.compute(kernel::Gemm{true, false}, T, A1_i, p);  // T = A1^T p
        m.compute(kernel::Gemm{}, g, T, A2_j);             // g += T A2
      }
    }
    m.store(g, x.g.all());
  }

  /// Phase 1: S = A1 X and h = A3 Y, a block of columns at a time.
  template <Machine M>
  static void project(M& m, const GradientXOperands& x, Tiling t) {
    const auto A1 = tiled(x.A1, t.Br), A3 = tiled(x.A3, t.Br);
    const auto X = tiled(x.X, x.shape.d, t.Bc), Y = tiled(x.Y, x.shape.d, t.Bc), S = tiled(x.S, t.Br, t.Bc),
               h = tiled(x.h, t.Br, t.Bc);
    m.each(S.rows(), [&]<class W>(W& w, index_t i) {
      const auto A1_i = w.load(A1(i)), A3_i = w.load(A3(i));
      const auto columns = [&](const Tile<W>& A_i, const Block& X_J, const Block& S_IJ) {
        const auto X_j = w.load(X_J), S_ij = w.alloc(S_IJ);
        w.compute(kernel::Zero{}, S_ij);
        w.compute(kernel::Gemm{}, S_ij, A_i, X_j);
        w.store(S_ij, S_IJ);
      };
      for (index_t j = 0; j < S.cols(); ++j) {
        columns(A1_i, X(0, j), S(i, j));
        columns(A3_i, Y(0, j), h(i, j));
      }
    });
  }
};

}  // namespace redblue::schedule
