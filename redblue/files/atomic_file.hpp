#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "redblue/language/types.hpp"

namespace redblue::file {

/// A file that appears complete or not at all. The bytes go to a temporary in the directory of the target, which takes
/// the target's name in commit(); without commit() the destructor removes it. Where the file system can (O_TMPFILE)
/// the temporary has no name, so that a killed process leaves nothing behind; it has one for an instant where it
/// replaces a file, and all the time on other file systems. The name is `.TARGET.redblue-N.tmp`, and is locked (flock)
/// while its process lives: the next AtomicFile for this target removes what a killed process left.
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

  /// Takes room on the disk for a file of this size, so that a disk that is too full shows before the work that makes
  /// the bytes. File systems that cannot do this are left to report it when the bytes are written. Throws IoError.
  void reserve(index_t bytes);

  /// Appends. Throws IoError (disk full, quota, file size limit, ...), after which the file cannot be committed.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Writes over bytes that were written before: from `offset` on, and not beyond them. Throws IoError.
  void rewrite(index_t offset, std::span<const std::byte> bytes);

  /// Makes the bytes durable (fsync), gives them the name, makes the name durable (fsync of the directory).
  /// Throws IoError; the target is then as it was before, unless only the fsync of the
  /// directory failed.
  void commit();

  /// Commits all of them. All bytes are durable before the first name changes. Then the old files but for the first are
  /// removed, the first is replaced, and the others get their names, within microseconds: a process killed in between
  /// leaves some of the names without a file, but never a new file beside an old one. Throws IoError.
  static void commit_together(std::span<AtomicFile* const> files);

 private:
  void create_unnamed();
  void create_named();
  std::string temporary_name(int attempt) const;
  void remove_leftovers() const;
  void give_temporary_name();
  int link(const std::string& name) const;
  void require_open(std::string_view doing) const;
  // The steps of commit_together().
  void make_durable();
  void remove_target();
  void publish();
  void make_name_durable() const;
  void discard() noexcept;
  [[noreturn]] void fail(std::string_view doing, int errno_value);

  std::string path_;
  std::string directory_;
  std::string temporary_;  ///< its name; empty while it has none
  int fd_ = -1;            ///< -1 once committed or failed
  index_t written_ = 0;
  index_t reserved_ = 0;
};

/// Do both names lead to one file (same device and inode)? If neither file exists: would they be one file?
bool same_file(const std::string& a, const std::string& b);

namespace detail {
/// Writes all of `bytes` to the descriptor, however many system calls it takes. Returns 0 or the errno.
int write_all(int fd, std::span<const std::byte> bytes);
}  // namespace detail

}  // namespace redblue::file
