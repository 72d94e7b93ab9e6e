#include "redblue/runtime/engine.hpp"

#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/weighed.hpp"
#include "redblue/threads/subnormals.hpp"

namespace redblue {

namespace {

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

template <class M>
void run_behind_any(M& m, const plan::Plan& plan) {
  machine::Any any(m);
  run_on(any, plan);
}

}  // namespace

Measured count_row(const plan::Plan& plan, const std::function<void()>& now_and_then) {
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
  if (!plan.options.memory) {
    walk(counting);
    return measured(counting);
  }
  const plan::Instances x = plan.counted();
  machine::Weighed weighed(counting, x.sizes.fast);
  walk(weighed);
  Measured m = measured(counting);
  m.peak_bytes = weighed.peak();
  return m;
}

template <class T>
Measured run_row(const plan::Plan& plan, Resources<T>&& with) {
  using Counted = machine::Counted<machine::Ram<T>>;
  const kernel::Implementations<T>& implementations = implementations_for<T>(with.bf16);
  Measured m;
  const auto main = [&](machine::Team& team) {
    machine::Ram<T> ram(team, with.words, std::move(with.slow), implementations, with.arenas);
    Counted counted(ram);
    typename machine::Observed<Counted>::Callback report;
    if (with.report)
      report = [&](const Counted& w) {
        const threads::FlushSubnormals usual(false);  // what the caller is told, he may compute with
        with.report(w.worker(), w.of_worker(w.worker()).words());
      };
    machine::Observed observed(counted, report);
    run_behind_any(observed, plan);
    m = measured(counted);
    m.staging_words = ram.staging_words();
    m.padding_words = ram.padding_words();
    m.kernels = implementations.bf16 ? name_of(implementations.isa) : name_of(std::min(best_isa(), Isa::avx512));
  };
  // Certificates of approximations are proved for arithmetic with subnormal numbers.
  const bool exact = plan.problem.method_kind() == MethodKind::exact;
  machine::Team::run(*with.pool, static_cast<int>(with.arenas.size()), main,
                     exact ? machine::Team::Subnormals::flushed : machine::Team::Subnormals::kept);
  return m;
}

template Measured run_row(const plan::Plan&, Resources<float>&&);
template Measured run_row(const plan::Plan&, Resources<double>&&);

}  // namespace redblue
