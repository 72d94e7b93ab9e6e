#pragma once
#include <optional>

#include "redblue/bound/bound.hpp"
#include "redblue/schedule/forward.hpp"

namespace redblue {

/// Forward attention over `batch` x `heads`: O = softmax(scale Q K^T) V, lse = log of the row sums of exp(scale Q K^T).
/// heads / kv_heads query heads share one head of K and V, whose words are then counted once for all of them.
struct Problem {
  index_t batch = 1;
  index_t heads = 1;
  std::optional<index_t> kv_heads;  ///< default: heads
  index_t n_q = 0;
  index_t n_k = 0;
  index_t d = 0;
  index_t d_v = 0;
  bool causal = false;
  std::optional<index_t> causal_offset;  ///< query i sees keys j <= i + offset; default n_k - n_q (bottom-right)
  std::optional<double> scale;           ///< default 1 / sqrt(d)
  bool lse_required = false;             ///< count lse in the bound, and make naive write it (all others do anyway)

  /// Throws InvalidProblem naming the offending size, its value and what would work.
  void validate() const;

  index_t group() const { return heads / kv_heads.value_or(heads); }      ///< query heads per key-value head
  index_t instances() const { return batch * kv_heads.value_or(heads); }  ///< independent problems
  double scale_or_default() const;
  schedule::ForwardShape shape() const;                ///< of one instance, query heads stacked position-major
  bound::ForwardProblem bound_problem(Words M) const;  ///< of all instances
};

}  // namespace redblue
