#pragma once
#include <array>

#include "redblue/core/cost.hpp"
#include "redblue/core/machine.hpp"

namespace redblue::machine {

/// The machine that does nothing and holds nothing: fast memory without limit, slow memory without data.
class Null : public MachineFace<Null> {
 public:
  static index_t open(Shape, Layout) { return 0; }
  static void close(index_t, Shape) {}
  static void read(const Arg&, const Block&) {}
  static void write(const Block&, const Arg&) {}
  template <class K>
  static void run(const K&, std::span<const Arg>) {}
  template <class K>
  static void modify(const K&, std::span<const Arg>) {}
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }
};

/// Counts what passes through another machine: words per array and direction, resident words, multiply-adds.
/// Counted<Null> is the counting machine; Counted<Ram> counts what really runs.
template <class Base>
class Counted : public MachineFace<Counted<Base>> {
 public:
  explicit Counted(Base& base) : base_(base) {}
  Counted()
    requires std::same_as<Base, Null>
      : base_(nothing()) {}

  index_t open(Shape s, Layout layout) {
    const index_t depth = base_.open(s, layout);
    resident_ += s.words();
    touch(0);
    return depth;
  }
  void close(index_t depth, Shape s) {
    resident_ -= s.words();
    base_.close(depth, s);
  }
  void read(const Arg& tile, const Block& b) {
    reads_[index_of(b.array)] += b.shape.words();
    base_.read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    writes_[index_of(b.array)] += b.shape.words();
    base_.write(b, tile);
  }
  /// Streams open when the part that consumes them runs: two streams that different parts of a composite consume cost
  /// one word at a time, two that one part consumes side by side cost two.
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto& part, std::span<const Arg> a) { count(part, a); });
    base_.run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    const Block& b = args[0].block;
    if (!kernel::first_of(k)) reads_[index_of(b.array)] += b.shape.words();
    writes_[index_of(b.array)] += b.shape.words();
    macs_ += kernel::macs(k, args);
    index_t passing = 1;
    for (const Arg& a : args.subspan(1)) passing += count_stream(a);
    touch(passing);
    base_.modify(k, args);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    base_.each(n, [&](Base&, index_t i) { body(*this, i); });
  }

  Io io() const {
    Io io;
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      io.reads[a] = reads_[a];
      io.writes[a] = writes_[a];
    }
    return io;
  }
  index_t peak() const { return peak_; }          ///< largest number of resident words: the footprint
  index_t resident() const { return resident_; }  ///< words resident now
  index_t macs() const { return macs_; }          ///< multiply-adds

 private:
  template <class K>
  void count(const K& k, std::span<const Arg> args) {
    macs_ += kernel::macs(k, args);
    index_t passing = 0;
    kernel::for_args(k, args, [&](const Arg& a) { passing += count_stream(a); });
    touch(passing);
  }
  /// Returns the words it holds while it passes: one, or none if it is empty.
  index_t count_stream(const Arg& a) {
    if (a.kind != Arg::Kind::stream) return 0;
    reads_[index_of(a.block.array)] += a.shape().words();
    return a.shape().words() > 0 ? 1 : 0;
  }
  void touch(index_t passing) { peak_ = std::max(peak_, resident_ + passing); }

  static Null& nothing() {
    static Null null;  // has no state
    return null;
  }

  Base& base_;
  std::array<index_t, kSlowArrays> reads_{};
  std::array<index_t, kSlowArrays> writes_{};
  index_t resident_ = 0;
  index_t peak_ = 0;
  index_t macs_ = 0;
};

/// Counts a schedule without running it.
using Counting = Counted<Null>;

}  // namespace redblue::machine
