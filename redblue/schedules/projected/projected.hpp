#pragma once
#include "redblue/schedules/operands/projected.hpp"
#include "redblue/schedules/parts/cores.hpp"

namespace redblue::schedule {

/// Texts and lists joined at compile time.
template <const std::string_view&... parts>
struct Joined {
  static constexpr auto chars = [] {
    std::array<char, (parts.size() + ...)> all{};
    auto end = all.begin();
    ((end = std::copy(parts.begin(), parts.end(), end)), ...);
    return all;
  }();
  static constexpr std::string_view text{chars.data(), chars.size()};
};
template <std::size_t... N>
constexpr auto joined(const std::array<SlowArray, N>&... lists) {
  std::array<SlowArray, (N + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(lists.begin(), lists.end(), end)), ...);
  return all;
}

/// A text with operands of other names.
template <class S, class X>
struct On : S {
  using Operands = X;
};

/// A schedule S of plain attention between the products of Operands X: products before it project its inputs, products
/// after it carry its gradients back to the sources. The phases follow each other, so words add up and the footprint is
/// the largest. The products are of the queries and keys that pairs need; attention runs on each part of them by
/// itself, and leaves 0 where no query sees a key.
template <class S, class X = ForwardXOperands>
struct Projected : Defaults {
  using Operands = X;
  using Inner = Masked<On<S, typename X::Attention>>;
  static constexpr std::string_view name = Joined<X::prefix, S::name>::text;
  static constexpr std::string_view idea = S::idea;
  static constexpr std::string_view label = S::label;
  static constexpr Traits traits = [] {
    Traits t = S::traits;
    t.accumulates = false;  // its outputs are products with what S writes
    t.modifiers = false;
    return t;
  }();
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr bool takes_tilings = true;
  static constexpr auto workspace = joined(X::workspace, S::workspace);

  struct Tiling {
    std::array<GemmTiling, X::projection_tile_sizes.size() / 2> projections;
    typename S::Tiling attention;
    std::array<GemmTiling, X::gradient_tile_sizes.size() / 2> gradients;
    void tile_sizes(const auto& tile_size) {
      attention.tile_sizes(tile_size);
      visit_products(tile_size, X::projection_tile_sizes, projections);
      visit_products(tile_size, X::gradient_tile_sizes, gradients);
    }
  };

  /// The tile sizes of attention on the parts; products have the tile sizes of the batch.
  static typename Inner::Tiling of_attention(const Tilings<Tiling>& t) {
    typename Inner::Tiling inner(t.all.attention);
    for (const auto& [core, sizes] : t.own) inner.set_own(core, t.of(core).attention);
    return inner;
  }

  static std::optional<std::string_view> unsupported(const Sizes& s) { return Inner::unsupported(s); }
  static std::string_view caveat(const Sizes& s, const Tilings<Tiling>& t) { return Inner::caveat(s, of_attention(t)); }
  static bool allows(const Sizes& s, const Tilings<Tiling>& t) { return Inner::allows(s, of_attention(t)); }
  static index_t copies(const Tiling& t) { return S::copies(t.attention); }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const X x(s, 1);
    return {smallest_of(x.projections(), m), Inner::smallest(s, m).all, smallest_of(x.gradients(), m)};
  }
  /// With the best products for a batch s.
  static std::optional<Tiling> with_products(const Sizes& s, const Limits& limits,
                                             const typename S::Tiling& attention) {
    const X x(s, 1);
    const auto projections = choose_all(s, x.projections(), limits);
    const auto gradients = choose_all(s, x.gradients(), limits);
    if (!projections || !gradients) return std::nullopt;
    return Tiling{*projections, attention, *gradients};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const auto attention = Inner::choose_tiling(renamed(s, X::names), renamed(limits, X::names));
    return attention ? with_products(s, limits, attention->all) : std::nullopt;
  }
  /// Products with a tiling for each batch, attention with one for each shape of its own cores.
  static std::optional<Tilings<Tiling>> choose_tilings(const Sizes& s, const Sizes& largest, const CoreList& batches,
                                                       const Limits& limits) {
    const auto attention = Inner::choose_tiling(renamed(s, X::names), renamed(limits, X::names));
    if (!attention) return std::nullopt;
    const auto all = with_products(largest, limits, attention->all);
    if (!all) return std::nullopt;
    Tilings<Tiling> t(*all);
    for (const auto& [core, sizes] : attention->own)
      t.set_own(core, {all->projections, attention->of(core), all->gradients});
    for (const Core& batch : batches) {
      const auto own = with_products(batch.sizes, limits, attention->of(batch.sizes));
      if (!own) return std::nullopt;
      if (CoreShape(batch.sizes) != CoreShape(largest)) t.set_own(CoreShape(batch.sizes), *own);
    }
    return t;
  }

  static std::vector<Phase> phases(const Sizes& s, const Tilings<Tiling>& t) {
    const X x(s, 1);
    const Sizes inner = renamed(s, X::names);
    const auto attention = of_attention(t);
    std::vector<Phase> phases{{Inner::footprint(inner, attention), Inner::prefetch(inner, attention)}};
    add_phases(phases, s, x.projections(), t.of(s).projections);
    add_phases(phases, s, x.gradients(), t.of(s).gradients);
    return phases;
  }
  static Words footprint(const Sizes& s, const Tilings<Tiling>& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tilings<Tiling>& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tilings<Tiling>& t) {
    const X x(s, 1);
    return io_of(x.projections(), t.of(s).projections) + renamed(Inner::io(s, of_attention(t)), X::names) +
           io_of(x.gradients(), t.of(s).gradients);
  }
  static Words macs(const Sizes& s, const Tilings<Tiling>& t) {
    const X x(s, 1);
    return macs_of(x.projections()) + Inner::macs(s, of_attention(t)) + macs_of(x.gradients());
  }

  /// The index words of one part.
  static IndexWords index(const Sizes& part, const Tiling& t) { return S::index(part, t.attention); }

  template <Machine M>
  static void run(M& m, const X& x, const Tilings<Tiling>& t) {
    run_all(m, x.shape.fast, x.projections(), t.of(x.shape).projections);
    Inner::run(m, x.attention(), of_attention(t));
    run_all(m, x.shape.fast, x.gradients(), t.of(x.shape).gradients);
  }
};

template <class S>
using ProjectedBackward = Projected<S, BackwardXOperands>;
template <class S>
using WeightedBackward = Projected<S, BackwardWOperands>;

}  // namespace redblue::schedule
