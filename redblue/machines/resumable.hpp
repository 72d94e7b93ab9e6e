#pragma once
#include <functional>
#include <limits>
#include <stdexcept>
#include <utility>

#include "redblue/machines/passing.hpp"

namespace redblue::machine {

inline constexpr index_t kAllOperations = std::numeric_limits<index_t>::max();

/// Where a run of a schedule begins, and how far it is, in operations: open, read, write, run, modify. A schedule reads
/// no number, so the list of these is the same every time.
struct Resumption {
  index_t done = 0;  ///< operations that an earlier run has done, or kAllOperations
  /// Called before the first operation that is not left out, if some were: fast memory has the tiles that are open
  /// there, and shall now get their words.
  std::function<void()> reached{};
  /// Called before each operation after that one, with the number of operations before it. What slow and fast memory
  /// hold then is all that a run has.
  std::function<void(index_t)> between{};
  index_t operations = 0;  ///< so far, with those that were left out
};

/// Lets a run of a schedule begin where an earlier one was stopped: of the operations that were done, it leaves out all
/// but the opening and closing of tiles.
///
/// A schedule that asks for data (language/data_machine.hpp) cannot be stopped from its first question on: `between` is
/// called no more. Questions that are left out with all else get the worst answer.
///
/// The machine below has one worker.
template <class Base>
class Resumable : public Passing<Resumable<Base>, Base> {
  using Passes = Passing<Resumable, Base>;

 public:
  /// Both outlive it.
  Resumable(Base& base, Resumption& resumption) : Passes(base), at_(resumption) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    is_next_done();
    return Passes::open(array, s, layout);
  }
  void read(const Arg& tile, const Block& b) {
    if (!is_next_done()) Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    if (!is_next_done()) Passes::write(b, tile);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    if (!is_next_done()) Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    if (!is_next_done()) Passes::modify(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    asked_ = true;
    if (at_.operations <= at_.done) return worst;
    return Passes::read_index(question, word, worst);
  }

 private:
  /// Counts the next operation. Was it done before?
  bool is_next_done() {
    if (at_.operations > at_.done) {
      if (at_.between && !asked_) at_.between(at_.operations);
    } else if (at_.operations == at_.done && at_.done > 0 && at_.reached) {
      at_.reached();
    }
    return at_.operations++ < at_.done;
  }

  Resumption& at_;
  bool asked_ = false;
};

}  // namespace redblue::machine
