#pragma once
#include <cstdint>

#include "redblue/language/types.hpp"

namespace redblue {

/// What a problem does to its scores beside scaling and masking them, in this order:
///   S = softcap tanh(scale Q K^T / softcap) + bias - slope |distance|,
/// the softmax has one more score in each row, that of a sink, whose value is 0, and weights are dropped at random.
struct Modifiers {
  /// The bias has no words, a row that all queries share, or a row for each query. It always has a column for each key.
  enum class Bias : std::uint8_t { none, of_keys, of_pairs };

  double softcap = 0;  ///< 0: none
  Bias bias = Bias::none;
  index_t bias_copies = 1;     ///< scores of an instance that share one word of the bias (for bounds)
  bool bias_gradient = false;  ///< a backward pass adds dS to dBias
  /// Under a softmax whose keys share the bias of a query, dBias is exp(sink - lse) D, a number for each query: it
  /// needs no dS, and bias_gradient is false.
  bool bias_gradient_of_rows = false;
  /// Tangents and double backward: the bias moves along a direction of its shape. Double backward then forms LBias, the
  /// gradient of the bias there, whatever keys share, and bias_gradient is true.
  bool bias_moves = false;
  bool slopes = false;       ///< ALiBi: query head h takes slopes[h] |p + slope_offset - j| off the score of key j
  bool slopes_kept = false;  ///< of a part: they are resident for all parts of the problem (schedules/parts/cores.hpp)
  index_t slope_offset = 0;
  bool sinks = false;           ///< query head h has a sink with the score sinks[h]
  bool sinks_gradient = false;  ///< a backward pass forms dSinks, too
  /// Tangents and double backward: the sinks move along a direction. Double backward then forms LSinks, the gradient of
  /// the sinks there, and sinks_gradient is true.
  bool sinks_move = false;
  double dropout = 0;      ///< the share of weights that become 0; the others grow by 1 / (1 - dropout)
  std::uint64_t seed = 0;  ///< of dropout
  /// Dropout of a part counts as the whole does: from the first query head, query and key that the part has of the
  /// whole, and with as many query heads more in each batch as the whole has beside these.
  index_t drop_head = 0, drop_other_heads = 0, drop_row = 0, drop_col = 0;

  // Who shares a bias or sinks, for their gradients: instance i is batch i / kv_heads, key-value head i % kv_heads.
  index_t kv_heads = 1;
  bool bias_over_batches = false;
  bool bias_over_heads = false;
  // Who shares it within an instance: all positions, the query heads of a group, all keys.
  bool bias_over_positions = false;
  bool bias_over_group = false;
  bool bias_over_keys = false;

  /// The first query head of an instance, of all heads of all batches, as dropout counts them.
  constexpr index_t dropped_head(index_t instance, index_t group) const {
    return drop_head + instance * group + instance / kv_heads * drop_other_heads;
  }
  constexpr bool forms_bias_gradient() const { return bias_gradient || bias_gradient_of_rows; }
  /// Has the bias a row for each query, whose keys have words of their own?
  constexpr bool bias_with_all_words() const { return bias == Bias::of_pairs && !bias_over_keys; }
  constexpr bool loads_slopes() const { return slopes && !slopes_kept; }
  /// Does it do anything?
  constexpr bool any() const { return softcap > 0 || bias != Bias::none || slopes || sinks || dropout > 0; }
  /// Do gradients of scores need other weights than gradients of values?
  constexpr bool two_weights() const { return softcap > 0 || dropout > 0; }
  /// Does dBias need more than dS? Where there is a softcap, dS has its derivative as a factor, and dBias has not.
  constexpr bool derivative_apart() const { return softcap > 0 && bias_gradient; }
  friend constexpr bool operator==(const Modifiers&, const Modifiers&) = default;
};

}  // namespace redblue
