#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "redblue/machines/ram/sizing.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/fewer_tiles.hpp"
#include "redblue/runtime/ram/resources.hpp"

namespace redblue {

/// What the arena of a worker takes for a plan, and for the forward plan before it, remembered from run to run: to find
/// out takes a walk through the operations. Any number of threads may use it at once.
class ArenaMemo : public Backend::Memo {
 public:
  /// Bytes beside inputs and outputs that were enough for the runs so far; 0: there was none.
  index_t bytes() const { return bytes_; }
  void remember(index_t bytes) { bytes_ = bytes; }

  /// The words of the chosen row, on arrays that lie like those of `slow`.
  template <class T>
  machine::ArenaWords words(const plan::Plan& plan, const machine::SlowMemory& slow, bool bf16, Walk walk) {
    const kernel::Implementations<T>& implementations = implementations_for<T>(bf16);
    const Key key{&plan, &implementations, kinds_of(slow), walk};
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, words] : known_)
        if (known == key) return words;
    }
    const machine::CallerMemory<T> memory(slow, implementations);
    const machine::ArenaWords words = walk == Walk::whole
                                          ? walked(plan, unlike_instances(plan), memory, implementations)
                                          : walk_some(plan, memory, implementations);
    const std::lock_guard lock(mutex_);
    return known_.emplace_back(key, words).second;
  }

 private:
  static constexpr index_t kFew = 20'000, kMany = 1'000'000;  ///< kernel calls: some 0.3 and 15 ms
  template <class T>
  using TooMany = typename machine::Sizing<machine::CallerMemory<T>>::TooMany;

  template <class T>
  static machine::ArenaWords walked(const plan::Plan& plan, const plan::Instances& x,
                                    const machine::CallerMemory<T>& memory,
                                    const kernel::Implementations<T>& implementations,
                                    index_t most = std::numeric_limits<index_t>::max()) {
    machine::ArenaWords words;
    bool asked = true;
    for (const bool worst : {true, false}) {
      if (!asked) break;  // no decision: another walk would be the same
      machine::Sizing sizing(plan.row().footprint.to_index(), sizeof(T), memory, implementations, most, worst);
      machine::Any any(sizing);
      run_on(any, plan, x);
      words.grow(sizing.words());
      asked = sizing.asked();
    }
    return words;
  }
  /// Walks through all sequences and parts of a pattern, or where that takes long through one of each shape: then it
  /// leaves out what is written for queries without keys. It takes all where products go over them together.
  template <class T>
  static machine::ArenaWords walk_some(const plan::Plan& plan, const machine::CallerMemory<T>& memory,
                                       const kernel::Implementations<T>& implementations) {
    plan::Instances x = plan.instances();
    const schedule::Traits& traits = plan.row().algorithm->traits;
    const bool hides = traits.hides && has_pattern(x.sizes);
    // Whether it takes the pattern or an interval mask depends on its tiling, or on the pattern.
    const bool either = has_pattern(x.sizes) && traits.patterns && (traits.hides || traits.intervals);
    if (x.sizes.sequences == nullptr || is_projected(plan.problem.op) || either)
      return walk_some(plan, unlike_instances(plan), memory, implementations);
    try {
      return walked(plan, unlike_instances(plan), memory, implementations, kFew);
    } catch (const TooMany<T>&) {
      x.count = 1;
    }
    machine::ArenaWords words;
    std::set<std::pair<std::array<index_t, 5>, const Pattern*>> seen;
    for (Sizes& part : sequences_of(hides ? with_envelopes(plan.problem.sizes()) : plan.problem.sizes())) {
      const Mask& mask = part.mask;
      if (!seen.insert({{part.n_q, part.n_k, mask.lo, mask.hi, mask.prefix}, mask.list()}).second) continue;
      x.sizes = std::move(part);
      words.grow(walk_some(plan, x, memory, implementations));
    }
    return words;
  }
  template <class T>
  static machine::ArenaWords walk_some(const plan::Plan& plan, plan::Instances x,
                                       const machine::CallerMemory<T>& memory,
                                       const kernel::Implementations<T>& implementations) {
    const plan::Row& row = plan.row();
    try {
      return walked(plan, x, memory, implementations, kFew);
    } catch (const TooMany<T>&) {
      x.sizes = fewer_tiles(*row.algorithm, x.sizes, row.tiling);
    }
    try {
      return walked(plan, x, memory, implementations, kMany);
    } catch (const TooMany<T>&) {
      x.sizes = fewer_features(*row.algorithm, x.sizes, row.tiling);
    }
    return walked(plan, x, memory, implementations);
  }

  /// The properties of an array that decide whether it is staged.
  struct Kind {
    DType dtype;
    bool uniform_rows, side_by_side;
    bool operator==(const Kind&) const = default;
  };
  using Kinds = std::array<Kind, kSlowArrays>;
  struct Key {
    const plan::Plan* plan;
    const kernel::ImplementationTraits* implementations;
    Kinds kinds;
    Walk walk;
    bool operator==(const Key&) const = default;
  };
  static Kinds kinds_of(const machine::SlowMemory& slow) {
    Kinds kinds{};
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      kinds[a] = {slow[a].dtype, slow[a].uniform_rows(), slow[a].col_stride == 1};
    return kinds;
  }

  std::atomic<index_t> bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<Key, machine::ArenaWords>> known_;
};

}  // namespace redblue
