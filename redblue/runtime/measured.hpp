#pragma once
#include <algorithm>

#include "redblue/runtime/run.hpp"

namespace redblue {

/// What a machine::Counted has counted.
template <class M>
Measured measured(const M& counter) {
  Measured m;
  m.io = counter.io();
  m.peak = counter.peak();
  m.flops = Words(2) * counter.macs();
  m.threads = counter.workers();
  m.decisions = counter.decisions();
  for (int i = 0; i < m.threads; ++i)
    m.most_per_thread = std::max(m.most_per_thread, Words(counter.of_worker(i).words()));
  return m;
}

}  // namespace redblue
