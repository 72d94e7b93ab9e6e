#pragma once
#include <tuple>

#include "redblue/kernels/implementations.hpp"
#include "redblue/kernels/registry.hpp"

/// What AnyKernel knows of each type of kernels. That of redblue's own is compiled once, in redblue/kernels/kinds.cpp:
/// there it takes a minute, and it would in every file whose schedules run on machine::Any. That of a kernel which a
/// program brings is compiled where it is used.
namespace redblue::kernel {

namespace detail {

template <class... K>
std::tuple<K..., OnlineAttention, SoftmaxFinish, KeyGradients> listed_with_composites(std::variant<K...>*);
/// redblue's own kernels.
using Listed = decltype(listed_with_composites(static_cast<AnyPlainKernel*>(nullptr)));
inline constexpr std::size_t kListed = std::tuple_size_v<Listed>;

/// The number of K among redblue's own kernels; kListed if it is none of them.
template <class K, class... Own>
constexpr std::size_t number_among(std::tuple<Own...>*) {
  std::size_t number = 0;
  (void)((std::same_as<K, Own> || (++number, false)) || ...);
  return number;
}
template <class K>
inline constexpr std::size_t kNumber = number_among<K>(static_cast<Listed*>(nullptr));

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
  static std::vector<double> parameters(const void* k) { return parameters_of(of(k)); }
  static const Place* place(const void* k) { return place_of(of(k)); }
  static void parts(const void* k, const Kind::VisitPart& visit, Args args) {
    for_parts(of(k), args, [&](const auto& part, Args a) { visit(AnyKernel(part), a); });
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
#ifdef REDBLUE_PLANS_ONLY  // web pages (cmake/wasm): nothing is run there, and code must be small
      .run_f32 = nullptr,
      .run_f64 = nullptr,
#else
      .run_f32 = run<float>,
      .run_f64 = run<double>,
#endif
      .parameters = parameters,
      .place = place,
      .parts = parts,
  };
};

extern const std::array<Kind, kListed> kKinds;

}  // namespace detail

template <Kernel K>
const Kind& kind_of() {
  if constexpr (constexpr std::size_t number = detail::kNumber<K>; number < detail::kListed)
    return detail::kKinds[number];
  else
    return detail::KindOf<K>::kind;
}

/// Whichever kernel of the list it is. It must outlive the answer.
AnyKernel erase(const AnyPlainKernel& kernel);

}  // namespace redblue::kernel
