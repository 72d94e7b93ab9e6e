#pragma once
#include "redblue/describe.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/observed.hpp"
#include "redblue/machine/ram.hpp"

/// Which machines redblue's own schedules are compiled for, besides machine::Any. docs/machines.md has the measurements
/// behind the choice.
namespace redblue {

/// The machine of a run: counts what passes, and reports how far it is.
template <class T>
using Computing = machine::Observed<machine::Counted<machine::Ram<T>>>;

/// A build that only plans, for web pages (cmake/wasm), leaves them out: Any counts as well, and code must be small
/// there.
#ifdef REDBLUE_PLANS_ONLY
inline constexpr bool kCompiled = false;
#else
inline constexpr bool kCompiled = true;
#endif

struct plan::Compiled {
  void (*count)(machine::Counting&, const Instances&, const Tiling&);
  void (*run)(Computing<float>&, const Instances&, const Tiling&);  ///< null: through Any
};

namespace detail {

// Flattened: counting 10^9 operations takes seconds once every one of them is a few additions.
template <class S>
[[gnu::flatten]] void count_instances(machine::Counting& m, const plan::Instances& x, const plan::Tiling& t) {
  run_instances<S>(m, x, t);
}
template <class S>
inline constexpr plan::Compiled kCounted{count_instances<S>, nullptr};
template <class S>
inline constexpr plan::Compiled kComputed{count_instances<S>, run_instances<S, Computing<float>>};
template <class S>
inline constexpr plan::Compiled kComputedByCalls{run_instances<S, machine::Counting>,
                                                 run_instances<S, Computing<float>>};

}  // namespace detail

/// Compiled for counting.
template <class S>
plan::Schedule describe_counted() {
  plan::Schedule s = describe<S>();
  if constexpr (kCompiled) s.compiled = &detail::kCounted<S>;
  return s;
}
/// Compiled for counting and for runs in f32.
template <class S>
plan::Schedule describe_fast() {
  plan::Schedule s = describe<S>();
  if constexpr (kCompiled) s.compiled = &detail::kComputed<S>;
  return s;
}
/// The same of a schedule so large that g++ 12 takes minutes to flatten it: counting then makes calls.
template <class S>
plan::Schedule describe_fast_large() {
  plan::Schedule s = describe<S>();
  if constexpr (kCompiled) s.compiled = &detail::kComputedByCalls<S>;
  return s;
}

}  // namespace redblue
