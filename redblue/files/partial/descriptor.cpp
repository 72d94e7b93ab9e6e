#include "redblue/files/partial/descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::partial {

Descriptor::Descriptor(std::string path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw_errno("open", path_, errno);
}
Descriptor::~Descriptor() { close(fd_); }

index_t Descriptor::size() const {
  struct stat status{};
  if (fstat(fd_, &status) != 0) throw_errno("inspect", path_, errno);
  return status.st_size;
}
void Descriptor::cut(index_t bytes) const {
  if (ftruncate(fd_, bytes) != 0) throw_errno("cut", path_, errno);
}
void Descriptor::make_durable() const { partial::make_durable(fd_, path_); }
bool Descriptor::lock() const {
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS) return true;
  throw_errno("lock", path_, errno);
}

index_t read_at(int fd, const std::string& path, index_t offset, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = pread(fd, to.data() + done, to.size() - done, offset + static_cast<index_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("read", path, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<index_t>(done);
}

void write_at(int fd, const std::string& path, index_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_errno("write", path, n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void make_durable(int fd, const std::string& path) {
  if (fdatasync(fd) != 0) throw_errno("write to disk", path, errno);
}

void write_durably(int fd, const std::string& path, std::span<const std::byte> bytes) {
  constexpr std::size_t kAtOnce = 4 << 20;
  for (std::size_t at = 0; at < bytes.size(); at += kAtOnce) {
    const std::span<const std::byte> piece = bytes.subspan(at, std::min(kAtOnce, bytes.size() - at));
    write_at(fd, path, static_cast<index_t>(at), piece);
    make_durable(fd, path);
    give_back_pages(fd, static_cast<index_t>(at), std::ssize(piece));
  }
}

void give_back_pages(int fd, index_t offset, index_t bytes) { posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED); }

void make_names_durable(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno("open", directory, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error != 0 && error != EINVAL) throw_errno("make durable the names in", directory, error);  // EINVAL: it cannot
}

}  // namespace redblue::file::partial
