#pragma once
#include <algorithm>

#include "redblue/core/machine.hpp"
#include "redblue/machine/arena.hpp"

namespace redblue::machine {

/// Says how much memory the arena of a Ram takes, without data: it plays the operations on an arena that has none. Of
/// each loop it walks the first round and the last two: only the last block is ragged, and what a mask shows grows or
/// falls with the round, so these rounds take the most.
template <class T>
class Sizing : public MachineFace<Sizing<T>> {
 public:
  /// `staged`: the arrays that are no view for the Ram.
  Sizing(index_t M, const std::array<bool, kSlowArrays>& staged)
      : arena_(Arena<T>::without_memory(M)), staged_(staged) {}

  index_t open(Shape s, Layout) { return arena_.open(s); }
  void close(index_t depth, Shape s) { arena_.close(depth, s); }
  static void read(const Arg&, const Block&) {}
  static void write(const Block&, const Arg&) {}
  template <class K>
  void run(const K&, std::span<const Arg> args) {
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].kind == Arg::Kind::stream && staged_[index_of(args[i].block.array)]) arena_.stage(i, args[i].shape());
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    run(k, args);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; i = i == 0 ? std::max(index_t{1}, n - 2) : i + 1) body(*this, i);
  }

  const ArenaWords& words() const { return arena_.words(); }

 private:
  Arena<T> arena_;
  std::array<bool, kSlowArrays> staged_;
};

}  // namespace redblue::machine
