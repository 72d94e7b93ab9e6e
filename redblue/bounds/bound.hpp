#pragma once
#include <string_view>
#include <vector>

#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"

namespace redblue {
struct Problem;  // redblue/problem/problem.hpp
}

namespace redblue::bound {

/// A lower bound on reads + writes of every schedule of its class.
struct Bound {
  Words words;                  ///< 0 where the formula is negative
  std::string_view name;        ///< "trivial", "F'", ...
  std::string_view algorithms;  ///< the class of schedules for which it holds
  /// "proved", "derived" (nobody has checked the proof independently) or "restricted" (proved, but only for some
  /// schedules). Only a proved bound is reported as the bound of a problem.
  std::string_view status;
  std::string_view condition;  ///< the condition under which it holds
  bool holds = true;           ///< does this problem meet the condition?
};

/// A problem as the bounds see it: the sizes of one head (or group of query heads that share K and V), of which there
/// are `instances`, under one fast memory of M words. Where it is given in bytes, M is the most words that it can hold.
struct AttentionProblem : Sizes {
  index_t instances = 1;
  Words M;
  Sources sources = Sources::distinct;
  Words bytes = 0;  ///< of fast memory, for words as wide as `fast` says; 0: all words are alike
};

/// What a mask leaves, in queries, keys and pairs (masks/visible.hpp), summed over sequences and instances. A sequence
/// needs nothing of another.
struct Need {
  Words rows, scored_rows, keys, scored_keys, scored_pairs;
};
Need need_of(const AttentionProblem& x);

/// Pairs (i, j) whose score must be formed, over all instances. A row that sees one key has P = 1 without any score.
Words scored_pairs(const AttentionProblem& x);

/// value(N, K, M): max over L = floor(M t / 8), t = 8..160, of
/// L N / max{(M + L)^2 / (4K), M + L/2, L^2 / (4K) + M, M^2 / (4K) + L/2} - (L - M).
long double value(Words N, long double K, Words M);

/// All bounds of an operation, in the order of docs/theorems.md.
std::vector<Bound> bounds_of(Operation op, const AttentionProblem& x);

/// The largest proved bound that holds.
Bound best(const std::vector<Bound>& bounds);

}  // namespace redblue::bound

namespace redblue {

/// The problem as the bounds see it, all instances, under M words.
bound::AttentionProblem bound_problem(const Problem& problem, Words M);

}  // namespace redblue
