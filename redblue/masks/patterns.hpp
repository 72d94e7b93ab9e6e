#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "redblue/masks/pattern.hpp"

/// Patterns for Problem::patterns: which of n_k keys each of n_q queries sees, and what must be read to know it
/// (RunLists::index): nothing of a rule, numbers of blocks of of_blocks, pairs of of_mask and of_csr. Every function
/// throws InvalidProblem, naming the value, where an argument makes no pattern. docs/masks.md has the names that other
/// projects give them.
namespace redblue::patterns {

/// Queries and keys, and where query 0 stands among the keys: query i at position i + offset.
struct Between {
  index_t n_q = 0;
  index_t n_k = 0;
  std::optional<index_t> offset{};  ///< default n_k - n_q: the last query stands at the last key

  index_t position(index_t i) const { return i + offset.value_or(n_k - n_q); }
};

/// Keys at distances k step, -left <= k <= right, of the query's position. Step 1 is a window; -1: no edge.
RunLists window(const Between& x, index_t left, index_t right, index_t step = 1);

/// Longformer (Beltagy et al. 2020, arXiv 2004.05150): a window; all queries see the first `globals` keys, and queries
/// at the first `globals` positions see all keys.
RunLists longformer(const Between& x, index_t left, index_t right, index_t globals, index_t step = 1);

/// BigBird (Zaheer et al. 2020, arXiv 2007.14062) in blocks of `block` queries and keys: `window` blocks on either side
/// of the query's own, the first `globals` blocks as in Longformer, and `randoms` other blocks for each block of
/// queries, drawn from the seed, 0 to 2^53 (fewer where there are not as many).
struct BigBird {
  index_t block = 64, window = 1, globals = 1, randoms = 3, seed = 0;
};
RunLists big_bird(const Between& x, const BigBird& b);

/// Sparse Transformer (Child et al. 2019, arXiv 1904.10509), both causal. Strided: the last `stride` keys up to the
/// query's own, and every stride-th before them.
RunLists strided(const Between& x, index_t stride);
/// Fixed: keys of the query's own block of `stride`, and the last `summary` of every block.
RunLists fixed(const Between& x, index_t stride, index_t summary);

/// Blocks of rows x cols: seen[I ceil(n_k / cols) + J] != 0 where the queries of block I see the keys of block J.
RunLists of_blocks(const Between& x, index_t rows, index_t cols, std::span<const std::uint8_t> seen);
/// seen[i n_k + j] != 0 where query i sees key j.
RunLists of_mask(const Between& x, std::span<const std::uint8_t> seen);
/// Compressed sparse rows: query i sees the keys indices[indptr[i]] to indices[indptr[i + 1] - 1], in ascending order.
RunLists of_csr(const Between& x, std::span<const index_t> indptr, std::span<const index_t> indices);

/// What one of two patterns shows, and what both show. The index is the more explicit one.
RunLists united(const RunLists& a, const RunLists& b);
RunLists intersected(const RunLists& a, const RunLists& b);

}  // namespace redblue::patterns
