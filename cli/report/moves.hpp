#pragma once
#include <span>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"

namespace redblue::cli {

/// Prints a line for each move, with what a computation computes.
void print_moves(const pebbling::Graph& g, std::span<const pebbling::Move> moves);

}  // namespace redblue::cli
