#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::pebbling {

/// A play that anyone can replay: docs/pebbling.md has the format of its text. scripts/replay.py
/// reads it without this library.
struct Certificate {
  std::string schedule;    ///< who played: one line
  std::string graph_text;  ///< where the graph is from: one line
  std::string problem;     ///< what its outputs are (NamedGraph::problem), or "none"
  Rules rules{};
  std::size_t M = 0;
  Graph graph{};
  std::vector<Move> moves{};
  Cost cost{};
};

/// Throws Error for what a certificate cannot hold: names with blanks or that two nodes have, lines that are empty or
/// of more than one line.
std::string to_text(const Certificate& c);

/// Throws Error for names that a certificate cannot hold.
void check_names(const Graph& g);

/// Throws Error, with the line, for a text that to_text() did not write, or whose digest is not that of its lines. What
/// it says may be wrong all the same: ask verify().
Certificate parse_certificate(std::string_view text);

/// Plays the moves. Throws IllegalMove, or Error if the counts are others than those of the certificate.
void verify(const Certificate& c);

/// Writes it to a file that appears complete or not at all. Throws IoError.
void write_certificate(const Certificate& c, const std::string& path);

}  // namespace redblue::pebbling
