#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "redblue/language/types.hpp"
#include "redblue/threads/pool.hpp"

namespace redblue::threads {
class Sleeper;
}

namespace redblue::machine {

/// The workers of one run. They enter together, once: the first to arrive runs the main function, and the others take
/// items of the loops that it, and they, start, until it has ended. One or more may arrive.
class Team {
 public:
  /// Where a thread stands.
  struct Worker {
    int index = 0;  ///< which worker it is, the same throughout the run; main runs on worker 0
    int depth = 0;  ///< how many loops are around it
  };
  using Item = std::function<void(Worker, index_t)>;

  /// Results below the smallest normal number: kept as they are, or set to 0 (threads/subnormals.hpp).
  enum class Subnormals : bool { kept, flushed };

  /// Runs main(team) on one thread of the pool with up to workers - 1 others to help. What main throws is thrown here.
  static void run(ThreadPool& pool, int workers, const std::function<void(Team&)>& main,
                  Subnormals subnormals = Subnormals::kept);

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int workers() const { return workers_; }

  /// Calls item(worker, i) for each i < n, in any order, on whichever workers are free, and returns when all have
  /// returned. `self` is the worker that calls; loops may be nested. Items are handed out from the last to the first:
  /// under a causal mask the last block of queries sees most keys, and the longest first leaves the least waiting.
  /// While `self` waits for others it takes items of loops inside the one it waits for, and of no other: what belongs
  /// to the item that it is in stays its own. Throws the first exception of an item; the items that have not begun by
  /// then are left out.
  void each(Worker self, index_t n, const Item& item);

 private:
  struct Loop;

  Team(int workers, threads::Sleeper* sleepers) : workers_(workers), sleepers_(sleepers) {}
  void publish(Loop& loop);
  void withdraw(Loop& loop);
  bool help(int index, int depth);
  template <class Done>
  void help_until(const Done& done, int index, int depth);
  void signal();

  const int workers_;
  threads::Sleeper* const sleepers_;  ///< one for each worker
  std::mutex mutex_;
  std::vector<Loop*> loops_;     ///< under way
  std::atomic<int> signals_{0};  ///< changes when a loop is published, left by its last helper, or main has ended
  std::atomic<bool> ended_{false};
};

}  // namespace redblue::machine
