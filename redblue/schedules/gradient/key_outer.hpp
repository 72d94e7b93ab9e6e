#pragma once
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/parts/sequences.hpp"
#include "redblue/schedules/passes/probabilities.hpp"

namespace redblue::schedule {

/// Where a schedule with resident keys takes h = A3 Y from.
enum class Values {
  stored,  ///< 9R-e: a product of its own, read back block by block
  formed,  ///< 9R-f: h_j from A3_j while Y streams past
};

/// G += A1_i^T p_ij A2_j for a block of arriving queries; (i, j) is the place of f_ij and p_ij. S_i, then U_i in its
/// place, exist for this step only; form_q(p_ij) adds q = dO h^T to zeros.
template <class W, class FormQ>
void absorb_queries(W& w, const GradientXOperands& x, const Tile<W>& X, const Tile<W>& G, const Arg& A2_j, index_t i,
                    index_t j, const Arg& f_ij, const Arg& p_ij, const Tile<W>& A1_i, const Tile<W>& lse_i,
                    const Tile<W>& D_i, const FormQ& form_q) {
  const Place place = x.shape.place(i, j);
  const auto S_i = w.alloc(x.S.array, A1_i.shape());
  w.compute(kernel::Zero{}, S_i);
  w.compute(kernel::Gemm{}, S_i, A1_i, X);  // S = A1 X
  w.compute(kernel::Scores{x.scale, place}, f_ij, S_i, A2_j);
  w.compute(kernel::Weights{x.shape.score}, f_ij, lse_i);  // f = exp(scale S A2^T - lse)
  w.compute(kernel::Zero{}, p_ij);
  form_q(p_ij);
  w.compute(kernel::ScoreGradient{x.shape.score, x.scale, place}, p_ij, f_ij, D_i);  // p = scale f o (q - D)
  w.compute(kernel::Zero{}, S_i);
  w.compute(kernel::Gemm{}, S_i, p_ij, A2_j);          // U = p A2, where S was
  w.compute(kernel::Gemm{true, false}, G, A1_i, S_i);  // g += A1^T U
}

/// 9R-e and 9R-f, for large caches, with keys, X and g resident: the rows S_i and U_i exist for one step only and never
/// leave fast memory. Optimal including the constant for d^2 << M << n d.
///   e: reads R_mm(n_k, d, d_v) + 2 n_q d_v + d^2 + n_k (d + d_v) + B(Bc) (d + d_v + 2)   writes n_k d_v + n_q + d^2
///   f: reads 2 n_q d_v + d^2 + 2 n_k d + ceil(n_k/Bc) d d_v + B(Bc) (d + d_v + 2)        writes n_q + d^2
/// B(Bc) = SUM_J rho_J: queries that see a block of keys; without a mask ceil(n_k/Bc) n_q. Packed sequences share a
/// block where they fit into it together (parts/sequences.hpp).
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
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
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
    void tile_sizes(const auto& tile_size) {
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"br", &Sizes::n_q}, br);
      if (!stored) return;
      tile_size({"h.b1", &Sizes::n_k}, h.b1);
      tile_size({"h.b2", &Sizes::d_v}, h.b2);
    }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_tile(s.n_k, m.key), smallest_tile(s.n_q, m.query),
            value_projection(GradientXOperands(s, 1)).smallest(m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t br = smallest_tile(s.n_q, limits.multiple.query), step = limits.multiple.key;
    const VisitPrices price{
        limits.price.reading(SlowArray::A1) * s.d + limits.price.reading(SlowArray::dO) * s.d_v + 2 * s.statistics(),
        stored ? Words(0) : limits.price.reading(SlowArray::Y) * s.d * s.d_v};
    const index_t Bc = choose_key_block(s, step, [&](index_t b) { return limits.fit(pass(s, {b, br, {}})); }, price);
    const auto h = stored ? value_projection(GradientXOperands(s, 1)).choose(s, limits) : GemmTiling{};
    if (Bc == 0 || !h || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{Bc, br, *h};
  }

  /// X and g; h_j, A2_j, the tiles p and q; lse, D, A1 and S of the arriving queries; one streamed word. Second
  /// buffers: the next queries and the next word.
  static Phase pass(const Sizes& s, const Tiling& t) {
    const index_t most = std::min(t.br, s.n_q), d = s.d;
    const auto arriving = [&](index_t rows) {
      return s.tile(SlowArray::A1, rows, d) + s.statistic(SlowArray::lse, rows) + s.statistic(SlowArray::D, rows) +
             s.word(SlowArray::dO);
    };
    const auto block = [&](const Sizes& part, index_t Bc, index_t own, index_t rho) {
      const index_t br = std::min(t.br, part.n_q), rows = std::min(br, rho);
      const Words visit = s.tile(SlowArray::A2, Bc, d) + 2 * s.tile(SlowArray::P, br, own) +
                          s.tile(SlowArray::A1X, rows, d) + arriving(rows);
      const Words forming = stored ? Words(0) : s.tile(SlowArray::A3, Bc, d) + s.word(SlowArray::Y);
      return s.tile(SlowArray::h, Bc, s.d_v) + std::max(visit, forming);
    };
    return {s.tile(SlowArray::X, d, d) + s.tile(SlowArray::g, d, d) + shared_key_footprint(s, t.Bc, block),
            arriving(most)};
  }
  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    std::vector<Phase> phases{output_dots_phase(s), pass(s, t)};
    if (stored) phases.push_back(value_projection(GradientXOperands(s, 1)).phase(s, t.h));
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const Words keys = s.n_k, visits = visited_rows(s, t.Bc), d = s.d;
    Io io = sum_over_parts(s, output_dots_io) + Io().read(SlowArray::X, d * d)
                                                    .read(SlowArray::A2, d * keys)
                                                    .read(SlowArray::A1, visits * d)
                                                    .read(SlowArray::dO, visits * s.d_v)
                                                    .read(SlowArray::lse, visits * s.statistics())
                                                    .read(SlowArray::D, visits * s.statistics())
                                                    .write(SlowArray::g, d * d);
    if (stored) return io.read(SlowArray::h, keys * s.d_v) + value_projection(GradientXOperands(s, 1)).io(t.h);
    return io.read(SlowArray::A3, d * keys).read(SlowArray::Y, count_of(shared_key_blocks(s, t.Bc)) * d * s.d_v);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    return Words(s.n_k) * s.d * s.d_v + pairs_of_keys(s, t.Bc) * (Words(2) * s.d + s.d_v) +
           2 * visited_rows(s, t.Bc) * s.d * s.d;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const Tiling& t) {
    if constexpr (stored) value_projection(x).run(m, x.shape.fast, t.h);  // h = A3 Y
    for_each_part(m, x, [&](auto& w, const GradientXOperands& part) {
      output_dots(w, part, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
    });
    const auto X = m.load(x.X.all()), G = m.alloc(x.g.all());
    m.compute(kernel::Zero{}, G);
    for (const Shared& shared : shared_key_blocks(x.shape, t.Bc))
      for (index_t j = 0; j < shared.blocks.count(); ++j) {
        const Range J = shared.block(j);
        if constexpr (stored) {
          const auto h_j = m.load(x.h.rows(J));
          visit_parts(m, x, t.br, X, G, h_j, shared, J);
        } else {
          const auto h_j = m.alloc(x.h.rows(J));
          m.compute(kernel::Zero{}, h_j);
          {
            const auto A3_j = m.load(x.A3.rows(J));
            m.compute(kernel::Gemm{}, h_j, A3_j, m.stream(x.Y.all()));  // h = A3 Y
          }
          visit_parts(m, x, t.br, X, G, h_j, shared, J);
        }
      }
    m.store(G, x.g.all());
  }

  /// The queries of each part that has keys in the block.
  template <class W>
  static void visit_parts(W& w, const GradientXOperands& x, index_t br, const Tile<W>& X, const Tile<W>& G,
                          const Tile<W>& h_j, const Shared& shared, Range J) {
    const auto A2_j = w.load(x.A2.rows(J));
    shared.for_parts(J, [&](const Sizes& part, Range own, Range in_block) {
      visit_queries(w, GradientXOperands(part, x.scale, x.instance()), br, X, G, h_j.arg().rows(in_block),
                    A2_j.arg().rows(in_block), own);
    });
  }

  /// G += SUM_i A1_i^T p_ij A2_j
  template <class W>
  static void visit_queries(W& w, const GradientXOperands& x, index_t br, const Tile<W>& X, const Tile<W>& G,
                            const Arg& h_j, const Arg& A2_j, Range J) {
    const auto f = w.alloc(SlowArray::P, {std::min(br, x.shape.n_q), J.size()}), p = w.alloc(SlowArray::P, f.shape());
    const Range seeing = x.shape.pairs().rows_of(J);
    for (index_t i = seeing.begin; i < seeing.end; i += br) {
      const Range I{i, std::min(i + br, seeing.end)};
      const auto lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I)), A1_i = w.load(x.A1.rows(I));
      absorb_queries(w, x, X, G, A2_j, i, J.begin, f.rows(0, I.size()), p.rows(0, I.size()), A1_i, lse_i, D_i,
                     [&](const Arg& q_ij) {
                       w.compute(kernel::Gemm{false, true}, q_ij, w.stream(x.dO.rows(I)), h_j);  // q = dO h^T
                     });
    }
  }
};

}  // namespace redblue::schedule
