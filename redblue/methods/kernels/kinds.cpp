#include "redblue/methods/kernels/list.hpp"

namespace redblue::kernel::detail {

constinit const std::array<Kind, std::tuple_size_v<MethodKernels>> kMethodKinds =
    kinds_of(static_cast<MethodKernels*>(nullptr));

}  // namespace redblue::kernel::detail
