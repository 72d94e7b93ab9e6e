#pragma once
#include "redblue/attention.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/observed.hpp"
#include "redblue/machine/ram.hpp"
#include "redblue/plan/schedules.hpp"
#include "redblue/schedule/parts/workspace.hpp"

/// Where schedules and machines meet, once per operation: each file of this folder that instantiates make_engine is one
/// list of schedules on every machine.
namespace redblue {

/// What a run has at hand.
template <class T>
struct Resources {
  std::vector<machine::SlowMemory> slow;        ///< the caller's arrays and workspace: see machine::Ram
  std::vector<machine::ArenaMemory<T>> arenas;  ///< fast memory of each worker
  index_t words;                                ///< of each
  ThreadPool* pool;
  bool bf16 = false;                                      ///< do products of attention take bf16?
  std::function<void(int worker, index_t words)> report;  ///< called now and then with the words a worker has moved
};

struct Engine {
  Measured (*count)(const plan::Plan&);
  void (*run_on)(machine::Any&, const plan::Plan&);
  Measured (*run_f32)(const plan::Plan&, Resources<float>&&);
  Measured (*run_f64)(const plan::Plan&, Resources<double>&&);
  std::vector<SlowMatrix> (*workspace)(const plan::Plan&);
  bool (*rewrites_outputs)(const plan::Plan&);
};

extern const Engine kForward, kBackward, kForwardX, kGradientX, kBackwardX, kBackwardW;

inline const Engine& engine_of(Operation op) {
  switch (op) {
    case Operation::backward:
      return kBackward;
    case Operation::forward_x:
      return kForwardX;
    case Operation::gradient_x:
      return kGradientX;
    case Operation::backward_x:
      return kBackwardX;
    case Operation::backward_w:
      return kBackwardW;
    default:
      return kForward;
  }
}

/// The fastest that this processor has.
template <class T>
const kernel::Bodies<T>& bodies_for(bool bf16) {
  if constexpr (std::same_as<T, float>)
    if (bf16) return kernel::bf16_bodies(best_isa());
  return kernel::bodies<T>(best_isa());
}

namespace detail {

/// f(schedule, tiling) for the chosen row.
template <class List, class F>
decltype(auto) with_choice(const plan::Plan& plan, const F& f) {
  return std::visit([&](const auto& choice) -> decltype(auto) { return f(choice); },
                    std::get<typename List::AnyChoice>(plan.row().choice->choice));
}

/// The chosen schedule, once for each batch and key-value head: the outermost loop.
template <class List, class M>
void execute(M& m, const plan::Plan& plan) {
  const Problem& p = plan.problem;
  with_choice<List>(plan, [&]<class S>(const plan::Choice<S>& choice) {
    m.each(p.instances(), [&](auto& w, index_t instance) {
      S::run(w, typename S::Operands(p.sizes(), p.scale_or_default(), instance), choice.tiling);
    });
  });
}

template <class M>
Measured measured(const M& counter) {
  Measured m;
  m.io = counter.io();
  m.peak = counter.peak();
  m.flops = Words(2) * counter.macs();
  m.threads = counter.workers();
  for (int i = 0; i < m.threads; ++i)
    m.most_per_thread = std::max(m.most_per_thread, Words(counter.of_worker(i).words()));
  return m;
}

// Flattened: counting 10^9 operations takes seconds once every one of them is a few additions.
template <class List>
[[gnu::flatten]] Measured count(const plan::Plan& plan) {
  machine::Counting counting;
  execute<List>(counting, plan);
  return measured(counting);
}

template <class List, class T>
Measured run(const plan::Plan& plan, Resources<T>&& with) {
  using Counted = machine::Counted<machine::Ram<T>>;
  const kernel::Bodies<T>& bodies = bodies_for<T>(with.bf16);
  Measured m;
  machine::Team::run(*with.pool, static_cast<int>(with.arenas.size()), [&](machine::Team& team) {
    machine::Ram<T> ram(team, with.words, std::move(with.slow), bodies, with.arenas);
    Counted counted(ram);
    typename machine::Observed<Counted>::Callback report;
    if (with.report) report = [&](const Counted& w) { with.report(w.worker(), w.of_worker(w.worker()).words()); };
    machine::Observed observed(counted, report);
    execute<List>(observed, plan);
    m = measured(counted);
    m.staging_words = ram.staging_words();
    m.padding_words = ram.padding_words();
    m.kernels = bodies.bf16 ? "avx512_bf16" : name_of(std::min(best_isa(), Isa::avx512));
  });
  return m;
}

}  // namespace detail

template <class List>
constexpr Engine make_engine() {
  return {detail::count<List>,
          [](machine::Any& m, const plan::Plan& plan) { detail::execute<List>(m, plan); },
          detail::run<List, float>,
          detail::run<List, double>,
          [](const plan::Plan& plan) {
            return detail::with_choice<List>(plan, [&]<class S>(const plan::Choice<S>& choice) {
              const auto list = schedule::workspace_of<S>(typename S::Operands(plan.problem.sizes(), 1), choice.tiling);
              return std::vector<SlowMatrix>(list.begin(), list.end());
            });
          },
          [](const plan::Plan& plan) {
            return detail::with_choice<List>(plan, []<class S>(const plan::Choice<S>&) { return S::rewrites_outputs; });
          }};
}

}  // namespace redblue
