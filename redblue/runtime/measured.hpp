#pragma once
#include <algorithm>

#include "redblue/machines/counting.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

/// Puts what a machine::Counted has counted into m, which is new.
template <class M>
void measure(const M& counter, Measured& m) {
  const machine::Counts total = counter.total();
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    m.io.reads[a] = total.reads[a];
    m.io.writes[a] = total.writes[a];
  }
  m.peak = total.peak;
  m.flops = Words(2) * total.macs;
  m.threads = counter.workers();
  m.decisions = total.decisions;
  if (m.threads == 1) m.most_per_thread = total.words();
  for (int i = 0; m.threads > 1 && i < m.threads; ++i)
    m.most_per_thread = std::max(m.most_per_thread, Words(counter.of_worker(i).words()));
}

}  // namespace redblue
