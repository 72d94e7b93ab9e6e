#pragma once
#include <array>
#include <cstddef>
#include <string_view>

#include "redblue/masks/mask.hpp"

namespace redblue {

/// The arrays in slow memory. A schedule names them; a machine that computes knows where they lie.
/// docs/notation.md says what each one holds.
enum class SlowArray : std::uint8_t {
  // clang-format off
  Q, K, V, O, lse, S,         // forward; S: scores
  dO, dQ, dK, dV, D, P,       // backward; P: probabilities, later dS
  A1, A2, A3, X, Y, A1X, h,   // the papers' parametrisation; A1X = A1 X, h = A3 Y
  A, f, q, p, T, U, dU, g,    // its gradient
  dX, dY, dA1, dA2, dA3, dh,  // gradients of everything else
  WQ, WK, WV, dWQ, dWK, dWV,  // projections to one head
  Z, G,                       // states of linear attention
  Og, lse_g, dQg,             // of one group of keys
  P_b, dS_b,                  // of the keys that each query sees, one below the other
  bias, slopes, sinks,        // modifiers of scores (masks/modifiers.hpp)
  dBias, dSinks,              // their gradients
  den, dNum, dDen,            // of polynomial attention: row sums of weights; gradients of O before division, and of den
  ids,                        // numbers of rows, chosen for the data, or of what each row takes
  hash_q, hash_k, order_q, order_k, runs,  // of hashing methods: what rows are sorted by, sorted rows, pairs under way
  K_few, V_few, w_few,        // few keys, values and weights in place of all
};
inline constexpr auto kSlowArrayNames = std::to_array<std::string_view>({
    "Q", "K", "V", "O", "lse", "S",
    "dO", "dQ", "dK", "dV", "D", "P",
    "A1", "A2", "A3", "X", "Y", "A1X", "h",
    "A", "f", "q", "p", "T", "U", "dU", "g",
    "dX", "dY", "dA1", "dA2", "dA3", "dh",
    "WQ", "WK", "WV", "dWQ", "dWK", "dWV",
    "Z", "G",
    "Og", "lse_g", "dQg",
    "P_b", "dS_b",
    "bias", "slopes", "sinks",
    "dBias", "dSinks",
    "den", "dNum", "dDen",
    "ids",
    "hash_q", "hash_k", "order_q", "order_k", "runs",
    "K_few", "V_few", "w_few",
});
// clang-format on
inline constexpr std::size_t kSlowArrays = kSlowArrayNames.size();
static_assert(kSlowArrays == static_cast<std::size_t>(SlowArray::w_few) + 1);

constexpr std::size_t index_of(SlowArray a) { return static_cast<std::size_t>(a); }
constexpr std::string_view name_of(SlowArray a) { return kSlowArrayNames[index_of(a)]; }

/// What the rows of an array go along.
enum class Side : std::uint8_t { queries, keys, neither };
constexpr Side side_of(SlowArray a) {
  using enum SlowArray;
  for (const SlowArray key : {K, V, dK, dV, A2, A3, h, dA2, dA3, dh, hash_k, order_k})
    if (a == key) return Side::keys;
  for (const SlowArray shared :
       {X, Y, T, g, dX, dY, WQ, WK, WV, dWQ, dWK, dWV, Z, G, bias, slopes, sinks, dBias, dSinks, K_few, V_few, w_few})
    if (a == shared) return Side::neither;
  return Side::queries;
}

/// Is it an array of what acts on scores beside scale and mask (masks/modifiers.hpp), or the gradient of one?
constexpr bool is_of_modifiers(SlowArray a) {
  using enum SlowArray;
  return a == bias || a == slopes || a == sinks || a == dBias || a == dSinks;
}

/// Is it a matrix over pairs of queries and keys that an operation may be asked for?
constexpr bool is_of_pairs(SlowArray a) { return a == SlowArray::S || a == SlowArray::P; }

/// A rectangle of one array in slow memory, without data: counting needs none.
struct Block {
  SlowArray array{};
  index_t instance = 0;  ///< which (batch, key-value head)
  index_t row = 0;
  index_t col = 0;
  Shape shape{};
};

/// One matrix in slow memory, or a rectangle of it.
struct SlowMatrix {
  SlowArray array{};
  Shape shape{};
  index_t instance = 0;
  index_t first_row = 0;
  index_t first_col = 0;

  constexpr Block block(index_t row, index_t col, Shape s) const {
    return {array, instance, first_row + row, first_col + col, s};
  }
  constexpr Block block(Range rows, Range cols) const {
    return block(rows.begin, cols.begin, {rows.size(), cols.size()});
  }
  constexpr SlowMatrix columns(index_t first, index_t count) const {
    return {array, {shape.rows, count}, instance, first_row, first_col + first};
  }
  constexpr Block rows(index_t first, index_t count) const { return block(first, 0, {count, shape.cols}); }
  constexpr Block rows(Range r) const { return rows(r.begin, r.size()); }
  constexpr Block all() const { return block(0, 0, shape); }
};

/// A matrix cut into br x bc blocks; blocks at the lower and right edge may be smaller.
class Tiled {
 public:
  constexpr Tiled(const SlowMatrix& matrix, index_t br, index_t bc) : matrix_(matrix), br_(br), bc_(bc) {}

  constexpr index_t rows() const { return ceil_div(matrix_.shape.rows, br_); }
  constexpr index_t cols() const { return ceil_div(matrix_.shape.cols, bc_); }
  constexpr Block operator()(index_t i, index_t j = 0) const {
    return matrix_.block(i * br_, j * bc_,
                         {std::min(br_, matrix_.shape.rows - i * br_), std::min(bc_, matrix_.shape.cols - j * bc_)});
  }

 private:
  SlowMatrix matrix_;
  index_t br_;
  index_t bc_;
};

/// Whole rows, br at a time.
constexpr Tiled tiled(const SlowMatrix& m, index_t br) { return {m, br, m.shape.cols}; }
constexpr Tiled tiled(const SlowMatrix& m, index_t br, index_t bc) { return {m, br, bc}; }

}  // namespace redblue
