// expect: has no member named .?data|no member named 'data'
#include "redblue/machines/ram/ram.hpp"

// Not even on the machine that does hold numbers.
template <redblue::Machine M>
redblue::index_t schedule(M& m, const redblue::Block& b) {
  auto tile = m.load(b);
#ifdef REDBLUE_WRONG
  return tile.data()[0] > 0 ? 1 : 0;
#else
  return tile.shape().words();
#endif
}

template redblue::index_t schedule(redblue::machine::Ram<float>&, const redblue::Block&);
