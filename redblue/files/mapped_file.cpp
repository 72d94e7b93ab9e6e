#include "redblue/files/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};
}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it means nothing for a regular file.
  const Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw_errno("open", path_, errno);
  struct stat status{};
  if (fstat(file.fd, &status) != 0) throw_errno("inspect", path_, errno);
  if (S_ISDIR(status.st_mode))
    throw IoError(fmt::format("cannot read '{}': it is a directory", path_), path_, -1, EISDIR);
  if (!S_ISREG(status.st_mode))
    throw IoError(fmt::format("cannot map '{}': it is not a regular file; copy its contents to one", path_), path_);
  if (status.st_size == 0) return;  // mmap refuses a length of zero
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) throw_errno("map", path_, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace redblue::file
