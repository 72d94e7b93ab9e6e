#pragma once
#include <mutex>
#include <vector>

#include "engine.hpp"
#include "redblue/machine/sizing.hpp"

namespace redblue {

/// What the arena of a worker takes for a plan, and for the forward plan before it, remembered from run to run: to find
/// out takes a walk through the operations. Any number of threads may use it at once.
class ArenaMemo {
 public:
  /// Of the chosen row, on arrays that lie like those of `slow`. Throws Unsupported where that takes a walk through
  /// more than `most` kernel calls.
  template <class T>
  machine::ArenaWords words(const plan::Plan& plan, const machine::SlowMemory& slow, bool bf16, index_t most) {
    const kernel::Bodies<T>& bodies = bodies_for<T>(bf16);
    const Key key{&plan, &bodies, kinds_of(slow)};
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, words] : known_)
        if (known == key) return words;
    }
    const machine::CallerMemory<T> memory(slow, bodies);
    machine::Sizing sizing(plan.row().footprint.to_index(), sizeof(T), memory, bodies, most);
    machine::Any any(sizing);
    run_one_instance(any, plan);
    const std::lock_guard lock(mutex_);
    return known_.emplace_back(key, sizing.words()).second;
  }

 private:
  /// All of an array that decides whether it is staged.
  struct Kind {
    DType dtype;
    bool uniform_rows, side_by_side;
    bool operator==(const Kind&) const = default;
  };
  using Kinds = std::array<Kind, kSlowArrays>;
  struct Key {
    const plan::Plan* plan;
    const kernel::BodyTraits* bodies;
    Kinds kinds;
    bool operator==(const Key&) const = default;
  };
  static Kinds kinds_of(const machine::SlowMemory& slow) {
    Kinds kinds{};
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      kinds[a] = {slow[a].dtype, slow[a].uniform_rows(), slow[a].col_stride == 1};
    return kinds;
  }

  std::mutex mutex_;
  std::vector<std::pair<Key, machine::ArenaWords>> known_;
};

/// run_bytes and run of attention.hpp; the memo is of this plan alone.
Words run_bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo);
Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, ArenaMemo& memo);

}  // namespace redblue
