#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_passes.hpp"

namespace redblue::schedule {

/// Polynomial attention where the state of all monomials does not fit: groups of monomials in the coordinates of a few
/// blocks of s (polynomial_groups.hpp), and cb of the d_v + 1 columns of values and row sums. Each group and block of
/// columns is a pass over keys and queries that reads only the coordinates of its blocks, D_G of them. Partial outputs
/// go through slow memory from group to group. With mg groups and h = c(d_v + 1, cb):
///   reads h (n_k + n_q) SUM |D_G| + mg n_k d_v + (mg - 1) n_q (d_v + 1) + (h - 1) n_q
///   writes (mg - 1) n_q (d_v + 1) + n_q d_v + [h > 1] n_q
///   footprint max |G| cb + |D_G| + cb + g for br = bc = 1; about n r d_v / M^(g / (g + 1)) words in all
/// Under a mask queries read the state one by one, whatever br.
struct PolynomialTiledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial_tiled";
  static constexpr std::string_view idea = "forming the state of monomials in tiles, one pass over the rows for each";
  static constexpr Traits traits{.masks = true, .rewrites_outputs = true, .method = methods::kPolynomial};
  static constexpr std::array workspace{SlowArray::den};

  using Tiling = PolynomialTiles;

  static constexpr std::string_view restricted_bound(const Sizes& x) {
    return x.d + x.d_v <= 4096 ? "polynomial state" : "";
  }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.d, m.feature), 0, 1, smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  /// The cheapest passes; then more rows and keys per step where there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto best = cheapest_passes<PolynomialTiledForward>(x, limits, smallest(x, limits.multiple));
    return best ? std::optional(doubled_in_turn<PolynomialTiledForward>(*best, x, limits)) : best;
  }

  static Words footprint(const Sizes& x, const PolynomialPasses& passes) { return passes.footprint(x); }
  static Words footprint(const Sizes& x, Tiling t) { return footprint(x, PolynomialPasses(x, t)); }
  /// The next keys and values, or the next queries.
  static Words prefetch(const Sizes& x, const PolynomialPasses& passes) {
    return passes.with_second_buffers(x) - passes.footprint(x);
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch(x, PolynomialPasses(x, t)); }
  static Io io(const Sizes& x, const PolynomialPasses& passes) { return passes.io(x); }
  static Io io(const Sizes& x, Tiling t) { return io(x, PolynomialPasses(x, t)); }
  static Words macs(const Sizes& x, Tiling) { return polynomial_macs(x); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto one = [&](Range) -> const Polynomial& { return *polynomial_of(x.shape); };
    PolynomialPasses(x.shape, t).for_each([&](const MonomialGroup& g, StateColumns c) {
      polynomial_pass(m, x, g, c, t.br, t.bc, one);
    });
  }
};

}  // namespace redblue::schedule
