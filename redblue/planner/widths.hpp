#pragma once
#include <map>
#include <string>
#include <vector>

#include "redblue/planner/planner.hpp"

/// What words take in slow and in fast memory, where a user names them.
namespace redblue {

/// Bytes of a word, by what has such words: an array, or, in fast memory in bytes, all resident "accumulators",
/// "scores" or "statistics".
using Widths = std::map<std::string, index_t>;
inline constexpr index_t kMostWidth = 64;  ///< what is below 1 or above it is refused, with InvalidProblem
/// What they may name.
std::vector<std::string> width_names(Operation op, bool in_bytes);

/// plan::residence_of, where `widths` say it otherwise. Inputs that they name are as wide in fast memory as in slow
/// memory; other arrays that they name have the width of their kind there.
Residence residence_of(Operation op, DType operand, DType accumulator, const Widths& widths);
/// Bytes per word of each array in slow memory, also of a forward pass that runs first: those of `widths`, else
/// `element`; `word` for lse, workspace, and outputs that are given and added to, which a run takes in no other type.
/// Bytes are minimised where `widths` name an array.
void set_widths(plan::Options& o, const Problem& problem, DType element, DType word, const Widths& widths);

}  // namespace redblue
