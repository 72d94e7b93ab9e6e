#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/pebbling/play/live_graph.hpp"

namespace redblue::pebbling {

/// A word of either memory: the node that it holds.
struct Word {
  Node node = kNoNode;
  bool is_room = false;  ///< it has a node, whose pebble keeps its room, and holds nothing yet
  bool holds() const { return node != kNoNode && !is_room; }
};

/// A tile of fast memory.
struct WordTile {
  std::string_view name;  ///< of the array that its words are of
  Shape shape;
  std::vector<Word> words;

  Word& at(index_t row, index_t col) { return words[static_cast<std::size_t>(row * shape.cols + col)]; }
};

/// What a kernel works on: a rectangle of a tile, or words of slow memory that pass, row by row.
struct Operand {
  Shape shape;
  WordTile* tile = nullptr;  ///< null: words pass
  index_t row = 0;
  index_t col = 0;
  std::string_view name{};  ///< of the array that passing words are of
  std::vector<Word*> passing{};
};

/// One call of a plain kernel as moves. Words that pass are read one by one, each once, and dropped after their use;
/// two that pass side by side are together there. `updates`: the words of operand 0 are changed while they pass, and
/// written; if the kernel says that it is the first time, they are not read. Throws Error, by name, if the kernel
/// cannot be played so.
void expand(LiveGraph& live, const kernel::AnyKernel& k, std::span<Operand> operands, bool updates);

}  // namespace redblue::pebbling
