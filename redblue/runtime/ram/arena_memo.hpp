#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "redblue/machines/ram/sizing.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/runtime/backend.hpp"
#include "redblue/runtime/fewer_tiles.hpp"
#include "redblue/runtime/ram/resources.hpp"
#include "redblue/runtime/ram/shared_loops.hpp"
#include "redblue/threads/worth.hpp"

namespace redblue {

/// What the runs of a plan's chosen row need, whatever their tensors.
class RowFacts {
 public:
  explicit RowFacts(const plan::Plan& plan)
      : shapes(plan.problem),
        inputs(shapes.inputs()),
        outputs(shapes.outputs()),
        workspace(plan.row().algorithm->workspace(shapes.sizes(), plan.row().tiling)),
        plan_(plan) {
    for (std::size_t i = 0; i < kSlowArrays; ++i) {
      const auto a = static_cast<SlowArray>(i);
      const auto has = [a](std::span<const SlowArray> list) { return std::ranges::find(list, a) != list.end(); };
      if (has(plan::inputs_of(plan.problem.op)) || has(plan::outputs_of(plan.problem.op))) arrays.push_back(a);
    }
  }

  const Shapes shapes;
  const std::vector<SlowArray> inputs, outputs;
  std::vector<SlowArray> arrays;  ///< all that the operation may read or write, in the order of SlowArray
  const std::vector<Workspace> workspace;

  /// The schedule, which the first run prepares.
  const plan::Prepared& prepared() const {
    std::call_once(once_, [&] {
      const Problem& p = plan_.problem;
      prepared_ =
          plan_.row().algorithm->prepare({shapes.sizes(), p.scale_or_default(), p.instances()}, plan_.row().tiling);
    });
    return *prepared_;
  }
  /// Is there work for two threads that they can share?
  bool is_shared() const {
    const plan::Prepared& schedule = prepared();
    std::call_once(walked_, [&] { is_shared_ = shares_work(schedule, 2 * threads::kFlopsPerThread); });
    return is_shared_;
  }
  /// Are they so few that a plan may keep them? There may be many sequences.
  bool are_few() const { return shapes.sizes().sequences == nullptr; }

 private:
  const plan::Plan& plan_;
  mutable std::once_flag once_, walked_;
  mutable bool is_shared_ = false;
  mutable std::unique_ptr<const plan::Prepared> prepared_;
};

/// What the arena of a worker takes for a plan, and for the forward plan before it, remembered from run to run: to find
/// out takes a walk through the operations. Any number of threads may use it at once.
class ArenaMemo : public Backend::Memo {
 public:
  /// `below`: does a level of memory below run kernels?
  explicit ArenaMemo(bool below = false) : below_(below) {}
  bool below() const { return below_; }
  /// Bytes beside inputs and outputs that were enough for the runs so far; 0: there was none.
  index_t bytes() const { return bytes_; }
  void remember(index_t bytes) { bytes_ = bytes; }

  std::shared_ptr<const RowFacts> facts(const plan::Plan& plan) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, facts] : facts_)
        if (known == &plan) return facts;
    }
    auto made = std::make_shared<const RowFacts>(plan);
    if (!made->are_few()) return made;
    const std::lock_guard lock(mutex_);
    return facts_.emplace_back(&plan, std::move(made)).second;
  }

  /// The words of the chosen row, of these facts, on arrays that lie like those of `slow`.
  template <class T, class Slow>
  machine::ArenaWords words(const plan::Plan& plan, const RowFacts& facts, const typename Slow::Arrays& slow,
                            Products products, Walk walk) {
    const kernel::Implementations<T>& implementations = implementations_for<T>(products);
    const Key key{&plan, &implementations, kinds_of(facts, slow), walk};
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, words] : known_)
        if (known == key) return words;
    }
    const Slow memory(slow, implementations);
    const machine::ArenaWords words = walk == Walk::whole
                                          ? walked<T>(plan, unlike_instances(plan), memory, implementations)
                                          : walk_some<T>(plan, memory, implementations);
    const std::lock_guard lock(mutex_);
    return known_.emplace_back(key, words).second;
  }

 private:
  static constexpr index_t kFew = 20'000, kMany = 1'000'000;  ///< kernel calls: some 0.3 and 15 ms
  template <class Slow>
  using TooMany = typename machine::Sizing<Slow>::TooMany;

  template <class T, class Slow>
  static machine::ArenaWords walked(const plan::Plan& plan, const plan::Instances& x, const Slow& memory,
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
  template <class T, class Slow>
  static machine::ArenaWords walk_some(const plan::Plan& plan, const Slow& memory,
                                       const kernel::Implementations<T>& implementations) {
    plan::Instances x = plan.instances();
    const schedule::Traits& traits = plan.row().algorithm->traits;
    const bool hides = traits.hides && has_pattern(x.sizes);
    // Whether it takes the pattern or an interval mask depends on its tiling, or on the pattern.
    const bool either = has_pattern(x.sizes) && traits.patterns && (traits.hides || traits.intervals);
    if (x.sizes.sequences == nullptr || is_projected(plan.problem.op) || either)
      return walk_some<T>(plan, unlike_instances(plan), memory, implementations);
    try {
      return walked<T>(plan, unlike_instances(plan), memory, implementations, kFew);
    } catch (const TooMany<Slow>&) {
      x.count = 1;
    }
    machine::ArenaWords words;
    std::set<std::pair<std::array<index_t, 5>, const Pattern*>> seen;
    for (Sizes& part : sequences_of(hides ? with_envelopes(plan.problem.sizes()) : plan.problem.sizes())) {
      const Mask& mask = part.mask;
      if (!seen.insert({{part.n_q, part.n_k, mask.lo, mask.hi, mask.prefix}, mask.list()}).second) continue;
      x.sizes = std::move(part);
      words.grow(walk_some<T>(plan, x, memory, implementations));
    }
    return words;
  }
  template <class T, class Slow>
  static machine::ArenaWords walk_some(const plan::Plan& plan, plan::Instances x, const Slow& memory,
                                       const kernel::Implementations<T>& implementations) {
    const plan::Row& row = plan.row();
    try {
      return walked<T>(plan, x, memory, implementations, kFew);
    } catch (const TooMany<Slow>&) {
      x.sizes = fewer_tiles(*row.algorithm, x.sizes, row.tiling);
    }
    try {
      return walked<T>(plan, x, memory, implementations, kMany);
    } catch (const TooMany<Slow>&) {
      x.sizes = fewer_features(*row.algorithm, x.sizes, row.tiling);
    }
    return walked<T>(plan, x, memory, implementations);
  }

  /// For each array, the properties that decide whether it is staged. The plan decides how workspace lies.
  using Kinds = std::array<std::uint8_t, kSlowArrays>;
  struct Key {
    const plan::Plan* plan;
    const kernel::ImplementationTraits* implementations;
    Kinds kinds;
    Walk walk;
    bool operator==(const Key&) const = default;
  };
  static Kinds kinds_of(const RowFacts& facts, const auto& slow) {
    Kinds kinds{};
    for (const auto* list : {&facts.inputs, &facts.outputs})
      for (const SlowArray array : *list) {
        const machine::Storage& s = slow[index_of(array)];
        kinds[index_of(array)] = static_cast<std::uint8_t>(4 * static_cast<int>(s.dtype) + (s.uniform_rows() ? 2 : 0) +
                                                           (s.col_stride == 1 ? 1 : 0));
      }
    return kinds;
  }

  const bool below_;
  std::atomic<index_t> bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<const plan::Plan*, std::shared_ptr<const RowFacts>>> facts_;
  std::vector<std::pair<Key, machine::ArenaWords>> known_;
};

}  // namespace redblue
