#pragma once
#include "redblue/schedules/gradient/key_outer.hpp"

namespace redblue::schedule {

/// Shared source, A2 = A3 = A, with keys, X, Y and g resident. dU_i = dO_i Y^T is multiplied with the rows of A that
/// the scores need, so h is never formed. A3 is never read: it must hold the same numbers as A2.
///   reads 2 n_q d_v + d^2 + d d_v + n_k d + B(Bc) (d + d_v + 2)   writes n_q + d^2
///   footprint max(3, 2 d^2 + d d_v + Bc (d + 2 br) + br (3 d + 2))
/// B(Bc) = SUM_J rho_J: queries that see a block of keys; without a mask ceil(n_k/Bc) n_q.
/// Leading 2 n^2 d^2/M for d_v = d, the proved constant (docs/proofs/gradient.md).
struct SharedSourceKeyOuterGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "shared_source_key_outer";
  static constexpr std::string_view idea = "keeping rows that are key and value, X, Y and the gradient resident";
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true, .shared_source = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::array workspace{SlowArray::D};

  struct Tiling {
    index_t Bc = 1;  ///< rows of A resident at a time
    index_t br = 1;  ///< queries per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"br", &Sizes::n_q}, br);
    }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_tile(s.n_k, m.key), smallest_tile(s.n_q, m.query)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t br = smallest_tile(s.n_q, limits.multiple.query), step = limits.multiple.key;
    const index_t Bc = choose_key_block(s, step, [&](index_t b) { return limits.fit(pass(s, {b, br})); });
    if (Bc == 0 || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{Bc, br};
  }

  /// X, g and Y; A_j and the tiles f and p; lse, D, dU, A1 and S of the arriving queries. Second buffers: the next
  /// queries and the next word of dO.
  static Phase pass(const Sizes& s, Tiling t) {
    const index_t most = std::min(t.br, s.n_q), d = s.d;
    const auto statistics = [&](index_t rows) {
      return s.statistic(SlowArray::lse, rows) + s.statistic(SlowArray::D, rows);
    };
    const Words word = s.word(SlowArray::dO);
    const auto block = [&](const Sizes& part, index_t Bc, index_t rho) {
      const index_t br = std::min(t.br, part.n_q), rows = std::min(br, rho);
      return s.tile(SlowArray::A2, Bc, d) + 2 * s.tile(SlowArray::P, br, Bc) + statistics(rows) +
             s.tile(SlowArray::dU, rows, d) +
             std::max(s.tile(SlowArray::A1, rows, d) + s.tile(SlowArray::A1X, rows, d), word);
    };
    const Words blocks = most_of_parts(s, [&](const Sizes& part) {
      return key_blocks_footprint(part, t.Bc, [&](index_t Bc, index_t rho) { return block(part, Bc, rho); });
    });
    return {s.tile(SlowArray::X, d, d) + s.tile(SlowArray::g, d, d) + s.tile(SlowArray::Y, d, s.d_v) + blocks,
            s.tile(SlowArray::A1, most, d) + statistics(most) + word};
  }
  static Words footprint(const Sizes& s, Tiling t) { return footprint_of({output_dots_phase(s), pass(s, t)}); }
  static Words prefetch(const Sizes& s, Tiling t) { return prefetch_of({output_dots_phase(s), pass(s, t)}); }
  static Io io(const Sizes& s, Tiling t) {
    const Words visits = visited_rows(s, t.Bc), d = s.d;
    return sum_over_parts(s, output_dots_io) + Io().read(SlowArray::X, d * d)
                                                   .read(SlowArray::Y, d * s.d_v)
                                                   .read(SlowArray::A2, d * s.n_k)
                                                   .read(SlowArray::A1, visits * d)
                                                   .read(SlowArray::dO, visits * s.d_v)
                                                   .read(SlowArray::lse, visits * s.statistics())
                                                   .read(SlowArray::D, visits * s.statistics())
                                                   .write(SlowArray::g, d * d);
  }
  static Words macs(const Sizes& s, Tiling t) {
    const Words d = s.d;
    return pairs_of_keys(s, t.Bc) * 3 * d + visited_rows(s, t.Bc) * d * (2 * d + s.d_v);
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, Tiling t) {
    for_each_part(m, x, [&](auto& w, const GradientXOperands& part) {
      output_dots(w, part, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
    });
    const auto X = m.load(x.X.all()), Y = m.load(x.Y.all()), G = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, G);
    for_parts(x, [&](const GradientXOperands& part) { visit_queries(m, part, t, X, Y, G); });
    m.store(G, x.g.all());
  }

  /// G += A1^T p A of a part, block by block.
  template <class M>
  static void visit_queries(M& m, const GradientXOperands& x, Tiling t, const Tile<M>& X, const Tile<M>& Y,
                            const Tile<M>& G) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range J = blocks(j), seeing = pairs.rows_of(J);
      const auto A_j = m.load(x.A2.rows(J));
      const auto f = m.alloc(SlowArray::P, {std::min(t.br, x.shape.n_q), J.size()}),
                 p = m.alloc(SlowArray::P, f.shape());
      for (index_t i = seeing.begin; i < seeing.end; i += t.br) {
        const Range I{i, std::min(i + t.br, seeing.end)};
        const auto lse_i = m.load(x.lse.rows(I)), D_i = m.load(x.D.rows(I)),
                   dU_i = m.alloc(SlowArray::dU, x.A1.rows(I).shape);
        m.compute(kernel::Zero{}, dU_i);
        m.compute(kernel::Gemm{false, true}, dU_i, m.stream(x.dO.rows(I)), Y);  // dU = dO Y^T
        const auto A1_i = m.load(x.A1.rows(I));
        absorb_queries(m, x, X, G, A_j.arg(), i, J.begin, f.rows(0, I.size()), p.rows(0, I.size()), A1_i, lse_i, D_i,
                       [&](const Arg& q_ij) {
                         m.compute(kernel::Gemm{false, true}, q_ij, dU_i, A_j);  // q = dU A^T
                       });
      }
    }
  }
};

}  // namespace redblue::schedule
