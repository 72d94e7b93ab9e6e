#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "redblue/masks/patterns.hpp"
#include "redblue/problem/problem.hpp"

/// Variants of a problem.
namespace redblue::test {

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

inline Problem with_lse(Problem p) {
  p.lse_required = true;
  return p;
}
inline Problem with_heads(Problem p, index_t batch, index_t heads, index_t kv_heads) {
  p.batch = batch;
  p.heads = heads;
  p.kv_heads = kv_heads;
  return p;
}
inline Problem causal(Problem p, std::optional<index_t> offset = {}) {
  p.causal = true;
  p.causal_offset = offset;
  return p;
}

/// A window without an edge on a side where nothing is given.
inline Problem windowed(Problem p, std::optional<index_t> left, std::optional<index_t> right, index_t prefix = 0) {
  p.window_left = left;
  p.window_right = right;
  p.prefix = prefix;
  return p;
}

/// With a bias for each pair of a head, a softcap and slopes.
inline Problem modified(Problem p) {
  p.bias = {1, p.heads, p.n_q, p.n_k};
  p.softcap = 2;
  p.alibi = true;
  return p;
}
inline Problem padded(Problem p, std::vector<index_t> queries, std::vector<index_t> keys) {
  p.seqused_q = std::move(queries);
  p.seqused_k = std::move(keys);
  return p;
}

/// Who has a pattern of its own.
enum class Own : std::uint8_t { problem, batch, head };

/// Blocks of `block` queries and keys, a third of them seen: some queries see no key, and some keys nobody sees.
inline Problem patterned(Problem p, index_t block, Own own = Own::problem) {
  std::mt19937 random(7);
  std::vector<std::shared_ptr<const RunLists>> lists;
  for (index_t k = 0; k < (own == Own::problem ? 1 : p.batch * p.heads); ++k) {
    if (own == Own::batch && k % p.heads > 0) {
      lists.push_back(lists.back());
      continue;
    }
    std::vector<std::uint8_t> seen;
    for (index_t b = 0; b < ceil_div(p.n_q, block) * ceil_div(p.n_k, block); ++b) seen.push_back(random() % 3 == 0);
    const auto across = static_cast<std::size_t>(ceil_div(p.n_k, block));
    std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(across), across, 0);
    lists.push_back(std::make_shared<const RunLists>(patterns::of_blocks({p.n_q, p.n_k}, block, block, seen)));
  }
  p.patterns = lists;
  return p;
}

}  // namespace redblue::test
