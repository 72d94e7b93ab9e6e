#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <tuple>

#include "redblue/kernels/implementations.hpp"
#include "redblue/kernels/registry.hpp"

/// What AnyKernel knows of each type of kernels. redblue's own kinds are compiled once, in redblue/kernels/kinds.cpp
/// and redblue/methods/kernels/kinds.cpp: there they take a minute, and they would in every file whose schedules run on
/// machine::Any. The kind of a kernel which a program brings is compiled where it is used.
namespace redblue::kernel {

namespace detail {

template <class... K>
std::tuple<K..., OnlineAttention, SoftmaxFinish, KeyGradients, MovingWeights, SecondGradients> with_composites(
    std::tuple<K...>*);
/// The kernels of this room.
using Listed = decltype(with_composites(static_cast<ExactKernels*>(nullptr)));

/// The number of K in a list; the length of the list if it is not there.
template <class K, class... Own>
constexpr std::size_t number_among(std::tuple<Own...>*) {
  std::size_t number = 0;
  (void)((std::same_as<K, Own> || (++number, false)) || ...);
  return number;
}
template <class K, class List>
inline constexpr std::size_t kNumber = number_among<K>(static_cast<List*>(nullptr));
template <class K, class List>
concept IsIn = kNumber<K, List> < std::tuple_size_v<List>;

/// p <- value, if value is one of P: a whole number for integers, 0 or 1 for bool, a position in the list for Score.
template <class P>
bool set_parameter(P& p, double value) {
  if constexpr (std::is_same_v<P, index_t>)
    if (std::isinf(value)) {
      p = value > 0 ? Mask::kFar : -Mask::kFar;
      return true;
    }
  if constexpr (!std::is_same_v<P, double>) {
    constexpr double kLargest = 0x1p53;  // beyond, not every whole number is a double
    const bool is_signed = std::is_same_v<P, index_t>;
    const double most = std::is_same_v<P, bool> ? 1 : std::is_same_v<P, Score> ? kScoreNames.size() - 1 : kLargest;
    if (!(value >= (is_signed ? -most : 0) && value <= most) || value != std::floor(value)) return false;
  }
  p = static_cast<P>(value);
  return true;
}

/// Are share and places of dropout those of weights?
inline bool is_dropout(double share, std::initializer_list<index_t> places) {
  return share >= 0 && share < 1 && std::ranges::all_of(places, [](index_t p) { return p >= 0; });
}
inline bool can_drop(const Drop& d) { return is_dropout(d.share, {d.head, d.first_row, d.row, d.col}) && d.group >= 1; }
inline bool can_drop(const DropOfPairs& d) { return is_dropout(d.share, {d.head, d.first_row, d.first_col}); }

template <class K>
constexpr std::span<const Layout> layouts_of_type() {
  if constexpr (requires { K::layouts; })
    return K::layouts;
  else
    return {};
}

template <class K>
constexpr bool adds_of_type() {
  if constexpr (requires { K::adds; })
    return K::adds;
  else
    return false;
}

template <class K>
constexpr Costs costs_of_type() {
  if constexpr (requires { K::costs; })
    return K::costs;
  else
    return {};
}

template <Kernel K>
struct KindOf {
  using Args = Kind::Args;
  static const K& of(const void* k) { return *static_cast<const K*>(k); }
  static bool fits(Args args) {
    if constexpr (Composite<K>)
      return args.size() == arity<K>;
    else
      return args.size() == arity<K> &&
             kernel::spread<arity<K>>([](const auto&... a) { return K::fits(a.shape()...); }, args);
  }
  static index_t macs(const void* k, Args args) {
    index_t total = 0;
    for_parts(of(k), args, [&](const auto& part, Args a) { total += kernel::macs(part, a); });
    return total;
  }
  static index_t exponentials(const void* k, Args args) { return kernel::exponentials(of(k), args); }
  static std::optional<PairByPair> pair_by_pair(const void* k, Args args) { return kernel::pair_by_pair(of(k), args); }
  static index_t most_passing(const void* k, Args args) { return kernel::most_passing(of(k), args); }
  static void add_to(const void* k, Tally& tally, Args args) { kernel::add_to(tally, of(k), args); }
  template <class T>
  static void run(const void* k, const Implementations<T>& table, std::span<const View<T>> views) {
    kernel::run(table, of(k), views);
  }
  static constexpr std::span<const std::string_view> parameter_names() {
    if constexpr (requires { K::parameter_names; })
      return K::parameter_names;
    else
      return {};
  }
  static std::shared_ptr<void> copy(const void* k) { return std::make_shared<K>(of(k)); }
  static std::shared_ptr<void> make(std::span<const double> values) {
    const auto k = std::make_shared<K>();
    if (values.size() != parameter_names().size()) return nullptr;
    if constexpr (requires { k->parameters(); }) {
      std::size_t i = 0;
      if (!std::apply([&](auto&... p) { return (set_parameter(p, values[i++]) && ...); }, k->parameters()))
        return nullptr;
    }
    return k;
  }
  static bool first(const void* k) { return first_of(of(k)); }
  /// fits() knows shapes only: some choice of transposes, patterns or monomials makes them agree.
  static bool may_run(const void* kernel, Args args) {
    const K& k = of(kernel);
    bool fits = KindOf::fits(args);
    if constexpr (requires { k.transpose_a; }) {
      const auto op_of = [](bool transpose, Shape s) { return transpose ? Shape{s.cols, s.rows} : s; };
      const Shape C = args[0].shape(), A = op_of(k.transpose_a, args[1].shape()),
                  B = op_of(k.transpose_b, args[2].shape());
      fits = fits && A.rows == C.rows && A.cols == B.rows && B.cols == C.cols;
    }
    if constexpr (requires { &K::fits_pattern; })
      fits = fits && kernel::spread<arity<K>>([&](const auto&... a) { return k.fits_pattern(a.shape()...); }, args);
    if constexpr (requires { &K::fits_monomials; })
      fits = fits && kernel::spread<arity<K>>([&](const auto&... a) { return k.fits_monomials(a.shape()...); }, args);
    if constexpr (requires { &K::fits_place; })
      fits = fits && kernel::spread<arity<K>>([&](const auto&... a) { return k.fits_place(a.shape()...); }, args);
    return fits;
  }
  static bool drops(const void* kernel) {
    const K& k = of(kernel);
    if constexpr (std::same_as<K, Drop> || std::same_as<K, DropOfPairs>)
      return can_drop(k);
    else if constexpr (requires { k.terms.drop; })
      return can_drop(k.terms.drop);
    else if constexpr (requires { k.drop; })
      return can_drop(k.drop);
    else
      return true;
  }
  static std::vector<double> parameters(const void* k) { return parameters_of(of(k)); }
  static const Place* place(const void* k) { return place_of(of(k)); }
  static void parts(const void* k, const Kind::VisitPart& visit, Args args) {
    for_parts(of(k), args, [&](const auto& part, Args a) { visit(AnyKernel(part), a); });
  }

  static std::optional<Axes> axes(const void* k, std::span<const Shape> shapes) { return axes_of(of(k), shapes); }
  static std::shared_ptr<void> part(const void* k, const Part& p) { return std::make_shared<K>(part_of(of(k), p)); }
  static constexpr std::span<const Layout> tile_layouts() {
    if constexpr (requires { K::tile_layouts; })
      return K::tile_layouts;
    else
      return layouts_of_type<K>();
  }

  static constexpr bool updates() {
    return requires(const K& k) { k.first; };
  }

  static constexpr Kind kind{
      .name = K::name,
      .access = K::access,
      .layouts = layouts_of_type<K>(),
      .adds = adds_of_type<K>(),
      .costs = costs_of_type<K>(),
      .fits = fits,
      .macs = macs,
      .exponentials = exponentials,
      .pair_by_pair = pair_by_pair,
      .most_passing = most_passing,
      .add_to = add_to,
      .run_f32 = run<float>,
      .run_f64 = run<double>,
      .parameters = parameters,
      .place = place,
      .parameter_names = parameter_names(),
      .updates = updates(),
      .implementations = kMayHaveImplementation<K>,
      .copy = copy,
      .make = Composite<K> ? nullptr : make,
      .first = first,
      .may_run = may_run,
      .can_drop = drops,
      .parts = parts,
      .axes = axes,
      .part = part,
      .tile_layouts = tile_layouts(),
  };
};

/// The kinds of a list of kernels, in order.
template <class... K>
constexpr std::array<Kind, sizeof...(K)> kinds_of(std::tuple<K...>*) {
  return {KindOf<K>::kind...};
}
extern const std::array<Kind, std::tuple_size_v<Listed>> kKinds;

/// Where the answers for K are: of a list that is compiled once, there.
template <class K>
struct CompiledKind {
  static const Kind& kind() { return KindOf<K>::kind; }
};
template <IsIn<Listed> K>
struct CompiledKind<K> {
  static const Kind& kind() { return kKinds[kNumber<K, Listed>]; }
};

}  // namespace detail

template <Kernel K>
const Kind& kind_of() {
  return detail::CompiledKind<K>::kind();
}

}  // namespace redblue::kernel
