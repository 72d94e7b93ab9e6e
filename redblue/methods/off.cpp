#include <fmt/format.h>

#include <array>

#include "redblue/kernels/kinds.hpp"
#include "redblue/language/error.hpp"
#include "redblue/problem/approximation.hpp"
#include "redblue/schedules/lists/lists.hpp"

/// This file stands in place of all others of this folder where approximations are left out (-DREDBLUE_METHODS=OFF).
namespace redblue {

AnyApproximation approximation_from(std::string_view text) {
  throw Unsupported(fmt::format("approximation {}: {}", text, kNoApproximations));
}

const plan::Registry& plan::Registry::built_in() {
  static const Registry registry = [] {
    Registry r;
    add_exact(r);
    return r;
  }();
  return registry;
}

std::span<const std::span<const kernel::Kind>> kernel::built_in_kinds() {
  static const std::array<std::span<const Kind>, 1> lists{detail::kKinds};
  return lists;
}

}  // namespace redblue
