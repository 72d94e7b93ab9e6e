#pragma once
#include "redblue/schedule/parts/cores.hpp"
#include "redblue/schedule/projected/operands.hpp"

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
    t.modifiers = false;
    return t;
  }();
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr auto workspace = joined(X::workspace, S::workspace);

  struct Tiling {
    std::array<GemmTiling, X::projection_knobs.size() / 2> projections;
    typename S::Tiling attention;
    std::array<GemmTiling, X::gradient_knobs.size() / 2> gradients;
    void knobs(const auto& knob) {
      attention.knobs(knob);
      visit_products(knob, X::projection_knobs, projections);
      visit_products(knob, X::gradient_knobs, gradients);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& s) { return Inner::unsupported(s); }
  static std::string_view caveat(const Sizes& s, const Tiling& t) { return Inner::caveat(s, t.attention); }
  static bool allows(const Sizes& s, const Tiling& t) { return Inner::allows(s, t.attention); }
  static index_t copies(const Tiling& t) { return S::copies(t.attention); }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const X x(s, 1);
    return {smallest_of(x.projections(), m), Inner::smallest(s, m), smallest_of(x.gradients(), m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const X x(s, 1);
    const auto projections = choose_all(s, x.projections(), limits);
    const auto gradients = choose_all(s, x.gradients(), limits);
    const auto attention = Inner::choose_tiling(renamed(s, X::names), renamed(limits, X::names));
    if (!projections || !attention || !gradients) return std::nullopt;
    return Tiling{*projections, *attention, *gradients};
  }

  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    const Sizes inner = renamed(s, X::names);
    std::vector<Phase> phases{{Inner::footprint(inner, t.attention), Inner::prefetch(inner, t.attention)}};
    add_phases(phases, s, x.projections(), t.projections);
    add_phases(phases, s, x.gradients(), t.gradients);
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    return io_of(x.projections(), t.projections) + renamed(Inner::io(s, t.attention), X::names) +
           io_of(x.gradients(), t.gradients);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    return macs_of(x.projections()) + Inner::macs(s, t.attention) + macs_of(x.gradients());
  }

  /// Of one part.
  static IndexWords index(const Sizes& part, const Tiling& t) { return S::index(part, t.attention); }

  template <Machine M>
  static void run(M& m, const X& x, const Tiling& t) {
    run_all(m, x.shape.fast, x.projections(), t.projections);
    Inner::run(m, x.attention(), t.attention);
    run_all(m, x.shape.fast, x.gradients(), t.gradients);
  }
};

template <class S>
using ProjectedBackward = Projected<S, BackwardXOperands>;
template <class S>
using WeightedBackward = Projected<S, BackwardWOperands>;

}  // namespace redblue::schedule
