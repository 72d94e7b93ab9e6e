#pragma once
#include "redblue/schedules/linear/state.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/gemm.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linear attention with the state Z = K^T V resident (linear_state.hpp): every word moves once, the trivial bound.
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint d d_v + max(bc d, br d_v) + 1
struct LinearForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linear";
  static constexpr std::string_view idea = "keeping the state K^T V resident";
  static constexpr Traits traits{.masks = true, .any_score = true, .only_score = Score::identity};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step (one under a mask)
    index_t bc = 1;  ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return smallest_if_it_fits<LinearForward>(x, limits);
  }

  static Words footprint(const Sizes& x, Tiling t) { return queries_phase(x, t).footprint; }
  /// The next keys and the next streamed word.
  static Words prefetch(const Sizes& x, Tiling t) { return queries_phase(x, t).prefetch; }
  static Phase queries_phase(const Sizes& x, Tiling t) {
    return queries_on_state_phase(x, SlowArray::O, SlowArray::Q, x.d_v, t.br, t.bc);
  }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling) { return (Words(x.n_q) + x.n_k) * x.d * x.d_v; }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    queries_on_state(m, x, x.O, x.Q, false, t.br, t.bc);  // O = scale Q Z
  }
};

/// Linear attention where the state does not fit: Z = K^T V and O = scale Q Z are products.
///   reads R_mm(d, n_k, d_v) + R_mm(n_q, d, d_v)   writes d d_v + n_q d_v   footprint the larger F_mm
struct LinearProductsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linear_products";
  static constexpr std::string_view idea = "two products with the state K^T V between them";
  static constexpr Traits traits{.keeps_scores = true, .any_score = true, .only_score = Score::identity};
  static constexpr std::array workspace{SlowArray::Z};

  struct Tiling {
    GemmTiling Z, O;
    void tile_sizes(const auto& tile_size) {
      tile_size({"Z.b1", &Sizes::d}, Z.b1);
      tile_size({"Z.b2", &Sizes::d_v}, Z.b2);
      tile_size({"O.b1", &Sizes::n_q}, O.b1);
      tile_size({"O.b2", &Sizes::d_v}, O.b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t f = smallest_tile(x.d_v, m.feature);
    return {{smallest_tile(x.d, m.feature), f}, {smallest_tile(x.n_q, m.query), f}};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto Z = state(x).choose(x, limits, s.feature, s.feature);
    const auto O = output(x).choose(x, limits, s.query, s.feature);
    if (!Z || !O) return std::nullopt;
    return Tiling{*Z, *O};
  }

  static GemmCost state(const Sizes& x) { return {SlowArray::Z, SlowArray::K, SlowArray::V, x.d, x.n_k, x.d_v}; }
  static GemmCost output(const Sizes& x) { return {SlowArray::O, SlowArray::Q, SlowArray::Z, x.n_q, x.d, x.d_v}; }
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    return {state(x).phase(x, t.Z), output(x).phase(x, t.O)};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) { return state(x).io(t.Z) + output(x).io(t.O); }
  static Words macs(const Sizes& x, Tiling) { return state(x).macs() + output(x).macs(); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    gemm(m, x.shape.fast, x.Z, transposed(x.K), {x.V}, t.Z);
    gemm(m, x.shape.fast, x.O, {x.Q}, {x.Z}, t.O, {},
         [&](auto& w, const auto& T) { w.compute(kernel::Scale{x.scale}, T); });
  }
};

}  // namespace redblue::schedule
