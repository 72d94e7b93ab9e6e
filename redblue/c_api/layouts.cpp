#include <algorithm>
#include <array>

#include "redblue/c_api/calls.hpp"
#include "redblue/language/dimensions.hpp"

extern "C" redblue_status redblue_strides(const char* layout, const int64_t sizes[4], int64_t strides[4]) {
  return redblue::c_api::guarded([&] {
    redblue::c_api::require_pointer(layout, "layout");
    redblue::c_api::require_pointer(sizes, "sizes");
    redblue::c_api::require_pointer(strides, "strides");
    std::array<redblue::index_t, 4> shape{};
    std::copy_n(sizes, shape.size(), shape.begin());
    std::ranges::copy(redblue::Dimensions(layout).strides(shape), strides);
  });
}
