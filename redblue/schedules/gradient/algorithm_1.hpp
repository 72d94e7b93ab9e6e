#pragma once
#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/operands/gradient.hpp"

namespace redblue::schedule {

/// Algorithm 1 of Li et al. 2024 (arXiv 2410.09397), no cache: every input is read once, everything formed from it
/// stays in fast memory. Meaningful only as the reference for M = infinity. Tiles leave in reverse order here, so f is
/// born below A, q below h, and p, formed beside f and q as printed, then moves to where f was.
///   reads n_q d + 2 n_k d + n_q d_v + d^2 + d d_v   writes d^2
///   footprint (n_q + n_k) d + max(2 N + max(n_q d + d^2, n_k d_v + d d_v + 1, (n_q + n_k) d_v), 3 N + n_q,
///             N + n_k d + d^2)                      N = n_q n_k
/// For n_q = n_k = n > d = d_v: max(2 n^2 + 4 n d, 3 n^2 + 2 n d + n), as printed.
struct Algorithm1Gradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "algorithm_1";
  static constexpr std::string_view idea = "the printed algorithm without a cache, everything resident";
  static constexpr Traits traits{.stable = false, .printed = true};
  static constexpr bool one_core = true;
  static constexpr std::array<SlowArray, 0> workspace{};

  /// It has no tile sizes to choose.
  struct Tiling {
    static void tile_sizes(const auto&) {}
  };

  static Tiling smallest(const Sizes&, const Multiples&) { return {}; }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    if (!limits.fit(footprint(s, {}), prefetch(s, {}))) return std::nullopt;
    return Tiling{};
  }

  static Words footprint(const Sizes& s, Tiling) {
    const index_t n_q = s.n_q, n_k = s.n_k, d = s.d, d_v = s.d_v;
    const Words f = s.tile(SlowArray::f, n_q, n_k), row = s.tile(SlowArray::lse, n_q, 1);
    const Words projected = s.tile(SlowArray::A1X, n_q, d) + s.tile(SlowArray::X, d, d);
    const Words values = s.tile(SlowArray::h, n_k, d_v) + std::max(s.tile(SlowArray::Y, d, d_v) + s.word(SlowArray::A3),
                                                                   s.tile(SlowArray::dO, n_q, d_v));
    const Words gradient = s.tile(SlowArray::T, d, n_k) + s.tile(SlowArray::g, d, d);
    return s.tile(SlowArray::A1, n_q, d) + s.tile(SlowArray::A2, n_k, d) + f +
           std::max({f + projected, f + values, 2 * f + row, gradient});
  }
  static Words prefetch(const Sizes&, Tiling) { return 0; }
  static Io io(const Sizes& s, Tiling) {
    const Words d = s.d;
    return Io()
        .read(SlowArray::A1, d * s.n_q)
        .read(SlowArray::A2, d * s.n_k)
        .read(SlowArray::X, d * d)
        .read(SlowArray::A3, d * s.n_k)
        .read(SlowArray::Y, d * s.d_v)
        .read(SlowArray::dO, Words(s.n_q) * s.d_v)
        .write(SlowArray::g, d * d);
  }
  static Words macs(const Sizes& s, Tiling) {
    const Words d = s.d;
    return d * d * s.n_q + s.nnz() * (2 * d + s.d_v) + d * s.n_k * s.d_v + d * d * s.n_k;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling) {
    const auto A1 = m.load(x.A1.all()), A2 = m.load(x.A2.all());
    const auto f = m.alloc(x.f.all());  // p in the end
    form_f(m, x, f, A1, A2);
    form_p(m, x, f);
    const auto T = m.alloc(x.T.all()), g = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, T);
    m.compute(kernel::Gemm{true, false}, T, A1, f);  // T = A1^T p
    m.compute(kernel::Zero{}, g);
    m.compute(kernel::Gemm{}, g, T, A2);  // g = T A2
    m.store(g, x.g.all());
  }

  /// A = exp(A1 X A2^T), l = A 1, f = diag(l)^-1 A
  template <class M>
  static void form_f(M& m, const GradientXOperands& x, const Tile<M>& f, const Tile<M>& A1, const Tile<M>& A2) {
    const auto A = m.alloc(x.A.all());
    {
      const auto S = m.alloc(x.S.all()), X = m.load(x.X.all());
      m.compute(kernel::Zero{}, S);
      m.compute(kernel::Gemm{}, S, A1, X);
      m.compute(kernel::Scores{x.scale}, A, S, A2);
    }
    m.compute(kernel::UnshiftedExp{}, A);
    const auto l = m.alloc(SlowArray::lse, {f.shape().rows, 1});
    m.compute(kernel::Zero{}, l);
    m.compute(kernel::AddRowSums{}, l, A);
    m.compute(kernel::Log{}, l);
    m.compute(kernel::Zero{}, f);
    m.compute(kernel::AddNormalised{}, f, A, l);
  }

  /// h = A3 Y, q = dO h^T, v = (f o q) 1; f <- p = f o q - diag(v) f
  template <class M>
  static void form_p(M& m, const GradientXOperands& x, const Tile<M>& f) {
    const auto q = m.alloc(x.q.all());
    {
      const auto h = m.alloc(x.h.all());
      m.compute(kernel::Zero{}, h);
      {
        const auto Y = m.load(x.Y.all());
        m.compute(kernel::Gemm{}, h, m.stream(x.A3.all()), Y);
      }
      const auto dO = m.load(x.dO.all());
      m.compute(kernel::Zero{}, q);
      m.compute(kernel::Gemm{false, true}, q, dO, h);
    }
    const auto p = m.alloc(x.p.all()), v = m.alloc(SlowArray::lse, {f.shape().rows, 1});
    m.compute(kernel::Zero{}, v);
    m.compute(kernel::AddRowDots{}, v, f, q);
    m.compute(kernel::Zero{}, p);
    m.compute(kernel::AddScoreGradient{x.scale}, p, f, q, v);
    m.compute(kernel::Copy{}, f, p);
  }
};

}  // namespace redblue::schedule
