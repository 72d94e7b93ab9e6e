#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "redblue/core/types.hpp"

namespace redblue::file {

/// A file that appears complete or not at all. The bytes go to a temporary in the directory of the target, which takes
/// the target's name in commit(); without commit() the destructor removes it. Where the file system can (O_TMPFILE)
/// the temporary has no name until then, so that even a killed process leaves nothing behind.
///
/// Open it before a long computation, to learn at once that a directory cannot be written. Nothing of an existing
/// target is preserved (contents, mode, owner, hard links); a symbolic link is replaced, not followed.
class AtomicFile {
 public:
  enum class Temporary { unnamed_if_possible, named };

  /// Throws IoError when no file can be created beside `path`, or when `path` exists and is not a regular file.
  explicit AtomicFile(std::string path, Temporary temporary = Temporary::unnamed_if_possible);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  index_t bytes_written() const { return written_; }

  /// Appends. Throws IoError (disk full, quota, file size limit, ...), after which the file cannot be committed.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Makes the bytes durable (fsync), gives them the name (rename), makes the name durable (fsync of the directory).
  /// Throws IoError; the target is then as it was before, unless only the last step failed.
  void commit();

 private:
  void create_unnamed();
  void create_named();
  void give_temporary_name();
  void discard() noexcept;
  [[noreturn]] void fail(const char* doing, int errno_value);

  std::string path_;
  std::string directory_;
  std::string temporary_;  ///< its name; empty while it has none
  int fd_ = -1;            ///< -1 once committed or failed
  index_t written_ = 0;
};

/// Do both names lead to one file (same device and inode)? If neither file exists: would they be one file?
bool same_file(const std::string& a, const std::string& b);

namespace detail {
/// Writes all of `bytes` to the descriptor, however many system calls it takes. Returns 0 or the errno.
int write_all(int fd, std::span<const std::byte> bytes);
}  // namespace detail

}  // namespace redblue::file
