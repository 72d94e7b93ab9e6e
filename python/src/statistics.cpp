#include "statistics.hpp"

#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "module.hpp"
#include "plan.hpp"

namespace redblue::python {

namespace {

using Count = std::atomic<std::int64_t>;
constexpr auto kRelaxed = std::memory_order_relaxed;

/// A list that only grows, by one for each schedule.
struct OfSchedule {
  std::string name;
  OfSchedule* next = nullptr;
  Count runs = 0;
};
std::atomic<OfSchedule*> schedules{nullptr};

Count plans{0}, nanoseconds{0}, first_runs{0}, refusals{0};

/// The plan that ran last. Threads that run the same one again take no lock.
struct Last {
  std::atomic<const NamedPlan*> plan{nullptr};
  std::atomic<std::int64_t> seed{0};
  std::mutex mutex;
  std::shared_ptr<const NamedPlan> kept;
};

/// Never destroyed: threads may run until the process ends. A child of fork() begins without one: a thread of the
/// parent may have held its lock.
Last*& current() {
  static auto* last = new Last;
  return last;
}
Last& last_run() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { current() = new Last; });
  static_cast<void>(watched);
  return *current();
}

OfSchedule* found(OfSchedule* list, std::string_view name) {
  while (list != nullptr && list->name != name) list = list->next;
  return list;
}

nb::dict statistics(bool reset) {
  const auto value = [&](Count& count) { return reset ? count.exchange(0) : count.load(); };
  nb::dict by_schedule;
  std::int64_t runs = 0;
  for (OfSchedule* one = schedules.load(); one != nullptr; one = one->next)
    if (const std::int64_t n = value(one->runs); n > 0) {
      by_schedule[one->name.c_str()] = n;
      runs += n;
    }
  nb::dict d;
  d["calls"] = runs;
  d["refusals"] = value(refusals);
  d["plans"] = value(plans);
  d["plan_ms"] = 1e-6 * static_cast<double>(value(nanoseconds));
  d["cache_hits"] = std::max<std::int64_t>(0, runs - value(first_runs));
  d["schedules"] = by_schedule;
  return d;
}

std::pair<std::shared_ptr<const NamedPlan>, std::int64_t> last_plan() {
  Last& last = last_run();
  const std::lock_guard lock(last.mutex);
  return {last.kept, last.seed.load()};
}

}  // namespace

Count& runs_by(std::string_view schedule) {
  if (OfSchedule* const known = found(schedules.load(), schedule)) return known->runs;
  auto fresh = std::make_unique<OfSchedule>(std::string(schedule), schedules.load());
  while (!schedules.compare_exchange_weak(fresh->next, fresh.get()))
    if (OfSchedule* const known = found(fresh->next, schedule)) return known->runs;  // another thread was faster
  return fresh.release()->runs;
}

void count_plan(double seconds) {
  plans.fetch_add(1, kRelaxed);
  nanoseconds.fetch_add(static_cast<std::int64_t>(1e9 * seconds), kRelaxed);
}

void count_run(const NamedPlan& p, std::int64_t seed) {
  if (p.runs.by_schedule == nullptr) return;  // a plan that travelled is not run
  if (!p.runs.has_run.load(kRelaxed) && !p.runs.has_run.exchange(true)) first_runs.fetch_add(1, kRelaxed);
  p.runs.by_schedule->fetch_add(1, kRelaxed);
  Last& last = last_run();
  const bool again = last.plan.load(kRelaxed) == &p;
  if (!again || p.plan.problem.dropout != 0) last.seed.store(seed, kRelaxed);
  if (again) return;
  std::shared_ptr<const NamedPlan> kept = p.weak_from_this().lock();
  const std::lock_guard lock(last.mutex);
  last.kept.swap(kept);  // the one before goes when the lock is free again
  last.plan.store(last.kept.get(), kRelaxed);
}

void count_refusal() { refusals.fetch_add(1, kRelaxed); }

std::string title_of(const NamedPlan& p) {
  const Problem& x = p.plan.problem;
  return fmt::format("redblue::{} {} n_q={} n_k={} d={}", name_of(x.op), p.plan.row().schedule, x.n_q, x.n_k, x.d);
}

void add_statistics(nb::module_& m) {
  using namespace nb::literals;
  m.def("statistics", &statistics, "reset"_a, "The numbers of redblue.stats(); `reset` makes them 0.");
  m.def("last_plan", &last_plan, "The plan that ran last in this process, or None, and the seed of its dropout.");
  m.def("count_refusal", &count_refusal, "One more error of redblue is raised.");
}

}  // namespace redblue::python
