#pragma once
#include <array>
#include <utility>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/language/words.hpp"

namespace redblue {

/// How words lie in fast memory: how wide a resident word of each array is, and how the rows of a tile are padded, in
/// any integer unit. By default every word takes one unit and nothing is padded: sizes are then words.
struct Residence {
  std::array<std::uint8_t, kSlowArrays> width = [] {
    std::array<std::uint8_t, kSlowArrays> one{};
    one.fill(1);
    return one;
  }();
  std::uint32_t row_multiple = 1;  ///< each row of a tile begins at a multiple of it
  std::uint32_t row_extra = 0;     ///< left free after each row, against conflicts of banks

  /// Gives all scores the width of S, all statistics that of lse, and the parts of an output its width: a schedule
  /// keeps them in each other's place.
  constexpr void alike() {
    for (std::size_t a = 0; a < kSlowArrays; ++a) width[a] = width[index_of(kArrayFacts[a].as_wide_as)];
  }
  /// Is every size the number of words?
  constexpr bool words() const { return *this == Residence{}; }
  /// A word that streams past.
  constexpr Words word(SlowArray a) const { return width[index_of(a)]; }
  /// A tile of rows x cols. A single column lies as a single row does.
  constexpr Words tile(SlowArray a, Words rows, Words cols) const {
    if (rows == 0 || cols == 0) return 0;
    if (row_multiple == 1 && row_extra == 0) return rows * cols * word(a);
    if (cols == 1) std::swap(rows, cols);
    const Words multiple = row_multiple;
    return rows * ((cols * word(a) + multiple - 1) / multiple * multiple + row_extra);
  }
  friend constexpr bool operator==(const Residence&, const Residence&) = default;
};

}  // namespace redblue
