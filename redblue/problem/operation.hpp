#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "redblue/language/names.hpp"
#include "redblue/language/slow_matrix.hpp"

namespace redblue {

/// What is computed. docs/notation.md has the sizes of every array.
///   forward     Q, K, V -> O, lse
///   backward    Q, K, V, O, lse, dO -> dQ, dK, dV; with dlse, where lse has a gradient, too
///   forward_x   A1, A2, A3, X, Y -> O, lse, with Q = A1 X, K = A2, V = A3 Y (Li et al. 2410.09397, Definition 3.1)
///   gradient_x  A1, A2, A3, X, Y, O, lse, dO -> g = dL/dX
///   backward_x  the same inputs -> dX, dY, dA1, dA2, dA3
///   backward_w  A1, A2, A3, WQ, WK, WV, O, lse, dO -> dWQ, dWK, dWV, dA1, dA2, dA3, with Q = A1 WQ, K = A2 WK, V = A3
///   WV
///   scores      Q, K -> S, the scores with all that the problem does to them before the softmax; -inf where hidden
///   weights     Q, K, lse -> P = exp(S - lse); 0 where hidden
///   tangent     Q, K, V, O, lse, tQ, tK, tV -> tO, tlse: how O and lse move when Q, K, V move along tQ, tK, tV, and a
///               bias along tBias and sinks along tSinks, where these are given
///   second      the inputs of backward, gQ, gK, gV -> LQ, LK, LV, LdO, and Ldlse where dlse is given: the gradients of
///               L = <gQ, dQ> + <gK, dK> + <gV, dV>; with gBias, too, + <gBias, dBias>, and LBias, the gradient in the
///               bias; with gSinks + <gSinks, dSinks>, and LSinks
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
  merge,
  tangent,
  second
};

/// What an operation is. Each field of each is said in the table: none has a default.
struct OperationFacts {
  Operation operation;
  std::string_view name;
  bool forward;                              ///< are O and lse what it computes?
  bool follows;                              ///< does it need O and lse of a forward pass?
  bool of_pairs;                             ///< is what it computes a matrix with a word for each query and key?
  bool projected;                            ///< are Q, K, V products of A1, A2, A3 and weights?
  bool attends;                              ///< do queries see keys? merge has neither, nor their features
  std::span<const SlowArray> reads, writes;  ///< in the order in which a run asks for tensors
};

namespace detail {
template <SlowArray... A>
inline constexpr std::array<SlowArray, sizeof...(A)> kArrays{A...};
constexpr auto operation_facts() {
  using enum SlowArray;
  constexpr bool yes = true, no = false;
  // clang-format off
  return std::to_array<OperationFacts>({
      //                                    forward follows of_pairs projected attends
      {Operation::forward,    "forward",    yes, no,  no,  no,  yes,
       kArrays<Q, K, V, bias, slopes, sinks>, kArrays<O, lse>},
      {Operation::backward,   "backward",   no,  yes, no,  no,  yes,
       kArrays<Q, K, V, O, lse, dO, dlse, bias, slopes, sinks>, kArrays<dQ, dK, dV, dBias, dSinks>},
      {Operation::forward_x,  "forward-x",  yes, no,  no,  yes, yes, kArrays<A1, A2, A3, X, Y>, kArrays<O, lse>},
      {Operation::gradient_x, "gradient-x", no,  yes, no,  yes, yes, kArrays<A1, A2, A3, X, Y, O, lse, dO>, kArrays<g>},
      {Operation::backward_x, "backward-x", no,  yes, no,  yes, yes,
       kArrays<A1, A2, A3, X, Y, O, lse, dO>, kArrays<dX, dY, dA1, dA2, dA3>},
      {Operation::backward_w, "backward-w", no,  yes, no,  yes, yes,
       kArrays<A1, A2, A3, WQ, WK, WV, O, lse, dO>, kArrays<dWQ, dWK, dWV, dA1, dA2, dA3>},
      {Operation::scores,     "scores",     no,  no,  yes, no,  yes,  kArrays<Q, K, bias, slopes>, kArrays<S>},
      {Operation::weights,    "weights",    no,  no,  yes, no,  yes,  kArrays<Q, K, lse, bias, slopes>, kArrays<P>},
      {Operation::merge,      "merge",      yes, no,  no,  no,  no,   kArrays<Og, lse_g>, kArrays<O, lse>},
      {Operation::tangent,    "tangent",    no,  yes, no,  no,  yes,
       kArrays<Q, K, V, O, lse, tQ, tK, tV, bias, slopes, sinks, tBias, tSinks>, kArrays<tO, tlse>},
      {Operation::second,     "second",     no,  yes, no,  no,  yes,
       kArrays<Q, K, V, O, lse, dO, dlse, gQ, gK, gV, bias, slopes, sinks, gBias, gSinks>,
       kArrays<LQ, LK, LV, LdO, Ldlse, LBias, LSinks>},
  });
  // clang-format on
}
}  // namespace detail
inline constexpr auto kOperations = detail::operation_facts();
static_assert([] {
  for (std::size_t i = 0; i < kOperations.size(); ++i)
    if (static_cast<std::size_t>(kOperations[i].operation) != i) return false;
  return true;
}());

inline constexpr auto kOperationNames = [] {
  std::array<std::string_view, kOperations.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kOperations[i].name;
  return names;
}();

constexpr const OperationFacts& facts_of(Operation o) { return kOperations[static_cast<std::size_t>(o)]; }
constexpr const auto& names_of(Operation /*any*/) { return kOperationNames; }
constexpr bool is_forward(Operation o) { return facts_of(o).forward; }
constexpr bool is_of_pairs(Operation o) { return facts_of(o).of_pairs; }
constexpr bool follows_forward(Operation o) { return facts_of(o).follows; }
constexpr bool is_projected(Operation o) { return facts_of(o).projected; }
/// Does it say how something moves when Q, K and V move?
constexpr bool has_directions(Operation o) { return o == Operation::tangent || o == Operation::second; }
constexpr bool attends(Operation o) { return facts_of(o).attends; }

/// Which of A1, A2, A3 are one and the same array. Bounds depend on it; of the schedules only shared_source uses it.
enum class Sources : std::uint8_t {
  distinct,
  shared,  ///< A2 = A3: keys and values come from one source
  self,    ///< A1 = A2 = A3: self-attention
};
inline constexpr std::array<std::string_view, 3> kSourcesNames = {"distinct", "shared", "self"};
constexpr const auto& names_of(Sources /*any*/) { return kSourcesNames; }

}  // namespace redblue
