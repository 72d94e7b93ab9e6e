#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "redblue/hardware/x86/loops.hpp"

namespace redblue::hardware {

namespace {

constexpr int kTiles = 6;                 // of sums that do not wait for each other
constexpr int kWords = 16 * 16;           // of sums in a tile
constexpr int kMacsOfTile = kWords * 32;  // of one instruction

struct alignas(64) Shapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// kTiles tiles of sums of 32 products, x <- x + a b, which start apart.
double tile_products(std::int64_t steps) {
  const Shapes shapes;
  alignas(64) std::uint16_t a[2 * kWords], b[2 * kWords];
  alignas(64) float sums[kTiles][kWords];
  std::fill_n(a, std::size(a), 0x3f80);  // 1
  std::fill_n(b, std::size(b), 0x3a80);  // 2^-10
  for (int i = 0; i < kTiles; ++i) std::fill_n(sums[i], kWords, static_cast<float>(i));
  __asm__ volatile("" ::: "memory");  // g++ 12 does not know that these instructions read memory
  _tile_loadconfig(&shapes);
  _tile_loadd(0, sums[0], 64);
  _tile_loadd(1, sums[1], 64);
  _tile_loadd(2, sums[2], 64);
  _tile_loadd(3, sums[3], 64);
  _tile_loadd(4, sums[4], 64);
  _tile_loadd(5, sums[5], 64);
  _tile_loadd(6, a, 64);
  _tile_loadd(7, b, 64);
  for (std::int64_t s = 0; s < steps; ++s) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
  _tile_stored(4, sums[4], 64);
  _tile_stored(5, sums[5], 64);
  _tile_release();
  double sum = 0;
  for (const auto& tile : sums)
    for (const float x : tile) sum += static_cast<double>(x);
  return sum;
}

}  // namespace

const Loops kAmxBf16 = {Isa::amx_bf16, DType::bf16, kMacsOfTile, kTiles, tile_products, nullptr, nullptr};

}  // namespace redblue::hardware
