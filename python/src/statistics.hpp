#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

/// What runs and plans of this process were, for redblue.stats() and for redblue.explain() of the last call. Runs count
/// without locks, so that threads do not wait for each other, and a child of fork() goes on from its parent's numbers.
namespace redblue::python {

struct NamedPlan;

/// What a plan has counted.
struct RunCount {
  std::atomic<std::int64_t>* by_schedule = nullptr;  ///< runs by its schedule
  std::atomic<bool> has_run = false;
};

/// Runs by the schedule of this name.
std::atomic<std::int64_t>& runs_by(std::string_view schedule);

/// A plan was made in this time.
void count_plan(double seconds);
/// A run of the plan has ended; `seed` is that of its dropout.
void count_run(const NamedPlan& plan, std::int64_t seed);
/// An error of redblue is raised.
void count_refusal();

/// "redblue::forward flash n_q=1024 n_k=1024 d=64", the name of a run in a profile.
std::string title_of(const NamedPlan& plan);

void add_statistics(nanobind::module_& m);

}  // namespace redblue::python
