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
  /// Called before an operation that finds fast memory empty, with the number of operations before it.
  std::function<void(index_t)> at_rest{};
  index_t operations = 0;  ///< so far, with those that were left out
};

/// Lets a run of a schedule begin where an earlier one was stopped. Where fast memory is empty, slow memory is all that
/// a run has, and another run may go on from there: this machine leaves out the operations before such a place, and
/// calls back at those that follow.
///
/// A schedule that asks for data (language/data_machine.hpp) has no such places from its first question on. Questions
/// that are left out with all else get the worst answer.
///
/// The machine below has one worker.
template <class Base>
class Resumable : public Passing<Resumable<Base>, Base> {
  using Passes = Passing<Resumable, Base>;

 public:
  /// Both outlive it.
  Resumable(Base& base, Resumption& resumption) : Passes(base), at_(resumption) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    if (is_next_done()) return depth_++;
    ++depth_;
    return Passes::open(array, s, layout);
  }
  void close(index_t depth, SlowArray array, Shape s) {
    --depth_;
    if (!is_behind()) Passes::close(depth, array, s);
  }
  void store_hint(index_t depth, const Block& b) {
    if (!is_behind()) Passes::store_hint(depth, b);
  }
  void read_hint(const Block& b) {
    if (at_.operations >= at_.done) Passes::read_hint(b);
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
    if (is_behind()) return worst;  // the earlier run had the data; this one only walks past it
    return Passes::read_index(question, word, worst);
  }

 private:
  /// Of operations that belong to a tile: it was opened by one that was left out.
  bool is_behind() const { return at_.operations <= at_.done; }
  /// Counts the next operation. Was it done before?
  bool is_next_done() {
    if (depth_ == 0 && at_.operations > at_.done && at_.at_rest && !asked_) at_.at_rest(at_.operations);
    if (depth_ != 0 && at_.operations == at_.done && at_.done > 0)
      throw std::logic_error("a run is resumed where fast memory holds tiles");
    return at_.operations++ < at_.done;
  }

  Resumption& at_;
  index_t depth_ = 0;  ///< tiles that are open
  bool asked_ = false;
};

}  // namespace redblue::machine
