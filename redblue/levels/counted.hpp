#pragma once
#include <map>
#include <memory>
#include <vector>

#include "redblue/levels/carry_out.hpp"
#include "redblue/levels/sizes.hpp"
#include "redblue/machines/counting.hpp"

/// Words at every level of a nest, counted.
namespace redblue::levels {

/// What calls move at an inner level, and the most that it holds.
struct InnerWords {
  Io io;
  Words peak;

  /// Adds what moves `times` times, one after the other.
  void add(Words times, const InnerWords& other) {
    io = io + times * other.io;
    peak = std::max(peak, other.peak);
  }
};

/// The kinds of calls that a level makes of the one below, and how many of each: calls that differ only in where they
/// lie are of one kind. What their masks point to outlives it.
class CallKinds {
 public:
  /// All that the words of a call depend on: its arrays and its place, too. Places differ most.
  struct Key {
    std::vector<index_t> place, arrays;
    CallKey call;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Kind {
    kernel::PlainKernel kernel;
    std::vector<Block> args;  ///< all at the corners of their arrays
    Words times;
  };

  /// Throws Unsupported where it is not known how the kernel divides.
  void add(const kernel::AnyKernel& k, std::span<const Arg> args);
  /// Adds others, each `times` times.
  void add(const CallKinds& others, Words times);
  const std::map<Key, Kind>& all() const { return all_; }

 private:
  std::map<Key, Kind> all_;
};

/// Counts what calls of kernels move at each of these levels, the outermost first: each kind once.
class InnerCounts {
 public:
  explicit InnerCounts(std::vector<Inner> levels);

  // They throw CapacityError where a level has not the words for the smallest ranges.
  std::vector<InnerWords> words(const CallKinds& kinds);
  /// The calls at all levels, level by level.
  std::vector<Calls> calls(const CallKinds& kinds);

 private:
  /// What a call of one kind moves at each level, and the calls that it makes of the level below.
  struct Known {
    std::vector<InnerWords> words;
    PerLetter sizes;
    CallKinds below;
  };
  const Known& of(const CallKinds::Key& key, const CallKinds::Kind& kind);
  Known counted(const CallKinds::Kind& kind);

  std::vector<Inner> levels_;
  ChosenSizes sizes_;
  std::map<CallKinds::Key, Known> known_;
  std::unique_ptr<InnerCounts> below_;
};

/// Counts what a level moves that runs implementations: of steps that have the same shapes it does one (for_steps).
class CountingAlike : public machine::Passing<CountingAlike, machine::Counting> {
 public:
  explicit CountingAlike(machine::Counting& base) : Passing(base) {}

  /// The step is done `times` times.
  template <class Step>
  void add_alike(index_t times, const Step& step, const Ranges& at) {
    machine::Counting one;
    CountingAlike on(one);
    step(on, at);
    more_ = more_ + Words(times) * one.io();
  }
  /// The words of steps that were not done, beside those of the machine.
  const Io& more() const { return more_; }

 private:
  Io more_;
};

/// Notes the calls that levels below carry out, and how much this one holds: what a kernel needs one panel at a time is
/// with the level below. All else passes through another machine.
template <class Base>
class Nested : public machine::Passing<Nested<Base>, Base> {
  using Passes = machine::Passing<Nested, Base>;

 public:
  Nested(Base& base, CallKinds& calls) : Passes(base), calls_(calls) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    held_.push_back(layout == Layout::panel_scratch ? 0 : s.words());
    resident_ += held_.back();
    peak_ = std::max(peak_, resident_);
    return Passes::open(array, s, layout);
  }
  void close(index_t depth, SlowArray array, Shape s) {
    resident_ -= held_.back();
    held_.pop_back();
    Passes::close(depth, array, s);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    pass(k, args);
    Passes::run(k, args);
    calls_.add(kernel::erase(k), args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    pass(k, args);
    Passes::modify(k, args);
    calls_.add(kernel::erase(k), args);
  }

  /// The most words that the level holds at a time.
  index_t peak() const { return peak_; }

 private:
  void pass(const auto& k, std::span<const Arg> args) {
    peak_ = std::max(peak_, resident_ + kernel::most_passing(k, args));
  }

  CallKinds& calls_;
  std::vector<index_t> held_;  ///< by depth
  index_t resident_ = 0, peak_ = 0;
};

}  // namespace redblue::levels
