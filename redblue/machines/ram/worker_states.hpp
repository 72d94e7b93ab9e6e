#pragma once
#include <vector>

#include "redblue/machines/ram/arena.hpp"
#include "redblue/machines/ram/team.hpp"

namespace redblue::machine {

/// Carries out calls of kernels in place of implementations: a level of memory below (redblue/levels/).
template <class T>
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  /// Calls of several workers may be under way at once, one of each.
  virtual void run(int worker, const kernel::AnyKernel& k, std::span<const View<T>> views) = 0;

 protected:
  KernelRunner() = default;
  KernelRunner(const KernelRunner&) = default;
  KernelRunner& operator=(const KernelRunner&) = default;
};

/// What the workers of a Ram have together: an arena for each, and what the user gave of slow memory.
template <class T, class Slow>
struct WorkerStates {
  using Arrays = typename Slow::Arrays;

  /// For begin().
  WorkerStates() = default;
  /// `given` holds memory for each arena, or nothing.
  WorkerStates(Team* team, index_t M, std::vector<Arrays> slow, const kernel::Implementations<T>& implementations,
               std::span<const ArenaMemory<T>> given)
      : team(team), implementations(&implementations), slow(std::move(slow)) {
    const std::size_t workers = team == nullptr ? 1 : static_cast<std::size_t>(team->workers());
    arenas.reserve(workers);
    for (std::size_t i = 0; i < workers; ++i) arenas.push_back(i < given.size() ? Arena<T>(M, given[i]) : Arena<T>(M));
  }
  /// As new ones for a run on `slow`, which the caller has filled in, with an arena for each worker in memory that is
  /// given. The lists stay, so that a run takes no memory for them where it has no more workers than the one before.
  void begin(Team& its_team, index_t M, const kernel::Implementations<T>& its_implementations,
             std::span<const ArenaMemory<T>> given) {
    team = &its_team;
    implementations = &its_implementations;
    if (arenas.size() > given.size()) arenas.erase(arenas.begin() + std::ssize(given), arenas.end());
    while (arenas.size() < given.size()) arenas.emplace_back(M);
    for (std::size_t i = 0; i < given.size(); ++i) arenas[i].begin(M, given[i]);
  }

  Arena<T>& arena_of(Team::Worker worker) { return arenas[static_cast<std::size_t>(worker.index)]; }
  /// For item i of n of the outermost loop: one per item if there are enough, else one per worker; a worker runs one
  /// such item at a time.
  Slow slow_memory(index_t n, index_t i, int worker) const {
    const std::size_t own =
        static_cast<std::size_t>(n) <= slow.size() ? static_cast<std::size_t>(i) : static_cast<std::size_t>(worker);
    return {slow[slow.size() == 1 ? 0 : own], *implementations};
  }
  index_t sum(index_t (Arena<T>::*words)() const) const {
    index_t total = 0;
    for (const Arena<T>& a : arenas) total += (a.*words)();
    return total;
  }

  Team* team = nullptr;
  const kernel::Implementations<T>* implementations = nullptr;
  std::vector<Arena<T>> arenas;
  std::vector<Arrays> slow;
  KernelRunner<T>* below = nullptr;  ///< null: implementations run kernels
};

}  // namespace redblue::machine
