// expect: deleted
#include "redblue/machines/counting.hpp"

// A copy would be resident twice and evicted twice, and be counted once.
void schedule(redblue::machine::Counting& m, const redblue::Block& b) {
  const auto tile = m.load(b);
#ifdef REDBLUE_WRONG
  const auto copy = tile;
#else
  const auto& copy = tile;
#endif
  m.store(copy, b);
}
