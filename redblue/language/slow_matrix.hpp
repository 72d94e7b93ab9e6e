#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "redblue/language/range.hpp"

namespace redblue {

/// What the rows of an array go along.
enum class Side : std::uint8_t { queries, keys, neither };
/// What its words are.
enum class Form : std::uint8_t {
  rows,      ///< features, statistics or sums; anything but the following
  pairs,     ///< one for each pair of a query and a key
  scores,    ///< likewise, in an array that an operation may be asked for
  modifier,  ///< what acts on scores beside scale and mask (masks/modifiers.hpp), or its gradient
};

/// The arrays in slow memory, one a line: the name, what its rows go along, what its words are, and the array whose
/// words it has the width of in fast memory (Residence::alike). Everything else that is said of an array is read here.
/// A schedule names them; a machine that computes knows where they lie. docs/notation.md says what each one holds.
// clang-format off
#define REDBLUE_SLOW_ARRAYS(ARRAY) \
  /* of forward passes; S: scores */                                                             \
  ARRAY(Q, queries, rows, Q)                                                                     \
  ARRAY(K, keys, rows, K)                                                                        \
  ARRAY(V, keys, rows, V)                                                                        \
  ARRAY(O, queries, rows, O)                                                                     \
  ARRAY(lse, queries, rows, lse)                                                                 \
  ARRAY(S, queries, scores, S)                                                                   \
  /* of backward passes; P: probabilities, later dS */                                           \
  ARRAY(dO, queries, rows, dO)                                                                   \
  ARRAY(dlse, queries, rows, lse)                                                                \
  ARRAY(dQ, queries, rows, dQ)                                                                   \
  ARRAY(dK, keys, rows, dK)                                                                      \
  ARRAY(dV, keys, rows, dV)                                                                      \
  ARRAY(D, queries, rows, lse)                                                                   \
  ARRAY(P, queries, scores, S)                                                                   \
  /* of the papers' parametrisation; A1X = A1 X, h = A3 Y */                                     \
  ARRAY(A1, queries, rows, A1)                                                                   \
  ARRAY(A2, keys, rows, A2)                                                                      \
  ARRAY(A3, keys, rows, A3)                                                                      \
  ARRAY(X, neither, rows, X)                                                                     \
  ARRAY(Y, neither, rows, Y)                                                                     \
  ARRAY(A1X, queries, rows, A1X)                                                                 \
  ARRAY(h, keys, rows, h)                                                                        \
  /* of its gradient */                                                                          \
  ARRAY(A, queries, pairs, S)                                                                    \
  ARRAY(f, queries, pairs, S)                                                                    \
  ARRAY(q, queries, pairs, S)                                                                    \
  ARRAY(p, queries, pairs, S)                                                                    \
  ARRAY(T, neither, rows, T)                                                                     \
  ARRAY(U, queries, rows, U)                                                                     \
  ARRAY(dU, queries, rows, dU)                                                                   \
  ARRAY(g, neither, rows, g)                                                                     \
  /* gradients of everything else */                                                             \
  ARRAY(dX, neither, rows, dX)                                                                   \
  ARRAY(dY, neither, rows, dY)                                                                   \
  ARRAY(dA1, queries, rows, dA1)                                                                 \
  ARRAY(dA2, keys, rows, dA2)                                                                    \
  ARRAY(dA3, keys, rows, dA3)                                                                    \
  ARRAY(dh, keys, rows, dh)                                                                      \
  /* projections to one head */                                                                  \
  ARRAY(WQ, neither, rows, WQ)                                                                   \
  ARRAY(WK, neither, rows, WK)                                                                   \
  ARRAY(WV, neither, rows, WV)                                                                   \
  ARRAY(dWQ, neither, rows, dWQ)                                                                 \
  ARRAY(dWK, neither, rows, dWK)                                                                 \
  ARRAY(dWV, neither, rows, dWV)                                                                 \
  /* states of linear attention */                                                               \
  ARRAY(Z, neither, rows, Z)                                                                     \
  ARRAY(G, neither, rows, G)                                                                     \
  /* of one group of keys */                                                                     \
  ARRAY(Og, queries, rows, O)                                                                    \
  ARRAY(lse_g, queries, rows, lse)                                                               \
  ARRAY(dQg, queries, rows, dQ)                                                                  \
  /* of the keys that each query sees, one below the other */                                    \
  ARRAY(P_b, queries, rows, S)                                                                   \
  ARRAY(dS_b, queries, rows, S)                                                                  \
  /* modifiers of scores (masks/modifiers.hpp), and their gradients */                           \
  ARRAY(bias, neither, modifier, bias)                                                           \
  ARRAY(slopes, neither, modifier, lse)                                                          \
  ARRAY(sinks, neither, modifier, lse)                                                           \
  ARRAY(dBias, neither, modifier, dBias)                                                         \
  ARRAY(dSinks, neither, modifier, lse)                                                          \
  /* of polynomial attention: row sums of weights; gradients of O before division, and of den */ \
  ARRAY(den, queries, rows, O)                                                                   \
  ARRAY(dNum, queries, rows, O)                                                                  \
  ARRAY(dDen, queries, rows, O)                                                                  \
  /* numbers of rows, chosen for the data, or of what each row takes */                          \
  ARRAY(ids, queries, rows, ids)                                                                 \
  /* of hashing methods: what rows are sorted by, sorted rows, pairs under way */                \
  ARRAY(hash_q, queries, rows, hash_q)                                                           \
  ARRAY(hash_k, keys, rows, hash_k)                                                              \
  ARRAY(order_q, queries, rows, order_q)                                                         \
  ARRAY(order_k, keys, rows, order_k)                                                            \
  ARRAY(runs, queries, rows, runs)                                                               \
  /* tangents of inputs and outputs */                                                           \
  ARRAY(tQ, queries, rows, tQ)                                                                   \
  ARRAY(tK, keys, rows, tK)                                                                      \
  ARRAY(tV, keys, rows, tV)                                                                      \
  ARRAY(tO, queries, rows, tO)                                                                   \
  ARRAY(tlse, queries, rows, lse)                                                                \
  /* of double backward: directions gQ, gK, gV, gradients; Hm, Xm: sums of rows; LQg: of a group */\
  ARRAY(gQ, queries, rows, gQ)                                                                   \
  ARRAY(gK, keys, rows, gK)                                                                      \
  ARRAY(gV, keys, rows, gV)                                                                      \
  ARRAY(LQ, queries, rows, LQ)                                                                   \
  ARRAY(LK, keys, rows, LK)                                                                      \
  ARRAY(LV, keys, rows, LV)                                                                      \
  ARRAY(LdO, queries, rows, LdO)                                                                 \
  ARRAY(Ldlse, queries, rows, lse)                                                               \
  ARRAY(Hm, queries, rows, lse)                                                                  \
  ARRAY(Xm, queries, rows, lse)                                                                  \
  ARRAY(LQg, queries, rows, LQ)                                                                  \
  /* directions of a bias, and its gradient in double backward */                                \
  ARRAY(tBias, neither, modifier, tBias)                                                         \
  ARRAY(gBias, neither, modifier, gBias)                                                         \
  ARRAY(LBias, neither, modifier, LBias)                                                         \
  /* directions of sinks, and their gradient in double backward */                               \
  ARRAY(tSinks, neither, modifier, lse)                                                          \
  ARRAY(gSinks, neither, modifier, lse)                                                          \
  ARRAY(LSinks, neither, modifier, lse)                                                          \
  /* few keys, values and weights in place of all */                                             \
  ARRAY(K_few, neither, rows, K_few)                                                             \
  ARRAY(V_few, neither, rows, V_few)                                                             \
  ARRAY(w_few, neither, rows, w_few)
// clang-format on

#define REDBLUE_ARRAY(name, side, form, as_wide_as) name,
enum class SlowArray : std::uint8_t { REDBLUE_SLOW_ARRAYS(REDBLUE_ARRAY) };
#undef REDBLUE_ARRAY

struct ArrayFacts {
  std::string_view name;
  Side side;
  Form form;
  SlowArray as_wide_as;
};
#define REDBLUE_ARRAY(name, side, form, as_wide_as) {#name, Side::side, Form::form, SlowArray::as_wide_as},
inline constexpr auto kArrayFacts = std::to_array<ArrayFacts>({REDBLUE_SLOW_ARRAYS(REDBLUE_ARRAY)});
#undef REDBLUE_ARRAY
#undef REDBLUE_SLOW_ARRAYS
inline constexpr std::size_t kSlowArrays = kArrayFacts.size();

constexpr std::size_t index_of(SlowArray a) { return static_cast<std::size_t>(a); }
constexpr const ArrayFacts& facts_of(SlowArray a) { return kArrayFacts[index_of(a)]; }
constexpr std::string_view name_of(SlowArray a) { return facts_of(a).name; }
inline constexpr auto kSlowArrayNames = [] {
  std::array<std::string_view, kSlowArrays> names;
  for (std::size_t i = 0; i < kSlowArrays; ++i) names[i] = kArrayFacts[i].name;
  return names;
}();

constexpr Side side_of(SlowArray a) { return facts_of(a).side; }
/// Is it lse, its gradient, its tangent, or the gradient of its gradient: a number for each query, which has the type
/// of the arithmetic rather than that of rows?
constexpr bool is_statistic(SlowArray a) {
  return a == SlowArray::lse || a == SlowArray::dlse || a == SlowArray::tlse || a == SlowArray::Ldlse;
}
constexpr bool is_of_modifiers(SlowArray a) { return facts_of(a).form == Form::modifier; }
/// Is it a gradient of a bias?
constexpr bool is_bias_gradient(SlowArray a) { return a == SlowArray::dBias || a == SlowArray::LBias; }
/// Has it the shape of a bias: is it one, the direction in which one moves, or a gradient of one?
constexpr bool is_like_bias(SlowArray a) {
  return a == SlowArray::bias || a == SlowArray::tBias || a == SlowArray::gBias || is_bias_gradient(a);
}
/// Is it a gradient of sinks?
constexpr bool is_sinks_gradient(SlowArray a) { return a == SlowArray::dSinks || a == SlowArray::LSinks; }
/// Has it a word for each query head: slopes, sinks, a direction in which sinks move, or a gradient of them?
constexpr bool is_of_heads(SlowArray a) { return is_of_modifiers(a) && !is_like_bias(a); }
/// Is it a matrix over pairs of queries and keys that an operation may be asked for?
constexpr bool is_of_pairs(SlowArray a) { return facts_of(a).form == Form::scores; }
/// Has it a word for each pair?
constexpr bool is_quadratic(SlowArray a) { return is_of_pairs(a) || facts_of(a).form == Form::pairs; }

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
