#pragma once
#include <array>
#include <set>
#include <span>
#include <tuple>

#include "redblue/kernels/kernel.hpp"
#include "redblue/machines/passing.hpp"

namespace redblue::claims {

/// Counts, array by array, the reads, the writes and the last writes of words that pass through another machine, one
/// round of an `each` after another. It remembers each word that was written.
template <class Base>
class Revisited : public machine::Passing<Revisited<Base>, Base> {
  using Passes = machine::Passing<Revisited, Base>;

 public:
  struct Visits {
    index_t reads = 0, writes = 0;
    index_t last_writes = 0;  ///< the words that were written; each has one
    /// Writes after which the word is written again.
    index_t unfinished() const { return writes - last_writes; }
  };

  explicit Revisited(Base& base) : Passes(base) {}

  void read(const Arg& tile, const Block& b) {
    visits_[index_of(b.array)].reads += b.shape.words();
    Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    note_write(b);
    Passes::write(b, tile);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args, [&](const auto&, std::span<const Arg> part) { note_streams(part); });
    Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    note_streams(args.subspan(kernel::first_of(k) ? 1 : 0));
    note_write(args[0].block);
    Passes::modify(k, args);
  }

  const Visits& of(SlowArray a) const { return visits_[index_of(a)]; }

 private:
  void note_streams(std::span<const Arg> args) {
    for (const Arg& a : args)
      if (a.kind == Arg::Kind::stream) visits_[index_of(a.block.array)].reads += a.shape().words();
  }
  void note_write(const Block& b) {
    Visits& visits = visits_[index_of(b.array)];
    visits.writes += b.shape.words();
    for (index_t i = b.row; i < b.row + b.shape.rows; ++i)
      for (index_t j = b.col; j < b.col + b.shape.cols; ++j)
        visits.last_writes += written_.emplace(b.array, b.instance, i, j).second ? 1 : 0;
  }

  std::array<Visits, kSlowArrays> visits_{};
  std::set<std::tuple<SlowArray, index_t, index_t, index_t>> written_;
};

}  // namespace redblue::claims
