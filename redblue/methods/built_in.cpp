#include <array>

#include "redblue/methods/kernels/list.hpp"
#include "redblue/methods/schedules/list.hpp"
#include "redblue/schedules/lists/lists.hpp"

/// What redblue has: exact attention and approximations. Where those are left out, off.cpp takes the place of this
/// file.
namespace redblue {

const plan::Registry& plan::Registry::built_in() {
  static const Registry registry = [] {
    Registry r;
    add_exact(r);
    add_approximate(r);
    return r;
  }();
  return registry;
}

std::span<const std::span<const kernel::Kind>> kernel::built_in_kinds() {
  static const std::array<std::span<const Kind>, 2> lists{detail::kKinds, detail::kMethodKinds};
  return lists;
}

}  // namespace redblue
