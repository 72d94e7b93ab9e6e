// expect: no match for call|does not provide a call operator
#include "redblue/language/machine.hpp"

// A schedule that looks at a number could not be counted without data.
template <redblue::Machine M>
void schedule(M& m, const redblue::Block& b) {
  auto tile = m.load(b);
#ifdef REDBLUE_WRONG
  if (tile(0, 0) > 0) m.store(tile, b);
#else
  if (tile.shape().rows > 0) m.store(tile, b);
#endif
}

#include "redblue/machines/counting.hpp"
template void schedule(redblue::machine::Counting&, const redblue::Block&);
