#pragma once
#include <algorithm>

#include "redblue/machine/ram.hpp"

namespace redblue::machine {

/// Says how large the staging buffers of a Ram must be, without data. Of each loop it walks the first round and the
/// last two: only the last block is ragged, and what a mask shows grows or falls with the round, so the largest blocks
/// are among those of these rounds.
class Staging : public MachineFace<Staging> {
 public:
  /// `staged`: the arrays that are no view for the Ram.
  explicit Staging(const std::array<bool, kSlowArrays>& staged) : staged_(staged) {}

  static index_t open(Shape, Layout) { return 0; }
  static void close(index_t, Shape) {}
  static void read(const Arg&, const Block&) {}
  static void write(const Block&, const Arg&) {}
  template <class K>
  void run(const K&, std::span<const Arg> args) {
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].kind == Arg::Kind::stream && staged_[index_of(args[i].block.array)])
        words_[i] = std::max(words_[i], args[i].shape().words());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    run(k, args);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; i = i == 0 ? std::max(index_t{1}, n - 2) : i + 1) body(*this, i);
  }

  const StagingWords& words() const { return words_; }

 private:
  std::array<bool, kSlowArrays> staged_;
  StagingWords words_{};
};

}  // namespace redblue::machine
