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

  InnerWords& operator+=(const InnerWords& other) {
    io = io + other.io;
    peak = std::max(peak, other.peak);
    return *this;
  }
};

/// Calls of one kernel on arguments of the same shapes, at one level.
struct Calls {
  std::size_t level;  ///< 0: the first of the inner levels
  CallKey call;
  PerLetter sizes;  ///< of ranges
  Words times;
  Words words;  ///< that all of them move
};

/// Counts what calls of kernels move at each of these levels, the outermost first. Calls that differ only in where they
/// lie are counted once.
class InnerCounts {
 public:
  explicit InnerCounts(std::vector<Inner> levels);

  /// Throws CapacityError where a level has not the words for the smallest ranges.
  void add(const kernel::AnyKernel& k, std::span<const Arg> args);
  const std::vector<InnerWords>& words() const { return words_; }
  /// The calls so far, level by level, each kind once.
  std::vector<Calls> calls() const;

 private:
  /// What a call of one kind moves at each level, and the calls that it makes of the levels below.
  struct Known {
    std::vector<InnerWords> words;
    PerLetter sizes;
    std::vector<Calls> below;
    Words times;
  };
  /// All that the words of a call depend on: its arrays and its place, too.
  struct Key {
    CallKey call;
    std::vector<index_t> arrays, place;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  Known& of(const kernel::AnyKernel& k, std::span<const Arg> args);
  Known counted(const kernel::AnyKernel& k, std::span<const Arg> args, const Division& division,
                std::span<const Shape> shapes);
  /// As a new one that knows what this one has counted.
  void begin();

  std::vector<Inner> levels_;
  std::vector<InnerWords> words_;
  ChosenSizes sizes_;
  std::map<Key, Known> known_;
  std::unique_ptr<InnerCounts> below_;
};

/// Counts what calls move at the levels below, and how much this one holds: what a kernel needs one panel at a time is
/// with the level below. All else passes through another machine.
template <class Base>
class Nested : public machine::Passing<Nested<Base>, Base> {
  using Passes = machine::Passing<Nested, Base>;

 public:
  Nested(Base& base, InnerCounts& inner) : Passes(base), inner_(inner) {}

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
    inner_.add(kernel::erase(k), args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    pass(k, args);
    Passes::modify(k, args);
    inner_.add(kernel::erase(k), args);
  }

  /// The most words that the level holds at a time.
  index_t peak() const { return peak_; }

 private:
  void pass(const auto& k, std::span<const Arg> args) {
    peak_ = std::max(peak_, resident_ + kernel::most_passing(k, args));
  }

  InnerCounts& inner_;
  std::vector<index_t> held_;  ///< by depth
  index_t resident_ = 0, peak_ = 0;
};

}  // namespace redblue::levels
