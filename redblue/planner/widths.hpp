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
/// Unfinished words of other outputs are as wide as they are in Options::memory, or as `word`. Bytes are minimised
/// where Options::memory is given, or `widths` name an array. Throws InvalidProblem where `widths` name an output that
/// is added to, and another width than that. Options::keys_per_scale makes words of K and V 1 byte wide, and counts the
/// 4 bytes of a scale whenever the words of its keys are read; it throws InvalidProblem for other operations
/// than forward, and where `widths` name K or V, too.
void set_widths(plan::Options& o, const Problem& problem, DType element, DType word, const Widths& widths);

}  // namespace redblue

/// What the words that a plan moves take in bytes (docs/model.md, "Bytes that move").
namespace redblue::plan {

/// Do the options say what words take in slow memory?
bool has_widths(const Options& options);
/// Are bytes that move minimised, not words?
bool minimises_bytes(const Options& options);
/// Bytes of a word of this array while it is unfinished. Only outputs have such words.
index_t unfinished_width(const Options& options, Operation op, SlowArray array);
/// What each word costs, in 1/kCostUnit. A word of an output that is read was written unfinished before: its read bears
/// what that write costs more than a last one.
schedule::Prices prices_of(const Options& options, Operation op);

/// The bytes of the scales that are read with these words, if the array has scales.
Words scale_bytes(const Options& options, SlowArray array, Words words_read);
/// The bytes of these words, and of their scales, by array and direction. Each read of an output takes an unfinished
/// word that was written before, so as many words were written unfinished as are read; the others are the last writes
/// of their words.
Io bytes_of(const Io& words, const Options& options, Operation op);
/// The bytes of the chosen row, with what runs before it.
Io bytes_of(const Plan& plan);
/// Words of one instance that a row keeps in slow memory because its outputs are too narrow for them: all of each
/// output that it reads again. There are none where words are minimised.
Words unfinished_words(const Row& row, const Options& options, const Sizes& x);
/// A lower bound on the bytes of every schedule, from one on its words: each takes the least width at least.
Words least_bytes(Words words, const Options& options, const Problem& problem);
/// What the plan's bound is in bytes.
Words least_bytes(const Plan& plan);

}  // namespace redblue::plan
