#include "redblue/kernels/registry.hpp"

#include <cmath>
#include <type_traits>

namespace redblue::kernel {

namespace {

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

template <class K>
bool set_if_named(AnyPlainKernel& out, std::string_view name, std::span<const double> values) {
  if (name != K::name) return false;
  K k;
  if constexpr (requires { k.parameters(); }) {
    if (values.size() != K::parameter_names.size()) return false;
    std::size_t i = 0;
    if (!std::apply([&](auto&... p) { return (set_parameter(p, values[i++]) && ...); }, k.parameters())) return false;
  } else if (!values.empty()) {
    return false;
  }
  out = k;
  return true;
}
template <class... K>
std::optional<AnyPlainKernel> make_plain(std::variant<K...>*, std::string_view name, std::span<const double> values) {
  AnyPlainKernel k;
  return (set_if_named<K>(k, name, values) || ...) ? std::optional(k) : std::nullopt;
}

}  // namespace

std::optional<AnyPlainKernel> make_plain(std::string_view name, std::span<const double> values) {
  return make_plain(static_cast<AnyPlainKernel*>(nullptr), name, values);
}

}  // namespace redblue::kernel
