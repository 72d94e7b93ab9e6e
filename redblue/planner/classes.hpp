#pragma once
#include <optional>
#include <vector>

#include "redblue/problem/problem.hpp"

/// Problems whose plans of least time have the same schedule and tiles (docs/time-model.md#classes-of-lengths).
namespace redblue {

inline constexpr int kHeadsOfThread = 4;  ///< heads for each thread that keep all busy

/// The problem that stands for the class of this one: the shortest lengths of the class, of packed sequences that of
/// the longest one, as few heads as keep `threads` busy, and no numbers that do not change the time. It depends on the
/// problem alone, not on what was asked before. Patterns that make masks are in the class of the masks. There is none
/// where schedule and tiles depend on more: on other patterns, a dilation, a prefix, an offset other than 0 that moves
/// the diagonal, or an approximation, and for gradients of gradients of which threads share few heads.
std::optional<Problem> class_of(const Problem& problem, int threads);

/// Are there fewer heads than keep all threads busy?
bool has_few_heads(const Problem& one, int threads);

/// Problems of the class of this one, which has its shortest lengths: with the next ones, and with the longest.
std::vector<Problem> others_like(const Problem& one);

/// The problem that stands for all of the kind of this one, which stands for a class: other lengths have the same
/// contenders, but where threads share few heads by their lengths.
Problem kind_of(Problem one, int threads);

}  // namespace redblue
