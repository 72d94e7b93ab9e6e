#pragma once
#include "redblue/attention.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/observed.hpp"
#include "redblue/machine/ram.hpp"
#include "redblue/plan/schedules.hpp"

/// Where schedules and machines meet, once per operation: each file of this folder that instantiates make_engine is one
/// list of schedules on every machine.
namespace redblue {

/// The memory of a run: the caller's arrays and workspace, fast memory and staging.
template <class T>
struct Memory {
  machine::SlowMemory slow;
  machine::RamMemory<T> fast;
  std::function<void(Io)> report;  ///< called now and then with the words moved so far
};

struct Engine {
  Measured (*count)(const plan::Plan&);
  void (*run_on)(machine::Any&, const plan::Plan&);
  Measured (*run_f32)(const plan::Plan&, const Memory<float>&);
  Measured (*run_f64)(const plan::Plan&, const Memory<double>&);
  std::span<const SlowArray> (*workspace)(const plan::Plan&);
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

namespace detail {

/// f(schedule, tiling) for the chosen row.
template <class List, class F>
decltype(auto) with_choice(const plan::Plan& plan, const F& f) {
  return std::visit([&](const auto& choice) -> decltype(auto) { return f(choice); },
                    std::get<typename List::AnyChoice>(plan.row().choice->choice));
}

/// The chosen schedule, once for each batch and key-value head.
template <class List, class M>
void execute(M& m, const plan::Plan& plan) {
  const Problem& p = plan.problem;
  with_choice<List>(plan, [&]<class S>(const plan::Choice<S>& choice) {
    m.each(p.instances(), [&](auto& w, index_t instance) {
      S::run(w, typename S::Operands(p.shape(), p.scale_or_default(), instance), choice.tiling);
    });
  });
}

template <class M>
Measured measured(const M& counter) {
  Measured m;
  m.io = counter.io();
  m.peak = counter.peak();
  m.flops = Words(2) * counter.macs();
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
Measured run(const plan::Plan& plan, const Memory<T>& memory) {
  machine::Ram<T> ram(memory.fast, memory.slow);
  machine::Counted counted(ram);
  machine::Observed observed(counted, [&] {
    if (memory.report) memory.report(counted.io());
  });
  execute<List>(observed, plan);
  Measured m = measured(counted);
  m.staging_words = ram.staging_words();
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
            return detail::with_choice<List>(
                plan, []<class S>(const plan::Choice<S>&) { return std::span<const SlowArray>(S::workspace); });
          },
          [](const plan::Plan& plan) {
            return detail::with_choice<List>(plan, []<class S>(const plan::Choice<S>&) { return S::rewrites_outputs; });
          }};
}

}  // namespace redblue
