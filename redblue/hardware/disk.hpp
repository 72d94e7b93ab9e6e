#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "redblue/hardware/hardware.hpp"

/// How fast requests move bytes of files, by their size and how many are under way: `redblue doctor --disk`.
namespace redblue {

/// Which requests are tried.
struct SweepOptions {
  std::int64_t file_bytes = 256 << 20;  ///< of the temporary file, at most: less where a slow disk takes fewer in time
  std::vector<std::int64_t> requests{64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20};  ///< in bytes
  std::vector<int> depths{1, 2, 4, 8, 16, 32, 64, 128};
  std::int64_t most_under_way = 32 << 20;  ///< bytes: request times depth is no more
  double seconds = 4;                      ///< for all reads; the write before them takes a quarter as many at most
};

/// How fast reads of one size and depth were.
struct SweepCell {
  std::int64_t request = 0;  ///< bytes of each
  int depth = 0;             ///< requests under way at a time
  double in_order = 0;       ///< bytes per second, each request behind the one before
  double by_blocks = 0;      ///< bytes per second, requests at places without order

  double bandwidth() const { return in_order < by_blocks ? in_order : by_blocks; }
  std::int64_t under_way() const { return request * depth; }
};

struct DiskSweep {
  Disk disk;
  std::vector<SweepCell> cells;  ///< fewest bytes under way first; those for which time was left
  bool complete = false;         ///< was there time for all of them?
  std::optional<double> others;  ///< the share of all CPUs that other processes took meanwhile
};

/// Writes a temporary file in the directory, reads it by requests of all these kinds, and removes it, also where
/// something fails. Throws IoError where there is no such directory, no room, or a request fails; InvalidProblem for
/// sizes that are no multiples of a page.
DiskSweep measure_disk(const std::string& directory, const SweepOptions& options = {});

/// The cell with the fewest bytes under way of those within 5 % of the fastest; of two, the one with larger requests.
/// `cells` are not empty.
const SweepCell& knee_of(const std::vector<SweepCell>& cells);

}  // namespace redblue
