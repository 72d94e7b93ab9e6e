#pragma once
#include "redblue/kernels/x86/bf16.hpp"

/// Products of bf16 pairs by matrix tiles, for AMX-BF16: C += A B (TDPBF16PS). A tile of A is 16 rows of 16 pairs, of B
/// 16 rows of 16 columns of pairs, of C 16 x 16 words of f32.
namespace redblue::kernel::simd {
namespace {

/// g++ 12 does not know that the instructions for tiles read memory, so that it may leave words unwritten until later.
[[gnu::always_inline]] inline void finish_stores() { __asm__ volatile("" ::: "memory"); }

struct MultiplyAmx : MultiplyBf16 {
  static constexpr Layout kValues = Layout::bf16_columns;
  static constexpr index_t kTile = 16;  ///< rows of A, steps, and columns of B
  class Session;

  index_t rest = 0;  ///< steps of the smaller tiles

  /// The first of k steps, up to where tiles reach.
  index_t steps_in_tiles(index_t k) const { return k % kTile == rest ? k : k / kTile * kTile; }

  /// c <- [begun +] A B over `steps`, as steps_in_tiles gives them. Rows of A are `stride` bytes apart, rows of
  /// `begun`, if there are such, `apart` words. Whole tiles also fetch the lines `ahead` bytes after those of A, if
  /// that is above 0.
  template <int N>
  void product(F32x16 (&c)[kTile][N], const void* a, index_t stride, const float* b, index_t ldb, index_t steps,
               const float* begun, index_t apart, index_t ahead) const {
    static_assert(N >= 1 && N <= 4);
    constexpr index_t kRow = 64;  // bytes
    const auto* p = static_cast<const char*>(a);
    const index_t sb = ldb * index_t{sizeof(float)};
    finish_stores();
    if (begun == nullptr) {
      _tile_zero(0);
      if constexpr (N > 1) _tile_zero(1);
      if constexpr (N > 2) _tile_zero(2);
      if constexpr (N > 3) _tile_zero(3);
    } else {
      const index_t bytes = apart * index_t{sizeof(float)};
      _tile_loadd(0, begun, bytes);
      if constexpr (N > 1) _tile_loadd(1, begun + kTile, bytes);
      if constexpr (N > 2) _tile_loadd(2, begun + 2 * kTile, bytes);
      if constexpr (N > 3) _tile_loadd(3, begun + 3 * kTile, bytes);
    }
    index_t t = kTile;
    for (; t <= steps; t += kTile, p += kRow, b += kTile * ldb) {
      if (ahead > 0)
        for (index_t r = 0; r < kTile; ++r) fetch(p + ahead + r * stride);
      _tile_loadd(4, p, stride);
      _tile_loadd(5, b, sb);
      _tile_dpbf16ps(0, 4, 5);
      if constexpr (N > 1) {
        _tile_loadd(5, b + kTile, sb);
        _tile_dpbf16ps(1, 4, 5);
      }
      if constexpr (N > 2) {
        _tile_loadd(5, b + 2 * kTile, sb);
        _tile_dpbf16ps(2, 4, 5);
      }
      if constexpr (N > 3) {
        _tile_loadd(5, b + 3 * kTile, sb);
        _tile_dpbf16ps(3, 4, 5);
      }
    }
    if (t - kTile < steps) {
      _tile_loadd(6, p, stride);
      _tile_loadd(7, b, sb);
      _tile_dpbf16ps(0, 6, 7);
      if constexpr (N > 1) {
        _tile_loadd(7, b + kTile, sb);
        _tile_dpbf16ps(1, 6, 7);
      }
      if constexpr (N > 2) {
        _tile_loadd(7, b + 2 * kTile, sb);
        _tile_dpbf16ps(2, 6, 7);
      }
      if constexpr (N > 3) {
        _tile_loadd(7, b + 3 * kTile, sb);
        _tile_dpbf16ps(3, 6, 7);
      }
    }
    auto* const to = reinterpret_cast<char*>(&c);
    _tile_stored(0, to, N * kRow);
    if constexpr (N > 1) _tile_stored(1, to + kRow, N * kRow);
    if constexpr (N > 2) _tile_stored(2, to + 2 * kRow, N * kRow);
    if constexpr (N > 3) _tile_stored(3, to + 3 * kRow, N * kRow);
    finish_stores();
  }
};

/// Gives the tiles their shapes, without which a thread cannot use them: 0 to 3 for C, 4 and 5 for A and B, 6 and 7 for
/// the steps of A and B that are left after whole tiles.
class MultiplyAmx::Session {
 public:
  explicit Session(index_t steps) : multiply_{{}, steps % kTile} {
    struct alignas(64) {
      std::uint8_t palette = 1, start = 0, reserved[14] = {};
      std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
    } shapes;
    if (multiply_.rest > 0) {
      shapes.bytes[6] = static_cast<std::uint16_t>(4 * multiply_.rest), shapes.rows[6] = kTile;
      shapes.bytes[7] = 64, shapes.rows[7] = static_cast<std::uint8_t>(multiply_.rest);
    }
    finish_stores();
    _tile_loadconfig(&shapes);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { _tile_release(); }
  MultiplyAmx multiply() const { return multiply_; }

 private:
  MultiplyAmx multiply_;
};

/// Rows of values become columns of pairs. The end of a column, up to a whole vector, is zeros.
inline void pair_columns(const std::uint16_t* from, Shape shape, index_t stride, View<float> pairs) {
  constexpr index_t L = F32x16::kLanes;
  alignas(64) float squares[L * 2 * L], turned[L * L];
  for (index_t p = 0; 2 * p < shape.rows; p += L)
    for (index_t t = 0; t < shape.cols; t += 2 * L) {
      const index_t cols = std::min(2 * L, shape.cols - t), rows = std::min(2 * L, shape.rows - 2 * p);
      const std::uint16_t* const words = from + 2 * p * stride + t;
      pair_rows(words, {rows, cols}, stride, {squares, {L, cols}, 2 * L}, 2 * L * stride);
      for (index_t r = ceil_div(rows, 2); r < L; ++r) std::fill_n(squares + r * 2 * L, 2 * L, 0.0F);
      for (index_t u = 0; u < cols; u += L) {
        const bool whole = u + L <= cols;
        float* const to = &pairs(t + u, p);
        transpose_square(F32x16{}, squares + u, 2 * L, whole ? to : turned, whole ? pairs.row_stride : L);
        for (index_t i = 0; !whole && i < cols - u; ++i) F32x16::load(turned + i * L).store(to + i * pairs.row_stride);
      }
    }
}

}  // namespace
}  // namespace redblue::kernel::simd
