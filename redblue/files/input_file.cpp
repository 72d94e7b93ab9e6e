#include "redblue/files/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

// O_NONBLOCK: opening a pipe must not wait for its writer; it means nothing for a regular file.
InputFile::InputFile(std::string path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw_errno("open", path_, errno);
  struct stat status{};
  const int error = fstat(fd_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) {
    size_ = status.st_size;
    return;
  }
  close(fd_);  // no destructor runs where a constructor throws
  if (error != 0) throw_errno("inspect", path_, error);
  if (S_ISDIR(status.st_mode))
    throw IoError(fmt::format("cannot read '{}': it is a directory", path_), path_, -1, EISDIR);
  throw IoError(fmt::format("cannot read '{}': it is not a regular file; copy its contents to one", path_), path_);
}

InputFile::~InputFile() { close(fd_); }

std::vector<std::byte> InputFile::start(index_t bytes) const {
  std::vector<std::byte> start(static_cast<std::size_t>(std::min(bytes, size_)));
  std::size_t have = 0;
  while (have < start.size()) {
    const ssize_t got = pread(fd_, start.data() + have, start.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno != EINTR) throw_errno("read", path_, errno);
    if (got == 0)
      throw IoError(fmt::format("'{}' had {} bytes when it was opened and ends after {} now: something shortens it",
                                path_, size_, have),
                    path_, static_cast<index_t>(have));
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  return start;
}

}  // namespace redblue::file
