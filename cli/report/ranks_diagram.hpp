#pragma once
#include <string>

#include "redblue/ranks/steps.hpp"

namespace redblue::cli {

/// What all ranks do as a sequence diagram of Mermaid, which code hosts draw: an arrow is a message, with its arrays
/// and words, and stands where its receiver takes it; notes are work on tiles.
std::string diagram_of(const ranks::World& world);

}  // namespace redblue::cli
