#pragma once
#include "redblue/schedules/gradient/rows.hpp"

namespace redblue::schedule {

/// Where a finished block of rows of U = p A2 goes.
enum class RowsGo {
  into_resident_g,  ///< 9R-a: g stays in fast memory during the pass
  into_slow_g,      ///< 9R-b: g is revisited in slow memory, once for each block
  out,              ///< 9R-c: U is written; g = A1^T U is a product of its own
};

/// 9R-a, 9R-b and 9R-c, for large caches, with queries resident: Algorithm 9 of Li et al. 2024 (arXiv 2410.09397) with
/// its two loops swapped, and p A2 summed before A1^T is applied.
///   R0 = R_mm(n_q, d, d) + R_mm(n_k, d, d_v) + n_q (d + 2 d_v + 1) + A(Br) (d + d_v)   T = ceil(n_q/Br)
///   W0 = n_q d + n_k d_v                    F0 = Br (2 d + d_v + 2 + 2 bc) + bc d + 1
///   a: reads R0 + n_q d                     writes W0 + d^2           footprint max(F_mm's, F0 + d^2)
///   b: reads R0 + n_q d + (T-1) d^2         writes W0 + T d^2         footprint max(F_mm's, F0)
///   c: reads R0 + R_mm(d, n_q, d)           writes W0 + n_q d + d^2   footprint max(F_mm's, F0)
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask T n_k. Leading 6 n^2 d^2/M.
template <RowsGo rows_go>
struct QueryOuterGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr bool a = rows_go == RowsGo::into_resident_g, b = rows_go == RowsGo::into_slow_g,
                        c = rows_go == RowsGo::out;
  static constexpr std::string_view name = a ? "9R-a" : b ? "9R-b" : "9R-c";
  static constexpr std::string_view idea = a   ? "keeping queries and the gradient resident"
                                           : b ? "keeping queries resident and revisiting the gradient"
                                               : "keeping queries resident and writing p A2";
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true, .rewrites_outputs = b};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::string_view restricted_bound(const Sizes&) { return "g*"; }
  static constexpr auto workspace = [] {
    if constexpr (c)
      return std::array{SlowArray::A1X, SlowArray::h, SlowArray::U};
    else
      return std::array{SlowArray::A1X, SlowArray::h};
  }();

  struct Tiling {
    GemmTiling S, h;
    QueryPass queries;
    GemmTiling g;  ///< 9R-c only
    void tile_sizes(const auto& tile_size) {
      queries.tile_sizes(tile_size);
      tile_size({"S.b1", &Sizes::n_q}, S.b1);
      tile_size({"S.b2", &Sizes::d}, S.b2);
      tile_size({"h.b1", &Sizes::n_k}, h.b1);
      tile_size({"h.b2", &Sizes::d_v}, h.b2);
      if (!c) return;
      tile_size({"g.b1", &Sizes::d}, g.b1);
      tile_size({"g.b2", &Sizes::d}, g.b2);
    }
  };

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const GradientXOperands x(s, 1);
    return {query_projection(x).smallest(m),
            value_projection(x).smallest(m),
            {smallest_tile(s.n_q, m.query), smallest_tile(s.n_k, m.key)},
            gradient_product(x).smallest(m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const GradientXOperands x(s, 1);
    const auto S = query_projection(x).choose(s, limits), h = value_projection(x).choose(s, limits),
               g = c ? gradient_product(x).choose(s, limits) : GemmTiling{};
    const auto queries = choose_query_pass(
        renamed(s, kGradientX), limits, [&](QueryPass t) { return pass(s, t); }, visit_prices(s, limits.price));
    if (!S || !h || !queries || !g) return std::nullopt;
    return Tiling{*S, *h, *queries, *g};
  }

  /// 9R-b revisits g once for each block.
  static VisitPrices visit_prices(const Sizes& s, const Prices& price) {
    const Words visit = price.reading(SlowArray::A2) * s.d + price.reading(SlowArray::h) * s.d_v;
    const Words g = Words(s.d) * s.d * (price.reading(SlowArray::g) + price.writing(SlowArray::g));
    return {visit, b ? g : Words(0)};
  }
  /// U_i is formed; then A1_i streams past it into g (9R-a), or is loaded beside it while g passes (9R-b).
  static Phase pass(const Sizes& s, QueryPass t) {
    Phase rows = query_pass_phase(renamed(s, kGradientX), t);
    const index_t Br = largest_block(shared_query_blocks(s, t.Br));
    const Words U_i = s.tile(SlowArray::U, Br, s.d), A1_i = s.tile(SlowArray::A1, Br, s.d);
    if (a) {
      rows.footprint = std::max(rows.footprint, U_i + s.word(SlowArray::A1)) + s.tile(SlowArray::g, s.d, s.d);
    } else if (b) {
      rows.footprint = std::max(rows.footprint, U_i + A1_i + s.word(SlowArray::g));
    }
    return rows;
  }
  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    std::vector<Phase> phases{query_projection(x).phase(s, t.S), value_projection(x).phase(s, t.h), pass(s, t.queries)};
    if (c) phases.push_back(gradient_product(x).phase(s, t.g));
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    const Words g = Words(s.d) * s.d;
    const Io io = query_projection(x).io(t.S) + value_projection(x).io(t.h) + sum_over_parts(s, [&](const Sizes& part) {
                    return renamed(query_pass_io(part, t.queries.Br), kProjected);
                  });
    if (c) return io + Io().write(SlowArray::U, Words(s.n_q) * s.d) + gradient_product(x).io(t.g);
    const Words visits = b ? count_of(shared_query_blocks(s, t.queries.Br)) : Words(1);
    return io + Io().read(SlowArray::A1, Words(s.n_q) * s.d)
                    .read(SlowArray::g, (visits - 1) * g)
                    .write(SlowArray::g, visits * g);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    return query_projection(x).macs() + value_projection(x).macs() +
           pairs_of_rows(s, t.queries.Br) * (Words(2) * s.d + s.d_v) + Words(s.n_q) * s.d * s.d;
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const Tiling& t) {
    query_projection(x).run(m, x.shape.fast, t.S);  // S = A1 X
    value_projection(x).run(m, x.shape.fast, t.h);  // h = A3 Y
    const std::vector<Shared> list = shared_query_blocks(x.shape, t.queries.Br);
    if constexpr (a) {
      const auto G = m.alloc(x.g.all());
      m.compute(kernel::Zero{}, G);
      for (const Shared& shared : list)
        for (index_t i = 0; i < shared.blocks.count(); ++i) {
          const Range I = shared.block(i);
          const auto U_i = m.alloc(x.U.rows(I));
          form_rows(m, x, t.queries.bc, shared, I, U_i);
          m.compute(kernel::Gemm{true, false}, G, m.stream(x.A1.rows(I)), U_i);  // g += A1^T U
        }
      m.store(G, x.g.all());
    } else if constexpr (b) {
      bool first = true;
      for (const Shared& shared : list)
        for (index_t i = 0; i < shared.blocks.count(); ++i) {
          const Range I = shared.block(i);
          const auto U_i = m.alloc(x.U.rows(I));
          form_rows(m, x, t.queries.bc, shared, I, U_i);
          const auto A1_i = m.load(x.A1.rows(I));
          m.update(kernel::GemmOver{true, false, first}, x.g.all(), A1_i, U_i);  // g += A1^T U
          first = false;
        }
    } else {
      write_rows(m, x, t.queries.bc, list);
      gradient_product(x).run(m, x.shape.fast, t.g);  // g = A1^T U
    }
  }

  /// U, block by block.
  template <class M>
  static void write_rows(M& m, const GradientXOperands& x, index_t bc, const std::vector<Shared>& list) {
    for_each_block(m, list, [&](auto& w, const Shared& shared, Range I) {
      const auto U_i = w.alloc(x.U.rows(I));
      form_rows(w, x, bc, shared, I, U_i);
      w.store(U_i, x.U.rows(I));
    });
  }

  /// U_i = SUM_j p_ij A2_j
  template <class W>
  static void form_rows(W& w, const GradientXOperands& x, index_t bc, const Shared& shared, Range I,
                        const Tile<W>& U_i) {
    w.compute(kernel::Zero{}, U_i);
    const auto S_i = w.load(x.S.rows(I)), dO_i = w.load(x.dO.rows(I)), lse_i = w.load(x.lse.rows(I)),
               D_i = w.alloc(x.D.rows(I));
    pass_keys(w, x, bc, shared, I, U_i, S_i, dO_i, lse_i, D_i,
              [](const GradientXOperands& part) { return keys_from_slow_memory(part); });
  }
};

}  // namespace redblue::schedule
