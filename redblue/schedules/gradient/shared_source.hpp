#pragma once
#include "redblue/problem/operation.hpp"
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/passes/probabilities.hpp"
#include "redblue/schedules/passes/query_pass.hpp"

namespace redblue::schedule {

/// Shared source, A2 = A3 = A. With dU = dO Y^T, q = dO h^T = dU A^T needs the same row of A as the score, so one read
/// of the row serves both. A3 is never read: it must hold the same numbers as A2.
///   reads R_mm(n_q, d, d) + R_mm(n_q, d_v, d) + 2 n_q d_v + n_q (2 d + 2) + A(Br) d + R_mm(d, n_q, d)
///   writes 3 n_q d + n_q + d^2   footprint max(3, F_mm's, Br (3 d + 2 + 2 bc) + bc d)
/// Leading 3 n^2 d^2/M.
struct SharedSourceGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "shared_source";
  static constexpr std::string_view idea = "keeping queries resident, one row serving as key and value";
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true, .shared_source = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::dU, SlowArray::D, SlowArray::U};

  struct Tiling {
    std::array<GemmTiling, 3> products;  ///< S, dU, g
    QueryPass queries;
    void tile_sizes(const auto& tile_size) {
      auto& [S, dU, g] = products;
      queries.tile_sizes(tile_size);
      tile_size({"S.b1", &Sizes::n_q}, S.b1);
      tile_size({"S.b2", &Sizes::d}, S.b2);
      tile_size({"dU.b1", &Sizes::n_q}, dU.b1);
      tile_size({"dU.b2", &Sizes::d}, dU.b2);
      tile_size({"g.b1", &Sizes::d}, g.b1);
      tile_size({"g.b2", &Sizes::d}, g.b2);
    }
  };

  static std::array<Product, 3> products(const GradientXOperands& x) {
    const Product dU{x.dU, {x.dO}, transposed(x.Y), &Multiples::query, &Multiples::feature};
    return {query_projection(x), dU, gradient_product(x)};
  }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    return {smallest_of(products(GradientXOperands(s, 1)), m),
            {smallest_tile(s.n_q, m.query), smallest_tile(s.n_k, m.key)}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const index_t bc = smallest_tile(s.n_k, limits.multiple.key), step = limits.multiple.query;
    const index_t Br = choose_query_block(s, step, [&](index_t size) { return limits.fit(pass(s, {size, bc})); });
    const auto tiles = choose_all(s, products(GradientXOperands(s, 1)), limits);
    if (Br == 0 || !tiles || !limits.fit(output_dots_phase(s))) return std::nullopt;
    return Tiling{*tiles, {Br, bc}};
  }

  /// U, S, dU, lse, D and the tiles f and p of these queries.
  static Words row_tiles(const Sizes& s, index_t rows, index_t bc) {
    return s.tile(SlowArray::U, rows, s.d) + s.tile(SlowArray::A1X, rows, s.d) + s.tile(SlowArray::dU, rows, s.d) +
           s.statistic(SlowArray::lse, rows) + s.statistic(SlowArray::D, rows) +
           2 * s.tile(SlowArray::P, rows, std::min(bc, s.n_k));
  }
  /// Second buffers: the next rows of A.
  static Phase pass(const Sizes& s, QueryPass t) {
    const Words blocks = most_of_parts(s, [&](const Sizes& part) {
      return query_blocks_footprint(part, t.Br, [&](index_t rows, index_t kappa) {
        return row_tiles(part, rows, t.bc) + s.tile(SlowArray::A2, std::min(t.bc, kappa), s.d);
      });
    });
    return {blocks, s.tile(SlowArray::A2, std::min(t.bc, s.n_k), s.d)};
  }
  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    std::vector<Phase> phases{output_dots_phase(s), pass(s, t.queries)};
    add_phases(phases, s, products(GradientXOperands(s, 1)), t.products);
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const Words rows = s.n_q;
    return sum_over_parts(s, output_dots_io) + io_of(products(GradientXOperands(s, 1)), t.products) +
           Io().read(SlowArray::A1X, rows * s.d)
               .read(SlowArray::dU, rows * s.d)
               .read(SlowArray::lse, rows * s.statistics())
               .read(SlowArray::D, rows * s.statistics())
               .read(SlowArray::A2, visited_keys(s, t.queries.Br) * s.d)
               .write(SlowArray::U, rows * s.d);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    return macs_of(products(GradientXOperands(s, 1))) + pairs_of_rows(s, t.queries.Br) * s.d * 3;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const Tiling& t) {
    const auto [S_product, dU_product, g_product] = products(x);
    S_product.run(m, x.shape.fast, t.products[0]);   // S = A1 X
    dU_product.run(m, x.shape.fast, t.products[1]);  // dU = dO Y^T
    for_each_part(m, x, [&](auto& w, const GradientXOperands& part) {
      output_dots(w, part, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
      form_rows(w, part, t.queries);
    });
    g_product.run(m, x.shape.fast, t.products[2]);  // g = A1^T U
  }

  /// U = p A of a part.
  template <class M>
  static void form_rows(M& m, const GradientXOperands& x, const QueryPass& t) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto U_i = w.alloc(x.U.rows(I)), S_i = w.load(x.S.rows(I)), dU_i = w.load(x.dU.rows(I)),
                 lse_i = w.load(x.lse.rows(I)), D_i = w.load(x.D.rows(I));
      const auto pass_rows = [&](auto&, Range J, const auto& step) {
        const auto A_j = w.load(x.A2.rows(J));
        step(A_j, A_j);  // S A^T and dU A^T
      };
      w.compute(kernel::Zero{}, U_i);
      const QueryTiles tiles{I, U_i.arg(), S_i.arg(), dU_i.arg(), lse_i.arg(), D_i.arg()};
      query_pass(w, x, tiles, t.bc, pass_rows);  // U = p A
      w.store(U_i, x.U.rows(I));
    });
  }
};

}  // namespace redblue::schedule
