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
  panel_scratch,  ///< needed one panel at a time only
  key_panels,     ///< read_only, and beside it the same in panels of a few dozen keys: [panel][d][keys]
  padded_rows,    ///< row-major, each row starting where a vector does
  // Wishes of a kernel for arguments that may be rows of 16-bit or int8 words; a machine and the implementation settle
  // on one of the last five, or on words of the compute type (kernel::ImplementationTraits::words16).
  key_rows,      ///< rows as they lie
  value_pairs,   ///< rows as they lie, or pairs of them interleaved
  int8_rows,     ///< rows of int8 words; in other_form stands the scale of each row
  f16_rows,      ///< rows of f16 words
  bf16_rows,     ///< rows of bf16 words
  bf16_pairs,    ///< bf16 words: [pair of rows][column][row of the pair]
  bf16_columns,  ///< bf16 words: [column][row]
};
inline constexpr auto kLayoutNames = std::to_array<std::string_view>(
    {"row_major", "read_only", "query_panels", "output_panels", "panel_scratch", "key_panels", "padded_rows",
     "key_rows", "value_pairs", "int8_rows", "f16_rows", "bf16_rows", "bf16_pairs", "bf16_columns"});

/// Only kernels that know the layout can read words that lie so.
constexpr bool is_packed(Layout l) {
  return l != Layout::row_major && l != Layout::read_only && l != Layout::key_panels && l != Layout::padded_rows;
}
/// Tiles that no kernel may write: their words may be those of slow memory.
constexpr bool is_only_read(Layout l) { return l == Layout::read_only || l == Layout::key_panels; }
/// Do the bf16 words of two rows, a pair, lie side by side?
constexpr bool is_paired(Layout l) { return l == Layout::bf16_pairs || l == Layout::bf16_columns; }
constexpr bool may_be_narrow(Layout wish) { return wish == Layout::key_rows || wish == Layout::value_pairs; }

}  // namespace redblue
