#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace redblue {

/// How a tile lies in fast memory. The kernel that will consume the tile chooses the layout, by a tag, when the tile is
/// made; a machine whose kernels work on row-major tiles may ignore it. A layout never changes a count: padding of
/// packed layouts is not part of the footprint, and the machine reports it separately.
enum class Layout : std::uint8_t {
  row_major,      ///< the default
  read_only,      ///< row-major, for a tile that kernels only read: not copied if slow memory has the same layout
  query_panels,   ///< columns of a few dozen queries, one panel after another: [panel][d][queries]
  output_panels,  ///< the same for outputs
  panel_scratch,  ///< a tile of which kernels need only one panel at a time
  key_panels,     ///< read_only, and a second copy in panels of a few dozen keys: [panel][d][keys]
  padded_rows,    ///< row-major, each row aligned to a vector
  key_rows,       ///< a stream whose rows stay as they lie, in their own element type
  value_pairs,    ///< a stream in 16-bit types: [pair of rows][column][row of the pair]
  f16_rows,       ///< replaces key_rows and value_pairs where few queries read them: rows of f16 as they lie
  bf16_rows,      ///< the same for bf16
};
inline constexpr auto kLayoutNames =
    std::to_array<std::string_view>({"row_major", "read_only", "query_panels", "output_panels", "panel_scratch",
                                     "key_panels", "padded_rows", "key_rows", "value_pairs", "f16_rows", "bf16_rows"});

/// Tiles that no kernel may write: their words may be those of slow memory.
constexpr bool is_only_read(Layout l) { return l == Layout::read_only || l == Layout::key_panels; }

}  // namespace redblue
