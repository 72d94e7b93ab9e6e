#include "execute.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"

namespace redblue {

// Flattened: counting 10^9 operations takes seconds once every one of them is a few additions.
[[gnu::flatten]] Measured count(const plan::Plan& plan) {
  machine::Counting counting;
  execute(counting, plan);
  Measured m;
  m.io = counting.io();
  m.peak = counting.peak();
  m.flops = Words(2) * counting.macs();
  return m;
}

machine::Trace trace(const plan::Plan& plan, std::size_t most) {
  machine::Trace trace;
  trace.most = most;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, trace);
  machine::Any any(traced);
  execute(any, plan);
  return trace;
}

}  // namespace redblue
