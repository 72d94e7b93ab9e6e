#pragma once
#include <vector>

#include "redblue/bounds/bound.hpp"
#include "redblue/problem/problem.hpp"

/// Lower bounds for attention over ranks. Statements and proofs: docs/theorems.md, docs/proofs/ranks.md. They are of
/// the most words of a rank: words of inputs that it receives, words of unfinished results that it sends, and words of
/// single pairs that it receives. A rank has as much memory as it wants. Row statistics (lse, D) cost nothing there.
namespace redblue::ranks {

/// Where rows are before the first message, and results after the last: no row is on two ranks, and no rank has more.
struct Homes {
  int ranks = 1;
  Words queries, keys;  ///< the most rows of a rank, with all heads
};

/// min(2 sqrt(K X), X) - home with X = pairs / ranks, the K of F'' and home = (H queries + H_kv keys)(d + d_v): of
/// forward attention under any fixed mask. Pairs are those of rows with two visible keys or more.
bound::Bound forward_over_ranks(const Problem& problem, const Homes& homes);

/// This is the same with the K of B'' and home = H queries (2d + d_v) + H_kv keys (2d + 2 d_v): of gradients, d_v <=
/// 2d.
bound::Bound backward_over_ranks(const Problem& problem, const Homes& homes);

/// (d + d_v) 2 f (n - m) + min(r, (d + d_v) 2 (sqrt(m^2 + r) - m)) for H heads, each with its own K and V, without a
/// mask: m rows at home, T = H (n^2 / ranks - m^2), f = floor(T / (n^2 - m^2)), r = T - f (n^2 - m^2). Where d_v <= d
/// and n + m >= 2 (d + d_v).
bound::Bound heads_over_ranks(const Problem& problem, const Homes& homes);

/// All bounds of the operation of a problem.
std::vector<bound::Bound> bounds_over_ranks(const Problem& problem, const Homes& homes);

/// F' and F'', or B' and B'', with a P-th of the pairs: of what some rank moves between M words of fast memory and the
/// rest, which is its slow memory or other ranks.
std::vector<bound::Bound> bounds_of_work(const Problem& problem, int ranks, Words M);

/// The largest proved bound that holds: of 0 words where none does.
bound::Bound best_over_ranks(const std::vector<bound::Bound>& bounds);

}  // namespace redblue::ranks
