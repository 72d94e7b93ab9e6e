#pragma once
#include <span>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/ranks/rows.hpp"

namespace redblue::ranks {

struct Messages {
  Words rows, number;
};
/// What a place of a row or column of the grid sends and takes in.
struct Flow {
  Messages inputs_in, inputs_out, results_in, results_out;
};

/// Places of a line: place i has the rows `homes[i]`, and needs what `needed[i]` has of the rows of all others, whose
/// results go back. In some r log r steps for r places with rows in a few ranges.
std::vector<Flow> line_flows(std::span<const Rows* const> homes, std::span<const Rows> needed);

/// A ring hands on all blocks but the one that the receiver has at home, and with them the results of all but that of
/// the sender's own.
std::vector<Flow> ring_flows(std::span<const Rows* const> homes);

}  // namespace redblue::ranks
