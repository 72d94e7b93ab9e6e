#pragma once
#include "redblue/schedules/gradient/rows.hpp"

namespace redblue::schedule {

/// 9R-d, for large caches, with queries, Y and g resident: S_i is formed once for a block of queries and h_j each time
/// keys pass, so neither S nor h is ever stored. Best where there are few blocks of queries.
///   T = ceil(n_q/Br): reads 2 n_q d + T d^2 + n_q (2 d_v + 1) + d d_v + 2 A(Br) d   writes d^2
/// Packed sequences share a block where they fit into it together (parts/sequences.hpp).
///   footprint d^2 + d d_v + Br (2 d + d_v + 2 + 2 bc) + bc (d + d_v)
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask T n_k. Leading 6 n^2 d^2/M for d_v = d.
struct OnTheFlyGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "9R-d";
  static constexpr std::string_view idea = "keeping queries and the gradient resident, projecting on the fly";
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::string_view restricted_bound(const Sizes& x) { return x.d_v <= x.d ? "g*" : ""; }
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = QueryPass;

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_tile(s.n_q, m.query), smallest_tile(s.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t bc = smallest_tile(s.n_k, limits.multiple.key), step = limits.multiple.query;
    const Words d = s.d;  // X is read once for each block
    const VisitPrices price{(limits.price.reading(SlowArray::A2) + limits.price.reading(SlowArray::A3)) * d,
                            limits.price.reading(SlowArray::X) * d * d};
    const index_t Br = choose_query_block(
        s, step, [&](index_t size) { return limits.fit(footprint(s, {size, bc}), prefetch(s, {size, bc})); }, price);
    if (Br == 0) return std::nullopt;
    return Tiling{Br, bc};
  }

  static Words footprint(const Sizes& s, Tiling t) {
    const auto block = [&](const Sizes& part, index_t rows, index_t own, index_t kappa) {
      const index_t keys = std::min(t.bc, kappa);
      const Words h_j = s.tile(SlowArray::h, keys, s.d_v), A2_j = s.tile(SlowArray::A2, keys, s.d);
      const Words visit = h_j + std::max(A2_j, s.word(SlowArray::A3));
      const Words dots = s.statistics() > 0 ? s.word(SlowArray::O) : Words(0);
      const Words U_i = s.tile(SlowArray::U, rows, s.d), S_i = s.tile(SlowArray::A1X, rows, s.d);
      return std::max({query_pass_rows(renamed(part, kGradientX), rows, own, t.bc) + std::max(visit, dots),
                       U_i + S_i + s.word(SlowArray::X), U_i + s.word(SlowArray::A1)});
    };
    return s.tile(SlowArray::Y, s.d, s.d_v) + s.tile(SlowArray::g, s.d, s.d) + shared_query_footprint(s, t.Br, block);
  }
  /// The next keys and the next streamed word.
  static Words prefetch(const Sizes& s, Tiling t) {
    return s.tile(SlowArray::A2, std::min(t.bc, s.n_k), s.d) + s.word(SlowArray::A3);
  }
  static Io io(const Sizes& s, Tiling t) {
    const Words T = count_of(shared_query_blocks(s, t.Br)), rows = s.n_q, d = s.d, visits = visited_keys(s, t.Br);
    return Io()
        .read(SlowArray::Y, d * s.d_v)
        .read(SlowArray::A1, 2 * rows * d)
        .read(SlowArray::X, T * d * d)
        .read(SlowArray::dO, rows * s.d_v)
        .read(SlowArray::O, rows * s.statistics() * s.d_v)
        .read(SlowArray::lse, rows * s.statistics())
        .read(SlowArray::A3, visits * d)
        .read(SlowArray::A2, visits * d)
        .write(SlowArray::g, d * d);
  }
  static Words macs(const Sizes& s, Tiling t) {
    return pairs_of_rows(s, t.Br) * (Words(2) * s.d + s.d_v) + visited_keys(s, t.Br) * s.d * s.d_v +
           2 * Words(s.n_q) * s.d * s.d;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling t) {
    const auto Y = m.load(x.Y.all()), G = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, G);
    for (const Shared& shared : shared_query_blocks(x.shape, t.Br))
      for (index_t i = 0; i < shared.blocks.count(); ++i) add_rows(m, x, t.bc, shared, shared.block(i), Y, G);
    m.store(G, x.g.all());
  }

  /// g += A1_i^T U_i, with U_i = SUM_j p_ij A2_j
  template <class M>
  static void add_rows(M& m, const GradientXOperands& x, index_t bc, const Shared& shared, Range I, const Tile<M>& Y,
                       const Tile<M>& G) {
    const Block A1_i = x.A1.rows(I);
    const auto U_i = m.alloc(x.U.array, A1_i.shape);
    m.load_into(U_i, A1_i);  // A1_i; U_i once S_i is formed from it
    {
      const auto S_i = m.alloc(x.S.array, A1_i.shape);
      m.compute(kernel::Zero{}, S_i);
      m.compute(kernel::Gemm{}, S_i, U_i, m.stream(x.X.all()));  // S = A1 X
      m.compute(kernel::Zero{}, U_i);
      const auto dO_i = m.load(x.dO.rows(I)), lse_i = m.load(x.lse.rows(I)), D_i = m.alloc(x.D.rows(I));
      pass_keys(m, x, bc, shared, I, U_i, S_i, dO_i, lse_i, D_i, [&](const GradientXOperands& part) {
        return [&](auto& w, Range J, const auto& step) {
          const auto h_j = w.alloc(part.h.rows(J));
          w.compute(kernel::Zero{}, h_j);
          w.compute(kernel::Gemm{}, h_j, w.stream(part.A3.rows(J)), Y);  // h = A3 Y
          const auto A2_j = w.load(part.A2.rows(J));
          step(A2_j, h_j);
        };
      });
    }
    m.compute(kernel::Gemm{true, false}, G, m.stream(A1_i), U_i);  // g += A1^T U
  }
};

}  // namespace redblue::schedule
