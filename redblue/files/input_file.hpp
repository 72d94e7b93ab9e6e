#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue::file {

/// A regular file that is open to be read.
class InputFile {
 public:
  /// Throws IoError when the file is missing, unreadable, a directory, or anything but a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  index_t size() const { return size_; }  ///< in bytes, when it was opened

  /// The bytes from the first one on, as many as asked for or as the file has. Throws IoError.
  std::vector<std::byte> start(index_t bytes) const;

 private:
  std::string path_;
  int fd_;
  index_t size_ = 0;
};

}  // namespace redblue::file
