#pragma once
#include <array>
#include <span>

#include "redblue/kernels/kernel.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue {

/// A machine that looks how much of a schedule's work lies in loops of several rounds, which workers can share. It
/// walks through the middle round of each, for all.
class SharedLoops : public machine::Passing<SharedLoops, machine::Null> {
 public:
  SharedLoops() : Passing(machine::nothing()) {}
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
  Words shared_flops() const { return 2 * shared_; }

 private:
  template <class K>
  void count(const K& k, std::span<const Arg> args) {
    if (rounds_ == 1) return;
    std::array<index_t, kSlowArrays> reads{};
    index_t macs = 0;
    kernel::Tally tally{reads, macs};
    kernel::add_to(tally, k, args);
    shared_ += Words(rounds_) * macs;
  }

  index_t rounds_ = 1;  ///< of the loops around this place, in all
  Words shared_;        ///< multiply-adds
};

inline Words shared_flops(const plan::Prepared& schedule) {
  SharedLoops machine;
  machine::Any any(machine);
  schedule.run(any);
  return machine.shared_flops();
}

}  // namespace redblue
