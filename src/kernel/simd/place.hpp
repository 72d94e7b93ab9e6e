#pragma once
#include "redblue/core/mask.hpp"

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

/// Of `rows` rows those that see one of these keys.
[[gnu::noinline, gnu::flatten]] inline Range rows_seeing(const Place& place, Range keys, index_t rows) {
  return place.rows_of(keys, rows);
}

}  // namespace
}  // namespace redblue::kernel::simd
