#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "redblue/planner/downhill.hpp"

/// Plans of least time for lengths that nobody saw before, in microseconds. Schedule and tiles hardly depend on the
/// lengths: they are chosen once for a class of lengths, and serve all of it (docs/time-model.md#classes-of-lengths).
namespace redblue {

/// Schedules and tiles of classes, of some 500 bytes each; the one that was not used for longest goes first. Any number
/// of threads may ask at once: those that want one class wait for one of them to choose, others do not wait.
class Recipes {
 public:
  explicit Recipes(std::size_t most = 4096) : most_(most) {}

  /// The plan with the schedule and the tiles of the problem's class, as its only row. Where a pattern keeps it from
  /// having one, the fastest tiles of the usual schedules. Where it has no class for other reasons, where the options
  /// ask for more than M, or where the tiles do not fit: make_fastest_plan. Throws what that throws.
  plan::Plan plan(const Problem& problem, const plan::Options& options, const TimeOptions& time);

  std::size_t size() const;

 private:
  /// What is kept by its key; what was not used for longest goes first.
  template <class T>
  class Kept {
   public:
    std::shared_ptr<T> of(const std::string& key, std::size_t most) {
      const std::lock_guard lock(mutex_);
      if (const auto found = by_key_.find(key); found != by_key_.end()) {
        list_.splice(list_.begin(), list_, found->second);
        return list_.front().second;
      }
      list_.emplace_front(key, std::make_shared<T>());
      by_key_.emplace(list_.front().first, list_.begin());
      if (list_.size() > most) {
        by_key_.erase(list_.back().first);
        list_.pop_back();
      }
      return list_.front().second;
    }
    std::size_t size() const {
      const std::lock_guard lock(mutex_);
      return list_.size();
    }

   private:
    mutable std::mutex mutex_;
    std::list<std::pair<std::string, std::shared_ptr<T>>> list_;  ///< the last one used comes first
    std::unordered_map<std::string_view, typename decltype(list_)::iterator> by_key_;
  };
  struct Kind {
    std::once_flag chosen;
    std::vector<LikelySchedule> contenders;
  };
  struct Recipe {
    std::once_flag chosen;
    std::shared_ptr<const plan::Schedule> schedule;
    plan::Tiling tiling;
    std::vector<index_t> blocks;  ///< into how many each of these tiles cuts any lengths; 0: it keeps its size

    /// `row` is the fastest for `one`, which stands for the class.
    void take(const plan::Row& row, const Problem& one, const plan::Options& options, const TimeOptions& time);
    plan::Tiling tiles_for(const Sizes& x) const;
  };
  std::size_t most_;
  Kept<Kind> kinds_;
  Kept<Recipe> recipes_;
};

}  // namespace redblue
