#pragma once
#include <functional>
#include <stdexcept>
#include <utility>

#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// Lets a run of a schedule begin where an earlier one was stopped. A schedule reads no number, so the list of its
/// operations (open, read, write, run, modify) is the same every time: a position in it is how many came before. At
/// some positions fast memory is empty: it is at rest. There slow memory is all that a run has, and another run may go
/// on from there. This machine leaves out the operations before such a position, and calls back at those that follow.
///
/// A schedule that asks for data (language/data_machine.hpp) is at rest no more from its first question on.
///
/// The machine below has one worker.
template <class Base>
class Resumable : public Passing<Resumable<Base>, Base> {
  using Passes = Passing<Resumable, Base>;

 public:
  /// Called before an operation that finds fast memory empty, with the number of operations before it.
  using AtRest = std::function<void(index_t)>;

  /// Leaves out the first `done` operations.
  explicit Resumable(Base& base, index_t done, AtRest at_rest = {})
      : Passes(base), done_(done), at_rest_(std::move(at_rest)) {}

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
    if (operations_ >= done_) Passes::read_hint(b);
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
    if (is_behind()) throw std::logic_error("a schedule asks for data that an earlier run had");
    asked_ = true;
    return Passes::read_index(question, word, worst);
  }

  index_t operations() const { return operations_; }  ///< so far, with those that were left out
  /// Throws std::logic_error where the schedule had fewer operations than were to be left out.
  void finish() const {
    if (operations_ < done_) throw std::logic_error("a run is resumed behind its end");
  }

 private:
  /// Of operations that belong to a tile: it was opened by one that was left out.
  bool is_behind() const { return operations_ <= done_; }
  /// Counts the next operation. Was it done before?
  bool is_next_done() {
    if (depth_ == 0 && operations_ > done_ && at_rest_ && !asked_) at_rest_(operations_);
    if (depth_ != 0 && operations_ == done_ && done_ > 0)
      throw std::logic_error("a run is resumed where fast memory holds tiles");
    return operations_++ < done_;
  }

  index_t done_;
  AtRest at_rest_;
  index_t operations_ = 0;
  index_t depth_ = 0;  ///< tiles that are open
  bool asked_ = false;
};

}  // namespace redblue::machine
