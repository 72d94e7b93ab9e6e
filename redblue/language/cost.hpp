#pragma once
#include <algorithm>
#include <array>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/language/words.hpp"

namespace redblue {

/// Words moved, per array and direction. I/O = reads + writes. A schedule moves few arrays: sums and products pass over
/// the zeros of the others.
struct Io {
  std::array<Words, kSlowArrays> reads{};
  std::array<Words, kSlowArrays> writes{};

  constexpr Io& read(SlowArray a, Words w) {
    reads[index_of(a)] += w;
    return *this;
  }
  constexpr Io& write(SlowArray a, Words w) {
    writes[index_of(a)] += w;
    return *this;
  }
  constexpr Words total_reads() const { return sum(reads); }
  constexpr Words total_writes() const { return sum(writes); }
  constexpr Words total() const { return total_reads() + total_writes(); }

  friend constexpr bool operator==(const Io&, const Io&) = default;
  friend constexpr Io operator+(Io a, const Io& b) {
    for (std::size_t i = 0; i < kSlowArrays; ++i) {
      if (b.reads[i] != 0) a.reads[i] += b.reads[i];
      if (b.writes[i] != 0) a.writes[i] += b.writes[i];
    }
    return a;
  }
  /// This I/O, `times` times (for heads and batch).
  friend constexpr Io operator*(Words times, Io io) {
    for (std::size_t i = 0; i < kSlowArrays; ++i) {
      if (io.reads[i] != 0) io.reads[i] = times * io.reads[i];
      if (io.writes[i] != 0) io.writes[i] = times * io.writes[i];
    }
    return io;
  }

 private:
  static constexpr Words sum(const std::array<Words, kSlowArrays>& words) {
    Words total;
    for (const Words w : words)
      if (w != 0) total += w;
    return total;
  }
};

/// Words of the index of a pattern (docs/model.md): read, and the most that are resident at a time. They are not among
/// those of Io and of footprints.
struct IndexWords {
  Words reads, resident;

  friend constexpr bool operator==(const IndexWords&, const IndexWords&) = default;
  /// One after the other.
  constexpr IndexWords then(const IndexWords& next) const {
    return {reads + next.reads, std::max(resident, next.resident)};
  }
};

}  // namespace redblue
