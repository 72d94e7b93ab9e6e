#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue::file::partial {

/// What must be the same for a run to be resumed: a name and a value, as {"M", "4096"}.
using Fact = std::pair<std::string, std::string>;

/// How far a run has come: parts of it (a forward pass, a gradient) that are done, and operations of the next one.
struct Position {
  index_t part = 0, operations = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

/// What a partial run remembers: progress.json of its directory.
struct State {
  /// A file of the directory, and the blocks of it that had been written, with their checksums.
  struct File {
    std::string name;
    index_t bytes = 0;
    std::vector<std::pair<index_t, std::uint64_t>> blocks{};
  };

  std::vector<Fact> facts{};          ///< that are known before the run is planned
  std::vector<Fact> facts_of_plan{};  ///< that are known afterwards
  index_t block_bytes = 0;
  index_t checkpoint = 0;  ///< its number: each is one more than that before it
  Position position{};
  index_t fast_bytes = 0;  ///< of fast memory, in the file fast_name(checkpoint)
  std::uint64_t fast_checksum = 0;
  bool complete = false;  ///< the files are finished, and only have to get their names
  std::vector<File> files{};

  const File* file(const std::string& name) const;
  /// The file that holds fast memory at a checkpoint: never that of the one before.
  static std::string fast_name(index_t checkpoint) { return checkpoint % 2 == 0 ? "fast-memory-0" : "fast-memory-1"; }
};

/// The names of the files in which the state is, and is made.
inline constexpr std::string_view kProgress = "progress.json", kNextProgress = "progress.json.tmp";

/// Makes the state durable: all of it, or what was there before. Throws IoError.
void write_state(const State& state, const std::string& directory);
/// The state that a directory holds; empty where there is none. Throws IoError where it cannot be read or means
/// nothing.
std::optional<State> read_state(const std::string& directory);

}  // namespace redblue::file::partial
