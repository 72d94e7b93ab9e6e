#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"
#include "redblue/pebbling/search/board.hpp"
#include "redblue/pebbling/search/search.hpp"

namespace redblue::pebbling {

/// The moves of a play of these steps with M red pebbles: parents are read just before a computation needs them, a
/// value is written just before it leaves if it is read later, or is an output, and it leaves when no step needs it any
/// more.
std::vector<Move> moves_of(const Board& b, std::span<const Step> steps, const Rules& rules, std::size_t M);

}  // namespace redblue::pebbling
