#pragma once
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/language/cost.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// The machine that does nothing and holds nothing: fast memory without limit, slow memory without data.
class Null : public MachineFace<Null> {
 public:
  static index_t open(SlowArray, Shape, Layout) { return 0; }
  static void close(index_t, SlowArray, Shape) {}
  static void read(const Arg&, const Block&) {}
  static void write(const Block&, const Arg&) {}
  template <class K>
  static void run(const K&, std::span<const Arg>) {}
  template <class K>
  static void modify(const K&, std::span<const Arg>) {}
  static index_t read_index(Question, const Arg&, index_t worst) { return worst; }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }
};

/// The one that counting needs: it has no state.
inline Null& nothing() {
  static Null null;
  return null;
}

/// What one worker moved and did.
struct alignas(64) Counts {
  std::array<index_t, kSlowArrays> reads{};
  std::array<index_t, kSlowArrays> writes{};
  index_t peak = 0;  ///< largest number of resident words
  index_t macs = 0;  ///< multiply-adds
  Decisions decisions;

  index_t words() const {
    return std::accumulate(reads.begin(), reads.end(), std::accumulate(writes.begin(), writes.end(), index_t{0}));
  }
  Io io() const {
    Io io;
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      io.reads[a] = reads[a];
      io.writes[a] = writes[a];
    }
    return io;
  }
  Counts& operator+=(const Counts& other) {
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      reads[a] += other.reads[a];
      writes[a] += other.writes[a];
    }
    peak = std::max(peak, other.peak);
    macs += other.macs;
    decisions += other.decisions;
    return *this;
  }
};

/// Counts what passes through another machine: words per array and direction, resident words, multiply-adds.
/// Counted<Null> is the counting machine; Counted<Ram> counts what really runs. Each worker counts for itself: an item
/// that the base machine hands to a worker is counted apart and added to that worker's counts when it ends.
template <class Base>
class Counted : public Passing<Counted<Base>, Base> {
  using Passes = Passing<Counted, Base>;

 public:
  explicit Counted(Base& base)
      : Passes(base), ended_(base.workers() == 1 ? 0 : static_cast<std::size_t>(base.workers())) {}
  Counted()
    requires std::same_as<Base, Null>
      : Counted(nothing()) {}

  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() = default;

  int workers() const { return this->base().workers(); }
  int worker() const { return this->base().worker(); }

  index_t open(SlowArray array, Shape s, Layout layout) {
    const index_t depth = Passes::open(array, s, layout);
    resident_ += s.words();
    touch(0);
    return depth;
  }
  void close(index_t depth, SlowArray array, Shape s) {
    resident_ -= s.words();
    Passes::close(depth, array, s);
  }
  void read(const Arg& tile, const Block& b) {
    counts_.reads[index_of(b.array)] += b.shape.words();
    Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    counts_.writes[index_of(b.array)] += b.shape.words();
    Passes::write(b, tile);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    touch(count(k, args));
    Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    const Block& b = args[0].block;
    if (kernel::first_of(k)) counts_.reads[index_of(b.array)] -= b.shape.words();  // count() takes b for a stream
    counts_.writes[index_of(b.array)] += b.shape.words();
    touch(std::max(index_t{1}, count(k, args)));
    Passes::modify(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    const index_t answer = Passes::read_index(question, word, worst);
    if (question == Question::decision) counts_.decisions.add(answer == worst);
    return answer;
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    this->base().each(n, [&](Base& base, index_t i) {
      // Known at compile time where it can be: an optimiser that sees all counters keeps them in registers.
      if (OneWorker<Base> || &base == &this->base()) return body(*this, i);
      Counted& whole = whole_ == nullptr ? *this : *whole_;
      Counted item(base, whole);
      body(item, i);
      if (whole.ended_.empty()) whole.ended_.resize(1);  // one worker, as a machine of its own for each item
      whole.ended_[static_cast<std::size_t>(base.worker())] += item.counts_;
    });
  }

  /// What a worker moved in the items that have ended, and in this one. While others are at work, ask for one's own.
  Counts of_worker(int worker) const {
    const std::vector<Counts>& ended = (whole_ == nullptr ? *this : *whole_).ended_;
    if (ended.empty()) return counts_;
    Counts c = ended[static_cast<std::size_t>(worker)];
    return worker == this->worker() ? c += counts_ : c;
  }

  /// What all workers moved and did together.
  Counts total() const {
    Counts sum = counts_;
    for (const Counts& c : ended_) sum += c;
    return sum;
  }
  Io io() const { return total().io(); }
  index_t peak() const { return total().peak; }   ///< most words resident in one worker's memory: the footprint
  index_t resident() const { return resident_; }  ///< words resident now
  index_t macs() const { return total().macs; }   ///< multiply-adds
  Decisions decisions() const { return total().decisions; }

 private:
  Counted(Base& base, Counted& whole) : Passes(base), whole_(&whole) {}

  /// Returns the most words of streams that are open at a time.
  template <class K>
  index_t count(const K& k, std::span<const Arg> args) {
    kernel::Tally tally{counts_.reads, counts_.macs};
    kernel::add_to(tally, k, args);
    return tally.passing;
  }
  void touch(index_t passing) { counts_.peak = std::max(counts_.peak, resident_ + passing); }

  Counts counts_;
  index_t resident_ = 0;
  std::vector<Counts> ended_;  ///< of each of several workers: the items that have ended. Empty in an item
  Counted* whole_ = nullptr;   ///< in an item: the one that a user made
};

/// Counts a schedule without running it.
using Counting = Counted<Null>;

}  // namespace redblue::machine
