#pragma once
#include "redblue/kernels/costs.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/machines/files/file_memory.hpp"

namespace redblue::machine {

/// Thrown where a schedule asks for a number.
struct UnknownNumber {};

/// Walks through a schedule and lists what Ram will read and write on such arrays, in the same order: all of it passes
/// through `fetch`, `put` and `add` of FileMemory. To is a FileQueue or a Cover. A walk knows no numbers, so it ends
/// where the schedule asks for one.
template <class To>
class Listing : public MachineFace<Listing<To>> {
 public:
  /// They outlive it.
  Listing(To& to, const FileArrays& arrays) : to_(to), arrays_(arrays) {}

  index_t open(SlowArray, Shape, Layout) { return depth_++; }
  void close(index_t depth, SlowArray, Shape) { depth_ = depth; }
  void read(const Arg&, const Block& b) { to_.list_read(storage(b), b); }
  void write(const Block& b, const Arg&) { to_.list_write(storage(b), b); }
  template <class K>
  void run(const K&, std::span<const Arg> args) {
    read_streams(args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    read_streams(args.subspan(1));
    const Block& b = args[0].block;
    if (kernel::adds(k) && !kernel::first_of(k)) return to_.list_add(storage(b), b);
    if (!kernel::first_of(k)) to_.list_read(storage(b), b);
    to_.list_write(storage(b), b);
  }
  static index_t read_index(Question, const Arg&, index_t) { throw UnknownNumber{}; }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

 private:
  const Storage& storage(const Block& b) const { return arrays_[index_of(b.array)]; }
  void read_streams(std::span<const Arg> args) {
    for (const Arg& a : args)
      if (a.kind == Arg::Kind::stream) to_.list_read(storage(a.block), a.block);
  }

  To& to_;
  const FileArrays& arrays_;
  index_t depth_ = 0;
};

}  // namespace redblue::machine
