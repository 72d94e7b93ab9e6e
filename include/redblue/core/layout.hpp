#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace redblue {

/// How a tile lies in fast memory. Chosen where the tile is born, by a tag of the kernel that will consume it;
/// a machine whose kernels work on row-major tiles may ignore it. Words are counted as words: padding of packed
/// layouts is the machine's to report, never part of the footprint.
enum class Layout : std::uint8_t {
  row_major,      ///< the default
  query_panels,   ///< columns of a few dozen queries, one panel after another: [panel][d][queries]
  panel_scratch,  ///< needed one panel at a time only
};
inline constexpr std::array<std::string_view, 3> kLayoutNames = {"row_major", "query_panels", "panel_scratch"};

}  // namespace redblue
