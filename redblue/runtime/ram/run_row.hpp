#pragma once
#include "redblue/machines/any.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/observed.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/runtime/measured.hpp"
#include "redblue/runtime/ram/resources.hpp"
#include "redblue/threads/subnormals.hpp"

namespace redblue {

/// Runs the plan's chosen row, as it was prepared, without a forward plan before it. `inside(ram)` is
/// the machine that the schedule meets where it would meet Ram: Ram itself, or one that wraps it.
template <class T, class Slow, class Inside>
Measured run_row_on(const plan::Plan& plan, const plan::Prepared& prepared, const Resources<T, Slow>& with,
                    const Inside& inside) {
  using Ram = machine::Ram<T, Slow>;
  const kernel::Implementations<T>& implementations = implementations_for<T>(with.products);
  Measured m;
  const auto main = [&](machine::Team& team) {
    with.scratch.states.begin(team, with.words, implementations, with.scratch.arenas);
    Ram ram(with.scratch.states);
    auto&& machine = inside(ram);
    machine::Counted counted(machine);
    using Counted = decltype(counted);
    typename machine::Observed<Counted>::Callback report;
    if (with.report)
      report = [&](const Counted& w) {
        const threads::FlushSubnormals usual(false);  // what the caller is told, he may compute with
        with.report(w.worker(), w.of_worker(w.worker()).words());
      };
    // Messages of ranks go on in these calls. With M of some 2^19 words each word that is read serves some 1,000
    // multiply-adds, so that a core calls every few milliseconds, in which 1 Gbit/s brings half a megabyte.
    constexpr index_t kWordsBetweenReports = index_t{1} << 17;
    machine::Observed observed(counted, report, kWordsBetweenReports);
    machine::Any any(observed);
    prepared.run(any);
    measure(counted, m);
    if (with.products == Products::below) m.peak = ram.most_held();  // the level below has the rest
    m.staging_words = ram.staging_words();
    m.padding_words = ram.padding_words();
    m.kernels = name_of(with.products == Products::own || with.products == Products::below ? without_bf16(best_isa())
                                                                                           : implementations.isa);
  };
  // Certificates of approximations are proved for arithmetic with subnormal numbers.
  const bool exact = plan.problem.method_kind() == MethodKind::exact;
  machine::Team::run(*with.pool, static_cast<int>(with.scratch.arenas.size()), std::ref(main),
                     exact ? machine::Team::Subnormals::flushed : machine::Team::Subnormals::kept);
  return m;
}

/// Does so on Ram itself, in the caller's memory; it is compiled once.
template <class T>
Measured run_row(const plan::Plan& plan, const plan::Prepared& prepared, const Resources<T>& with);

}  // namespace redblue
