#pragma once
#include <array>
#include <span>

#include "redblue/kernels/kernel.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue {

/// A machine that looks whether loops of several rounds, which workers can share, hold as much work as this. It walks
/// through the middle round of each, for all, and stops when it has found enough.
class SharedLoops : public machine::Passing<SharedLoops, machine::Null> {
 public:
  /// Thrown when the answer is yes, or a walk of kMost operations has not come to its end: there is much to do then.
  struct Enough {};

  explicit SharedLoops(Words flops) : Passing(machine::nothing()), enough_(flops) {}
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    count(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    count(k, args);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    if (n < 1) return;
    const index_t before = rounds_;
    rounds_ *= n;
    body(*this, n / 2);
    rounds_ = before;
  }

 private:
  static constexpr int kMost = 2000;  // some 0.1 ms

  template <class K>
  void count(const K& k, std::span<const Arg> args) {
    if (++operations_ > kMost) throw Enough();
    if (rounds_ == 1) return;
    std::array<index_t, kSlowArrays> reads{};
    index_t macs = 0;
    kernel::Tally tally{reads, macs};
    kernel::add_to(tally, k, args);
    shared_ += Words(rounds_) * macs;
    if (2 * shared_ >= enough_) throw Enough();
  }

  const Words enough_;
  int operations_ = 0;
  index_t rounds_ = 1;  ///< of the loops around this place, in all
  Words shared_;        ///< multiply-adds
};

inline bool shares_work(const plan::Prepared& schedule, Words flops) {
  SharedLoops machine(flops);
  machine::Any any(machine);
  try {
    schedule.run(any);
  } catch (const SharedLoops::Enough&) {
    return true;
  }
  return false;
}

}  // namespace redblue
