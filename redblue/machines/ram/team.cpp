#include "redblue/machines/ram/team.hpp"

#include <algorithm>
#include <exception>
#include <memory>

#include "redblue/threads/sleeper.hpp"
#include "redblue/threads/spin.hpp"
#include "redblue/threads/subnormals.hpp"

namespace redblue::machine {

/// A loop under way. It lives on the stack of the worker that started it, who leaves only after all its helpers.
struct Team::Loop {
  const Item& item;
  const int depth;                        ///< loops around it
  alignas(64) std::atomic<index_t> left;  ///< items not handed out yet; below 0 once more were asked for
  std::atomic<int> helpers{0};
  std::mutex mutex;
  std::exception_ptr error;

  Loop(const Item& item, int depth, index_t n) : item(item), depth(depth), left(n) {}

  /// Runs items for as long as there are any.
  void work(int index) {
    for (index_t i = --left; i >= 0; i = --left) try {
        item({index, depth + 1}, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        left = 0;
      }
  }
};

void Team::run(ThreadPool& pool, int workers, const std::function<void(Team&)>& main, Subnormals subnormals) {
  const bool flush = subnormals == Subnormals::flushed;
  if (workers == 1) {  // it never waits
    const threads::FlushSubnormals here(flush);
    Team alone(1, nullptr);
    return main(alone);
  }
  const auto sleepers = std::make_unique<threads::Sleeper[]>(static_cast<std::size_t>(workers));
  Team team(workers, sleepers.get());
  std::exception_ptr error;
  std::atomic<int> arrived{0};
  pool.run(workers, [&](int) {
    const threads::FlushSubnormals here(flush);
    const int index = arrived++;
    if (index > 0) return team.help_until([&] { return team.ended_.load(); }, index, 0);
    try {
      main(team);
    } catch (...) {
      error = std::current_exception();
    }
    team.ended_ = true;
    team.signal();
  });
  if (error) std::rethrow_exception(error);
}

void Team::each(Worker self, index_t n, const Item& item) {
  Loop loop(item, self.depth, n);
  if (workers_ == 1 || n < 2) {
    loop.work(self.index);
  } else {
    publish(loop);
    loop.work(self.index);
    withdraw(loop);
    help_until([&] { return loop.helpers.load() == 0; }, self.index, self.depth + 1);
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

void Team::publish(Loop& loop) {
  {
    const std::lock_guard lock(mutex_);
    loops_.push_back(&loop);
  }
  signal();
}

/// From here on nobody joins the loop.
void Team::withdraw(Loop& loop) {
  const std::lock_guard lock(mutex_);
  loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
}

/// Works on the outermost loop of at least this depth that has items left; false if there is none. The outermost: its
/// items are the largest.
bool Team::help(int index, int depth) {
  Loop* loop = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (Loop* l : loops_)
      if (l->depth >= depth && l->left > 0 && (loop == nullptr || l->depth < loop->depth)) loop = l;
    if (loop == nullptr) return false;
    ++loop->helpers;
  }
  loop->work(index);
  if (--loop->helpers == 0) signal();  // the loop may be gone already, the team is not
  return true;
}

template <class Done>
void Team::help_until(const Done& done, int index, int depth) {
  for (;;) {
    const int seen = signals_;
    if (done()) return;
    if (help(index, depth)) continue;
    const auto signalled = [&] { return signals_ != seen; };
    if (!threads::spin_until(signalled)) sleepers_[index].wait(signals_, seen);
  }
}

void Team::signal() {
  ++signals_;
  for (int i = 0; i < workers_; ++i) sleepers_[i].keep_away();
  signals_.notify_all();
}

}  // namespace redblue::machine
