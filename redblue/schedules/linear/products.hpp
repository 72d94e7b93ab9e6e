#pragma once
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/parts/projections.hpp"

namespace redblue::schedule {

/// Gradients of linear attention where no state fits: five products.
///   Z = K^T V, dQ = scale dO Z^T, G = Q^T dO, dK = scale V G^T, dV = scale K G
struct LinearProductsBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "linear_products";
  static constexpr std::string_view idea = "five products with the states between them";
  static constexpr Traits traits{.keeps_scores = true, .any_score = true, .only_score = Score::identity};
  static constexpr std::array workspace{SlowArray::Z, SlowArray::G};

  static std::array<Product, 5> products(const BackwardOperands& x) {
    const auto query = &Multiples::query, key = &Multiples::key, feature = &Multiples::feature;
    return {Product{x.Z, transposed(x.K), {x.V}, feature, feature},
            Product{x.dQ, {x.dO}, transposed(x.Z), query, feature},
            Product{x.G, transposed(x.Q), {x.dO}, feature, feature},
            Product{x.dK, {x.V}, transposed(x.G), key, feature}, Product{x.dV, {x.K}, {x.G}, key, feature}};
  }

  struct Tiling {
    std::array<GemmTiling, 5> tiles;
    void tile_sizes(const auto& tile_size) {
      tile_size({"Z.b1", &Sizes::d}, tiles[0].b1);
      tile_size({"Z.b2", &Sizes::d_v}, tiles[0].b2);
      tile_size({"dQ.b1", &Sizes::n_q}, tiles[1].b1);
      tile_size({"dQ.b2", &Sizes::d}, tiles[1].b2);
      tile_size({"G.b1", &Sizes::d}, tiles[2].b1);
      tile_size({"G.b2", &Sizes::d_v}, tiles[2].b2);
      tile_size({"dK.b1", &Sizes::n_k}, tiles[3].b1);
      tile_size({"dK.b2", &Sizes::d}, tiles[3].b2);
      tile_size({"dV.b1", &Sizes::n_k}, tiles[4].b1);
      tile_size({"dV.b2", &Sizes::d_v}, tiles[4].b2);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_of(products(BackwardOperands(x, 1)), m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto tiles = choose_all(x, products(BackwardOperands(x, 1)), limits);
    if (!tiles) return std::nullopt;
    return Tiling{*tiles};
  }

  static std::vector<Phase> phases(const Sizes& x, const Tiling& t) {
    std::vector<Phase> phases;
    add_phases(phases, x, products(BackwardOperands(x, 1)), t.tiles);
    return phases;
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) { return io_of(products(BackwardOperands(x, 1)), t.tiles); }
  static Words macs(const Sizes& x, const Tiling&) { return macs_of(products(BackwardOperands(x, 1))); }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    const auto list = products(x);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool gradient = i != 0 && i != 2;  // Z and G carry no factor
      gemm(m, x.shape.fast, list[i].C, list[i].A, list[i].B, t.tiles[i], {}, [&](auto& w, const auto& T) {
        if (gradient) w.compute(kernel::Scale{x.scale}, T);
      });
    }
  }
};

}  // namespace redblue::schedule
