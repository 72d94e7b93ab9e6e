#pragma once
#include <optional>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/problem.hpp"

/// Masks given as a bias: of each query the keys that it sees, where they are one interval.
namespace redblue::python {

/// Queries side by side, of which the first sees `keys`, and each after it an interval whose ends lie `steps` further.
struct Stretch {
  index_t queries = 0;
  Range keys;
  Range steps;  ///< 0 or 1 each
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// The stretches of each batch, or once where all are alike: they cover all n_q queries. An empty interval is {0, 0}.
using Intervals = std::vector<std::vector<Stretch>>;

/// Reads a bias [batch or 1, 1, n_q or 1, n_k or 1]. The lowest number of its type, but of f16, is read as -inf where
/// the query sees another key. The result is empty where the bias differs by head, adds other numbers than 0 and -inf,
/// shows a query several intervals, needs more stretches than 16 for each batch and one for every 16 queries, or its
/// keys do not lie side by side.
std::optional<Intervals> intervals_of(const Tensor& bias, index_t n_q, index_t n_k);

/// All batches as one mask with lengths for each: query i of batch b sees the keys of mask.keys(i) before keys[b], if
/// i < queries[b].
struct PaddedMask {
  Mask mask{};
  std::vector<index_t> queries{}, keys{};  ///< empty: n_q, n_k
};
std::optional<PaddedMask> padded_mask_of(const Intervals& intervals, index_t n_q, index_t n_k);

/// What one batch sees, as lists of runs.
RunLists lists_of(const std::vector<Stretch>& list);

}  // namespace redblue::python
