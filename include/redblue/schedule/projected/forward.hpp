#pragma once
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/projections.hpp"

namespace redblue::schedule {

/// The operands of attention in the papers' parametrisation (Li et al. 2024, arXiv 2410.09397, Definition 3.1):
/// O = softmax(scale A1 X A2^T) A3 Y, A1 n_q x d, A2 and A3 n_k x d, X d x d, Y d x d_v -> O and lse as of
/// ForwardOperands. The rest is workspace that only schedules which declare it touch.
struct ForwardXOperands {
  static constexpr Operation operation = Operation::forward_x;
  static constexpr std::array inputs{SlowArray::A1, SlowArray::A2, SlowArray::A3, SlowArray::X, SlowArray::Y};
  static constexpr std::array outputs{SlowArray::O, SlowArray::lse};
  static constexpr std::string_view prefix = "xy_";
  static constexpr std::array names = kProjected;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::h};
  static constexpr std::array projection_knobs = kProjectionKnobs;
  static constexpr std::array<KnobRange, 0> gradient_knobs{};

  Sizes shape;
  double scale = 1;
  SlowMatrix A1, A2, A3, X, Y, O, lse;
  SlowMatrix S;       ///< A1 X
  SlowMatrix h;       ///< A3 Y
  SlowMatrix scores;  ///< n_q x n_k
  SlowMatrix U;       ///< softmax(scale S A2^T) A2, what Y projects to O when A2 = A3

  ForwardXOperands(const Sizes& s, double score_scale, index_t instance = 0)
      : shape(s),
        scale(score_scale),
        A1{SlowArray::A1, {s.n_q, s.d}, instance},
        A2{SlowArray::A2, {s.n_k, s.d}, instance},
        A3{SlowArray::A3, {s.n_k, s.d}, instance},
        X{SlowArray::X, {s.d, s.d}, instance},
        Y{SlowArray::Y, {s.d, s.d_v}, instance},
        O{SlowArray::O, {s.n_q, s.d_v}, instance},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance},
        S{SlowArray::A1X, {s.n_q, s.d}, instance},
        h{SlowArray::h, {s.n_k, s.d_v}, instance},
        scores{SlowArray::S, {s.n_q, s.n_k}, instance},
        U{SlowArray::U, {s.n_q, s.d}, instance} {}

  auto all() const { return std::array{A1, A2, A3, X, Y, O, lse, S, h, scores, U}; }

  std::array<Product, 2> projections() const { return {query_projection(*this), value_projection(*this)}; }
  static std::array<Product, 0> gradients() { return {}; }
  /// The operands of plain attention once the projections are formed: Q = S, K = A2, V = h.
  ForwardOperands attention() const {
    ForwardOperands x(shape, scale, A1.instance);
    x.Q = S;
    x.K = A2;
    x.V = h;
    return x;
  }
};

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

/// A schedule S of plain attention between the products of Operands X: products before it project its inputs, products
/// after it carry its gradients back to the sources. The phases follow each other, so words add up and the footprint is
/// the largest.
template <class S, class X = ForwardXOperands>
struct Projected : Defaults {
  using Operands = X;
  static constexpr std::string_view name = Joined<X::prefix, S::name>::text;
  static constexpr std::string_view idea = S::idea;
  static constexpr std::string_view label = S::label;
  static constexpr Traits traits = S::traits;
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

  static std::optional<std::string_view> unsupported(const Sizes& s) { return S::unsupported(s); }
  static bool allows(const Sizes& s, const Tiling& t) { return S::allows(s, t.attention); }
  static index_t copies(const Tiling& t) { return S::copies(t.attention); }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const X x(s, 1);
    return {smallest_of(x.projections(), m), S::smallest(s, m), smallest_of(x.gradients(), m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const X x(s, 1);
    const auto projections = choose_all(x.projections(), limits);
    const auto gradients = choose_all(x.gradients(), limits);
    const auto attention = S::choose_tiling(s, renamed(limits, X::names));
    if (!projections || !attention || !gradients) return std::nullopt;
    return Tiling{*projections, *attention, *gradients};
  }

  static std::vector<Phase> phases(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    std::vector<Phase> phases{{S::footprint(s, t.attention), S::prefetch(s, t.attention)}};
    add_phases(phases, x.projections(), t.projections);
    add_phases(phases, x.gradients(), t.gradients);
    return phases;
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    return io_of(x.projections(), t.projections) + renamed(S::io(s, t.attention), X::names) +
           io_of(x.gradients(), t.gradients);
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const X x(s, 1);
    return macs_of(x.projections()) + S::macs(s, t.attention) + macs_of(x.gradients());
  }

  template <Machine M>
  static void run(M& m, const X& x, const Tiling& t) {
    run_all(m, x.projections(), t.projections);
    S::run(m, x.attention(), t.attention);
    run_all(m, x.gradients(), t.gradients);
  }
};

}  // namespace redblue::schedule
