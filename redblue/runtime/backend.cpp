#include "redblue/runtime/backend.hpp"

#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/weighed.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/runtime/measured.hpp"

namespace redblue {

Measured Backend::count(const plan::Plan& plan, const std::function<void()>& now_and_then) const {
  machine::Counting counting;
  const auto walk = [&]<class M>(M& counter) {
    const auto behind_any = [&](auto& machine) {
      machine::Any any(machine);
      run_on(any, plan, plan.counted());
    };
    if (!now_and_then) return behind_any(counter);
    const typename machine::Observed<M>::Callback report = [&](const M&) { now_and_then(); };
    machine::Observed observed(counter, report);
    behind_any(observed);
  };
  const auto counted = [&] {
    Measured m;
    measure(counting, m);
    if (plan::has_widths(plan.options)) m.moved_bytes = plan::bytes_of(m.io, plan.options, plan.problem.op).total();
    return m;
  };
  if (!plan.options.memory) {
    walk(counting);
    return counted();
  }
  const plan::Instances x = plan.counted();
  machine::Weighed weighed(counting, x.sizes.fast);
  walk(weighed);
  Measured m = counted();
  m.peak_bytes = weighed.peak();
  return m;
}

Backend::Memo& RunMemo::of(const Backend& backend) {
  const std::lock_guard lock(mutex_);
  for (const auto& [known, memo] : memos_)
    if (known == backend.identity()) return *memo;
  return *memos_.emplace_back(backend.identity(), backend.new_memo()).second;
}

}  // namespace redblue
