// expect: only an argument that the kernel reads may be streamed
#include "redblue/kernels/dense.hpp"
#include "redblue/machines/counting.hpp"

// A streamed word is gone once it was used: a kernel cannot write it.
void schedule(redblue::machine::Counting& m, const redblue::Block& o) {
  const auto O = m.alloc(o);
#ifdef REDBLUE_WRONG
  m.compute(redblue::kernel::Zero{}, m.stream(o));
#else
  m.compute(redblue::kernel::Zero{}, O);
#endif
  m.store(O, o);
}
