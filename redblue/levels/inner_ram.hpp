#pragma once
#include <memory>
#include <vector>

#include "redblue/levels/sizes.hpp"
#include "redblue/machines/ram/ram.hpp"

/// Inner levels that compute.
namespace redblue::levels {

template <class T>
class InnerRam;  // inner_ram.cpp: the inner levels of one worker

/// Carries out calls on tiles of the level above. Each worker of that level has a team of its own: the arenas of the
/// team are the memory of the level, the tiles above are its slow memory. The last level runs implementations.
template <class T>
class InnerLevels : public machine::KernelRunner<T> {
 public:
  /// `levels`: those below the one that has `above` workers, the first of which has `workers` of `pool` for each of
  /// them; below that each works alone.
  InnerLevels(const std::vector<Inner>& levels, int above, ThreadPool& pool, int workers,
              const kernel::Implementations<T>& implementations);
  ~InnerLevels() override;
  InnerLevels(const InnerLevels&) = delete;
  InnerLevels& operator=(const InnerLevels&) = delete;

  /// Throws CapacityError where a level has not the words for the smallest ranges, Unsupported where the kernel does
  /// not say how it divides.
  void run(int worker, const kernel::AnyKernel& k, std::span<const View<T>> views) override;

  /// What has moved into the memory of each level and out of it so far, and the most that one worker held.
  struct Moved {
    Words words, peak;
  };
  std::vector<Moved> moved() const;
  /// Seconds of calls so far, of all workers above together.
  double seconds() const;

 private:
  std::vector<std::unique_ptr<InnerRam<T>>> workers_;
};

extern template class InnerLevels<float>;
extern template class InnerLevels<double>;

}  // namespace redblue::levels
