#pragma once
#include <functional>

#include "arrays.hpp"
#include "plan.hpp"

/// Runs of a plan on Python's arrays, without the interpreter's lock.
namespace redblue::python {

/// Ends a run because Python has set an error in the thread that called: after Ctrl-C, mostly.
struct Interrupted {};
/// For RunOptions::progress, made in the thread that runs: asks Python for signals now and then. Throws Interrupted.
std::function<void(double)> signal_watch();
/// f() without the interpreter's lock. It turns Interrupted into the error of Python that it stands for.
template <class F>
auto unlocked(const F& f) {
  const auto call = [&] {
    const nb::gil_scoped_release released;
    return f();
  };
  try {
    return call();
  } catch (const Interrupted&) {
    throw nb::python_error();
  }
}

/// The arrays that a run takes, in this order; what the operation does not have is None.
inline constexpr auto kRunArrays = std::to_array<SlowArray>(
    {SlowArray::Q,      SlowArray::K,      SlowArray::V,     SlowArray::O,      SlowArray::lse,    SlowArray::bias,
     SlowArray::slopes, SlowArray::sinks,  SlowArray::dO,    SlowArray::dQ,     SlowArray::dK,     SlowArray::dV,
     SlowArray::dBias,  SlowArray::dSinks, SlowArray::S,     SlowArray::P,      SlowArray::dlse,   SlowArray::tQ,
     SlowArray::tK,     SlowArray::tV,     SlowArray::tO,    SlowArray::tlse,   SlowArray::gQ,     SlowArray::gK,
     SlowArray::gV,     SlowArray::LQ,     SlowArray::LK,    SlowArray::LV,     SlowArray::LdO,    SlowArray::Ldlse,
     SlowArray::tBias,  SlowArray::gBias,  SlowArray::LBias, SlowArray::tSinks, SlowArray::gSinks, SlowArray::LSinks});

/// How an array of a run lies, where those of tokens have tokens first or heads.
Form form_of(SlowArray array, bool tokens_first);
/// Does a run of the problem write the array?
bool is_written(const Problem& problem, SlowArray array);

/// The tensors of a problem in `arrays`, which are as kRunArrays. Where k and v are int8, three more stand behind them:
/// the scales of k and of v, fp32 [batch, kv_heads, blocks], and how many keys a block has.
Tensors tensors_in(nb::handle arrays, const Problem& problem, bool tokens_first, Buffers& buffers);

/// `seed` is that of dropout, in place of the plan's. Knows nothing of Python. Throws what redblue::run throws, and
/// InvalidProblem for a seed that is out of range. `progress` is that of RunOptions.
Measured run(const NamedPlan& plan, const Tensors& tensors, index_t seed, std::function<void(double)> progress = {});
/// Runs a plan on Python's arrays, without the interpreter's lock; a long run heeds signals. Returns what the run
/// counted, if `measure`, or None.
nb::object run(const NamedPlan& plan, nb::handle arrays, bool tokens_first, index_t seed, bool measure);
/// It runs a plan on tensors of which Python holds the arrays.
Measured run_tensors(const NamedPlan& plan, const Tensors& tensors, index_t seed);
nb::dict counted(const NamedPlan& plan);

}  // namespace redblue::python
