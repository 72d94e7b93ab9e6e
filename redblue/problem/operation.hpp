#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redblue {

/// What is computed. docs/notation.md has the sizes of every array.
///   forward     Q, K, V -> O, lse
///   backward    Q, K, V, O, lse, dO -> dQ, dK, dV
///   forward_x   A1, A2, A3, X, Y -> O, lse, with Q = A1 X, K = A2, V = A3 Y (Li et al. 2410.09397, Definition 3.1)
///   gradient_x  A1, A2, A3, X, Y, O, lse, dO -> g = dL/dX
///   backward_x  the same inputs -> dX, dY, dA1, dA2, dA3
///   backward_w  A1, A2, A3, WQ, WK, WV, O, lse, dO -> dWQ, dWK, dWV, dA1, dA2, dA3, with Q = A1 WQ, K = A2 WK, V = A3
///   WV
///   scores      Q, K -> S, the scores with all that the problem does to them before the softmax; -inf where hidden
///   weights     Q, K, lse -> P = exp(S - lse); 0 where hidden
///   merge       Og, lse_g -> O, lse, which are given: attention to two sets of keys becomes attention to both
enum class Operation : std::uint8_t {
  forward,
  backward,
  forward_x,
  gradient_x,
  backward_x,
  backward_w,
  scores,
  weights,
  merge
};
inline constexpr std::array<std::string_view, 9> kOperationNames = {
    "forward", "backward", "forward-x", "gradient-x", "backward-x", "backward-w", "scores", "weights", "merge"};

constexpr std::string_view name_of(Operation o) { return kOperationNames[static_cast<std::size_t>(o)]; }
constexpr std::optional<Operation> operation_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kOperationNames.size(); ++i)
    if (kOperationNames[i] == name) return static_cast<Operation>(i);
  return std::nullopt;
}
/// Are O and lse what it computes?
constexpr bool is_forward(Operation o) {
  return o == Operation::forward || o == Operation::forward_x || o == Operation::merge;
}
/// Is what it computes a matrix with a word for each query and key?
constexpr bool is_of_pairs(Operation o) { return o == Operation::scores || o == Operation::weights; }
/// Does it need O and lse of a forward pass?
constexpr bool follows_forward(Operation o) { return !is_forward(o) && !is_of_pairs(o); }
/// Are Q, K, V products of A1, A2, A3 and weights?
constexpr bool is_projected(Operation o) {
  return o != Operation::forward && o != Operation::backward && o != Operation::merge && !is_of_pairs(o);
}

/// Which of A1, A2, A3 are one and the same array. Bounds depend on it; of the schedules only shared_source uses it.
enum class Sources : std::uint8_t {
  distinct,
  shared,  ///< A2 = A3: keys and values come from one source
  self,    ///< A1 = A2 = A3: self-attention
};
inline constexpr std::array<std::string_view, 3> kSourcesNames = {"distinct", "shared", "self"};

constexpr std::string_view name_of(Sources s) { return kSourcesNames[static_cast<std::size_t>(s)]; }
constexpr std::optional<Sources> sources_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kSourcesNames.size(); ++i)
    if (kSourcesNames[i] == name) return static_cast<Sources>(i);
  return std::nullopt;
}

}  // namespace redblue
