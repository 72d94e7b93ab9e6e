#pragma once
#include <cstdint>

/// The system calls that move or name bytes, replaced for this program: a process can be killed before any of them,
/// and any of them can fail.
namespace redblue::test::calls {

enum class Trouble : std::uint8_t {
  none,
  killed,        ///< kill -9
  fails,         ///< EIO
  disk_full,     ///< ENOSPC, of calls that write
  comes_short,   ///< reads and writes move one byte less, or nothing
  is_truncated,  ///< reads find the end of the file
};

/// What the process meets from now on: trouble at its call number `at`, from 0 on. Later calls are as usual.
void meet(Trouble trouble, std::int64_t at);
/// Calls since meet().
std::int64_t count();
/// Did the trouble come?
bool has_met();

}  // namespace redblue::test::calls
