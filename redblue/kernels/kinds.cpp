#include "redblue/kernels/kinds.hpp"

namespace redblue::kernel::detail {

constinit const std::array<Kind, std::tuple_size_v<Listed>> kKinds = kinds_of(static_cast<Listed*>(nullptr));

}  // namespace redblue::kernel::detail
