#pragma once
#include <limits>
#include <vector>

#include "redblue/machines/outline.hpp"

/// Lines of an outline that do the same, folded into loops and joined round by round. For outline.cpp alone.
namespace redblue::machine {

using OutlineLines = std::vector<OutlineLine>;

/// A loop of one round shows no step.
constexpr index_t kNoStep = std::numeric_limits<index_t>::min();

/// Sets OutlineLine::exact and loose.
void set_hashes(OutlineLine& line);
/// Adds a line that has ended, and folds what repeats at the end of the lines into loops with equal numbers of rounds.
void append(OutlineLines& lines, OutlineLine line);
/// Folds lines that have ended once more, now taking loops with different numbers of rounds for the same. (Not before:
/// a loop that is still growing would be taken for a shorter one.)
OutlineLines folded(OutlineLines lines);
OutlineLine loop_of(OutlineLines body, bool independent, index_t rounds);
/// Ends a loop of one round: nothing in it moves.
void stand_still(OutlineLines& lines);
/// Do two rounds do the same, on blocks of the same shapes?
bool alike(const OutlineLines& a, const OutlineLines& b);
/// Adds a later round that does the same, line by line, as most do. False if it does not; then nothing has changed.
bool absorb_all(OutlineLines& lines, const OutlineLines& later, index_t round);
/// Adds a later round to the lines of a loop's body. A loop that one of them runs once, or not at all, is a loop in
/// both. False if they do other things; `lines` is then of no more use.
bool unify(OutlineLines& lines, const OutlineLines& later, index_t round);
/// Counts each line as often as this.
void multiply(OutlineLines& lines, Words times);

}  // namespace redblue::machine
