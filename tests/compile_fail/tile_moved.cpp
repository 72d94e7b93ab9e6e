// expect: deleted
#include <utility>

#include "redblue/machines/counting.hpp"

// A tile that leaves its scope would break the stack of fast memory.
void schedule(redblue::machine::Counting& m, const redblue::Block& b) {
  auto tile = m.load(b);
#ifdef REDBLUE_WRONG
  auto moved = std::move(tile);
#else
  auto& moved = tile;
#endif
  m.store(moved, b);
}
