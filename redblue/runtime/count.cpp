#include "redblue/machines/counting.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/runtime/backend.hpp"

namespace redblue {

Measured count(const plan::Plan& plan, const std::function<void()>& now_and_then, const Backend* backend) {
  Measured m = (backend != nullptr ? *backend : ram_backend()).count(plan, now_and_then);
  if (!plan.forward) return m;
  const Measured before = count(*plan.forward, now_and_then, backend);
  m.io = before.io + m.io;
  m.peak = std::max(before.peak, m.peak);
  m.peak_bytes = std::max(before.peak_bytes, m.peak_bytes);
  if (before.moved_bytes && m.moved_bytes) *m.moved_bytes += *before.moved_bytes;
  m.flops += before.flops;
  m.most_per_thread += before.most_per_thread;
  return m;
}

machine::Trace trace(const plan::Plan& plan, std::size_t most) {
  machine::Trace trace;
  trace.most = most;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, trace);
  machine::Any any(traced);
  run_on(any, plan, plan.counted());
  return trace;
}

}  // namespace redblue
