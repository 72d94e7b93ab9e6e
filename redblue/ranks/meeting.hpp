#pragma once
#include <array>

#include "redblue/ranks/sight.hpp"

namespace redblue::ranks {

/// Queries and keys that are worked on at once.
struct Meeting {
  Rows queries, keys;
};

/// The same pairs as two meetings, each with about half of them: the longer side is cut, which reads fewer rows twice.
/// Either may be without pairs.
std::array<Meeting, 2> halves_of(const Sight& sight, const Meeting& whole);

}  // namespace redblue::ranks
