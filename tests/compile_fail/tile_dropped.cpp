// expect: nodiscard
#include "redblue/machines/counting.hpp"

// Loaded and evicted at the same semicolon: paid for nothing.
void schedule(redblue::machine::Counting& m, const redblue::Block& b) {
#ifdef REDBLUE_WRONG
  m.load(b);
#else
  const auto tile = m.load(b);
#endif
}
