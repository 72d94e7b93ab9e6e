#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "redblue/masks/mask.hpp"
#include "redblue/masks/pattern.hpp"

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
/// The ones among `keys` keys that one of these rows sees. Each register tile asks, so there is no call where there is
/// no mask.
[[gnu::always_inline]] inline Range keys_seen(const Place& place, Range rows, index_t keys) {
  return place.mask.full() ? Range{0, keys} : keys_under_mask(place, rows, keys);
}

/// f(first, bits) for what list i holds of a window, 64 at a time: bit k says whether it holds first + k, counted from
/// the beginning of the window.
template <class F>
[[gnu::always_inline]] inline void for_bits(const RunLists& lists, index_t i, Range window, const F& f) {
  constexpr index_t kBits = 64;
  for (index_t first = 0; first < window.size(); first += kBits) {
    const std::uint64_t bits = lists.seen(i, window.begin + first);
    const index_t beyond = std::max<index_t>(0, first + kBits - window.size());
    f(first, bits << beyond >> beyond);
  }
}
/// How many pairs of a tile of this shape exist under a pattern.
[[gnu::noinline, gnu::flatten]] inline index_t pairs_seen(const Place& place, Shape s) {
  const RunLists& lists = place.mask.pattern->rows();
  index_t pairs = 0;
  lists.for_groups({place.row, place.row + s.rows}, [&](Range rows, std::span<const Range>) {
    for_bits(lists, rows.begin, {place.col, place.col + s.cols},
             [&](index_t, std::uint64_t bits) { pairs += rows.size() * std::popcount(bits); });
  });
  return pairs;
}
/// How many of them whole register tiles form: for some rows at a time, keys from the first to the last that one sees.
[[gnu::noinline, gnu::flatten]] inline index_t pairs_formed(const Place& place, Shape s) {
  constexpr index_t kHeight = 8;
  index_t pairs = 0;
  for (index_t r = 0; r < s.rows; r += kHeight) {
    const Range rows{r, std::min(r + kHeight, s.rows)};
    pairs += rows.size() * place.cols_of(rows, s.cols).size();
  }
  return pairs;
}
/// How many of some rows of a tile see a key under a pattern.
[[gnu::noinline, gnu::flatten]] inline index_t rows_seeing_key(const Place& place, index_t key, Range rows) {
  index_t count = 0;
  for_bits(place.mask.pattern->keys(), place.col + key, rows.shifted(place.row),
           [&](index_t, std::uint64_t bits) { count += std::popcount(bits); });
  return count;
}
/// What a list has room for beyond what is written to it.
constexpr index_t kSpare = 8;
/// Writes what list i holds of a window, counted from an origin, and returns how many these are. Eight at a
/// time: a loop over the bits of a word ends where branches are not predicted.
[[gnu::noinline, gnu::flatten]] inline index_t write_list(const RunLists& lists, index_t i, Range window,
                                                          index_t origin, std::int32_t* list) {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // a bit to find where none is left
  index_t count = 0;
  for_bits(lists, i, window, [&](index_t first, std::uint64_t bits) {
    const auto base = static_cast<std::int32_t>(window.begin - origin + first);
    const index_t end = count + std::popcount(bits);
    for (; count < end; count += kSpare)
      for (index_t k = 0; k < kSpare; ++k, bits &= bits - 1) list[count + k] = base + std::countr_zero(bits | kLast);
    count = end;
  });
  return count;
}
/// The keys of a part of a tile that a row sees under a pattern, and the rows of a part that see a key.
[[gnu::always_inline]] inline index_t keys_of_row(const Place& place, index_t row, Range keys, std::int32_t* list) {
  return write_list(place.mask.pattern->rows(), place.row + row, keys.shifted(place.col), place.col, list);
}
[[gnu::always_inline]] inline index_t rows_of_key(const Place& place, index_t key, Range rows, std::int32_t* list) {
  return write_list(place.mask.pattern->keys(), place.col + key, rows.shifted(place.row), place.row, list);
}

/// The ones among `rows` rows that see one of these keys.
[[gnu::noinline, gnu::flatten]] inline Range rows_seeing(const Place& place, Range keys, index_t rows) {
  return place.rows_of(keys, rows);
}

}  // namespace
}  // namespace redblue::kernel::simd
