#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "redblue/core/mask.hpp"
#include "redblue/core/pattern.hpp"

/// Internal linkage, as in avx512.hpp.
namespace redblue::kernel::simd {
namespace {

/// The place of a tile of this shape; without its mask where that hides nothing of the tile, so that no part of the
/// tile asks for it. Out of line: so what it calls is not kept as a function of its own, which the linker might share.
[[gnu::noinline, gnu::flatten]] inline Place simplest(const Place& place, Shape s) {
  return place.sees_all(s) ? Place{{}, place.row, place.col} : place;
}

[[gnu::noinline, gnu::flatten]] inline Range keys_under_mask(const Place& place, Range rows, index_t keys) {
  return place.cols_of(rows, keys);
}
/// Of `keys` keys those that one of these rows sees. Asked for each register tile: no call where there is no mask.
[[gnu::always_inline]] inline Range keys_seen(const Place& place, Range rows, index_t keys) {
  return place.mask.full() ? Range{0, keys} : keys_under_mask(place, rows, keys);
}

/// f(64 keys from the first, bits) for keys that a row sees under a pattern: bit k says whether it sees first + k.
template <class F>
[[gnu::always_inline]] inline void for_bits(const Place& place, index_t row, Range keys, const F& f) {
  constexpr index_t kBits = 64;
  for (index_t first = keys.begin; first < keys.end; first += kBits) {
    const std::uint64_t bits = place.mask.pattern->rows().seen(place.row + row, place.col + first);
    const index_t beyond = std::max<index_t>(0, first + kBits - keys.end);
    f(first, bits << beyond >> beyond);
  }
}
/// How many pairs of a tile of this shape exist under a pattern.
[[gnu::noinline, gnu::flatten]] inline index_t pairs_seen(const Place& place, Shape s) {
  index_t pairs = 0;
  place.mask.pattern->rows().for_groups({place.row, place.row + s.rows}, [&](Range rows, std::span<const Range>) {
    for_bits(place, rows.begin - place.row, {0, s.cols},
             [&](index_t, std::uint64_t bits) { pairs += rows.size() * std::popcount(bits); });
  });
  return pairs;
}
/// Writes those of some keys that a row sees under a pattern, and returns how many these are.
[[gnu::noinline, gnu::flatten]] inline index_t keys_of_row(const Place& place, index_t row, Range keys,
                                                           std::int32_t* list) {
  index_t count = 0;
  for_bits(place, row, keys, [&](index_t first, std::uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) list[count++] = static_cast<std::int32_t>(first + std::countr_zero(bits));
  });
  return count;
}

/// Of `rows` rows those that see one of these keys.
[[gnu::noinline, gnu::flatten]] inline Range rows_seeing(const Place& place, Range keys, index_t rows) {
  return place.rows_of(keys, rows);
}

}  // namespace
}  // namespace redblue::kernel::simd
