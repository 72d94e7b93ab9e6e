#pragma once
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/parts/sequences.hpp"
#include "redblue/schedules/passes/probabilities.hpp"

namespace redblue::schedule {

/// 6R, for small caches: Algorithm 6 of Li et al. 2024 (arXiv 2410.09397) with one resident tile instead of three, f
/// written once and p over it, and D formed from O. It has half the constant, and is stable because lse comes from the
/// forward pass.
///   reads R_mm(n_q, d, d) + R_mm(n_k, d, d_v) + 2 n_q d_v + 2 n_q + Rs(d; tP) + Rs(d_v; tp) + nnz
///         + R_mm(n_q, n_k, d) + R_mm(d, n_q, d)                               Rs: score_phase.hpp, R_mm: gemm.hpp
///   writes n_q d + n_k d_v + n_q + 2 nnz + n_q d + d^2
///   footprint the largest of 3 and those of the six phases
/// Leading 6 n^2 d/sqrt(M) + 3 n^2 + 6 n d^2/sqrt(M) for M <= d^2/4.
struct SmallCacheGradient : Defaults {
  using Operands = GradientXOperands;
  static constexpr std::string_view name = "6R";
  static constexpr std::string_view idea = "materialising probabilities, then p over them";
  static constexpr Traits traits{.keeps_scores = true, .masks = true, .hides = true, .any_score = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::h, SlowArray::D, SlowArray::P, SlowArray::U};
  static constexpr std::string_view restricted_bound(const Sizes&) { return "g*"; }

  struct Tiling {
    GemmTiling S, h;
    ScoreTiling f, p;
    GemmTiling U, g;
    void tile_sizes(const auto& tile_size) {
      tile_size({"S.b1", &Sizes::n_q}, S.b1);
      tile_size({"S.b2", &Sizes::d}, S.b2);
      tile_size({"h.b1", &Sizes::n_k}, h.b1);
      tile_size({"h.b2", &Sizes::d_v}, h.b2);
      tile_size({"f.panel", nullptr, 0, 1}, f.panel);
      tile_size({"f.a", &Sizes::n_q}, f.a);
      tile_size({"f.b", &Sizes::n_k}, f.b);
      tile_size({"p.panel", nullptr, 0, 1}, p.panel);
      tile_size({"p.a", &Sizes::n_q}, p.a);
      tile_size({"p.b", &Sizes::n_k}, p.b);
      tile_size({"U.b1", &Sizes::n_q}, U.b1);
      tile_size({"U.b2", &Sizes::d}, U.b2);
      tile_size({"g.b1", &Sizes::d}, g.b1);
      tile_size({"g.b2", &Sizes::d}, g.b2);
    }
  };

  /// U = p A2, p having taken the place of f.
  static Product rows_product(const GradientXOperands& x) {
    return {x.U, {x.P}, {x.A2}, &Multiples::query, &Multiples::feature, Entries::of_pairs(x.shape)};
  }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const GradientXOperands x(s, 1);
    const ScoreTiling tile{false, smallest_tile(s.n_q, m.query), smallest_tile(s.n_k, m.key)};
    return {query_projection(x).smallest(m), value_projection(x).smallest(m), tile, tile,
            rows_product(x).smallest(m),     gradient_product(x).smallest(m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const Sizes part = typical_part(s);
    const GradientXOperands x(s, 1), of_part(part, 1);
    const auto S = query_projection(x).choose(s, limits), h = value_projection(x).choose(s, limits),
               g = gradient_product(x).choose(s, limits);
    auto f = probabilities_cost(part, SlowArray::A1X, SlowArray::A2).choose(part, limits);
    auto p = score_gradients_cost(part, SlowArray::h).choose(part, limits);
    auto U = rows_product(of_part).choose(part, limits);
    if (!S || !h || !f || !p || !U || !g || !limits.fit(output_dots_phase(s))) return std::nullopt;
    for (ScoreTiling* tile : {&*f, &*p}) {
      tile->a = spanning(tile->a, part.n_q, s.n_q);
      tile->b = spanning(tile->b, part.n_k, s.n_k);
    }
    U->b1 = spanning(U->b1, part.n_q, s.n_q);
    return Tiling{*S, *h, *f, *p, *U, *g};
  }

  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    std::vector<Phase> phases{query_projection(x).phase(s, t.S), value_projection(x).phase(s, t.h),
                              output_dots_phase(s), gradient_product(x).phase(s, t.g)};
    for (const Sizes& part : sequences_of(s)) {
      phases.push_back(probabilities_cost(part, SlowArray::A1X, SlowArray::A2).phase(part, t.f));
      phases.push_back(score_gradients_cost(part, SlowArray::h).phase(part, t.p));
      phases.push_back(rows_product(GradientXOperands(part, 1)).phase(part, t.U));
    }
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    return query_projection(x).io(t.S) + value_projection(x).io(t.h) +
           sum_over_parts(s, [&](const Sizes& part) { return io_of_part(part, t); }) + gradient_product(x).io(t.g);
  }
  static Io io_of_part(const Sizes& part, const Tiling& t) {
    return output_dots_io(part) + probabilities_io(part, SlowArray::A1X, SlowArray::A2, t.f) +
           score_gradients_io(part, SlowArray::h, t.p) + rows_product(GradientXOperands(part, 1)).io(t.U);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const GradientXOperands x(s, 1);
    return query_projection(x).macs() + value_projection(x).macs() + gradient_product(x).macs() +
           sum_over_parts(s, [&](const Sizes& part) {
             return rows_product(GradientXOperands(part, 1)).macs() +
                    probabilities_cost(part, SlowArray::A1X, SlowArray::A2).macs(part, t.f) +
                    score_gradients_cost(part, SlowArray::h).macs(part, t.p);
           });
  }

  template <Machine M>
  static void run(M& m, const GradientXOperands& x, const Tiling& t) {
    query_projection(x).run(m, x.shape.fast, t.S);  // S = A1 X
    value_projection(x).run(m, x.shape.fast, t.h);  // h = A3 Y
    for_each_part(m, x, [&](auto& w, const GradientXOperands& part) {
      output_dots(w, part, [&](const Sizes& s) { return footprint(s, t); });  // D = rowsum(dO o O)
      probabilities(w, part, t.f);                                            // P = exp(scale S A2^T - lse)
      score_gradients(w, part, t.p);                                          // P <- p = scale P o (dO h^T - D)
      rows_product(part).run(w, x.shape.fast, t.U);                           // U = p A2
    });
    gradient_product(x).run(m, x.shape.fast, t.g);  // g = A1^T U
  }
};

}  // namespace redblue::schedule
