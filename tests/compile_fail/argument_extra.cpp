// expect: this kernel takes another number of arguments
#include "redblue/kernels/dense.hpp"
#include "redblue/machines/counting.hpp"

void schedule(redblue::machine::Counting& m, const redblue::Block& b) {
  const auto first = m.alloc(b), second = m.load(b);
#ifdef REDBLUE_WRONG
  m.compute(redblue::kernel::Zero{}, first, second);
#else
  m.compute(redblue::kernel::Zero{}, first);
#endif
  m.store(second, b);
}
