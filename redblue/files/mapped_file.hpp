#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace redblue::file {

/// A whole file, mapped read-only: pages come in as they are touched. The mapping outlives renames and unlinks of the
/// file, so an output may replace its own input. But truncating a file while it is mapped kills the reader (SIGBUS).
class MappedFile {
 public:
  /// Throws IoError when the file is missing, unreadable, a directory, or anything but a regular file.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  /// The bytes of the file; empty for a file of length zero.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace redblue::file
