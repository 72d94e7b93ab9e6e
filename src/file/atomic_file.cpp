#include "redblue/file/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "redblue/core/error.hpp"
#include "text.hpp"

namespace redblue::file {

namespace fs = std::filesystem;

namespace detail {
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    constexpr std::size_t kMost = 1 << 30;  // Linux takes at most 2 GiB at a time
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMost));
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (n == 0) return EIO;
    if (n < 0 && errno != EINTR) return errno;
  }
  return 0;
}
}  // namespace detail

namespace {
constexpr mode_t kMode = 0666;  // what the user's umask leaves of it, as for any new file
constexpr int kAttempts = 1000;

std::string temporary_name(const std::string& directory, int attempt) {
  return fmt::format("{}/.redblue-{}-{}.tmp", directory, getpid(), attempt);
}
std::string path_of_descriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }
}  // namespace

AtomicFile::AtomicFile(std::string path, Temporary temporary) : path_(std::move(path)) {
  const fs::path target(path_);
  struct stat status{};
  const bool exists = stat(path_.c_str(), &status) == 0;
  if (!target.has_filename() || (exists && S_ISDIR(status.st_mode)))
    throw IoError(fmt::format("cannot write '{}': it is a directory; name a file", path_), path_, -1, EISDIR);
  if (exists && !S_ISREG(status.st_mode))  // a rename would replace the device itself
    throw IoError(fmt::format("cannot write '{}': it is not a regular file", path_), path_);
  directory_ = target.has_parent_path() ? target.parent_path().string() : ".";
  if (temporary == Temporary::unnamed_if_possible) create_unnamed();
  if (fd_ < 0) create_named();
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::create_unnamed() {
  fd_ = open(directory_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (fd_ >= 0 && access(path_of_descriptor(fd_).c_str(), F_OK) != 0) discard();  // no /proc: it could not get a name
}

void AtomicFile::create_named() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(directory_, attempt);
    fd_ = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    if (fd_ >= 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) break;
  }
  const int error = errno;
  throw_errno(fmt::format("create a file in '{}' for", directory_), path_, error);
}

void AtomicFile::give_temporary_name() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(directory_, attempt);
    if (linkat(AT_FDCWD, path_of_descriptor(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) break;
  }
  fail("name", errno);
}

void AtomicFile::discard() noexcept {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void AtomicFile::fail(const char* doing, int errno_value) {
  discard();
  throw_errno(doing, path_, errno_value);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (fd_ < 0) throw IoError(fmt::format("cannot write '{}': it failed before, or is committed", path_), path_);
  if (const int error = detail::write_all(fd_, bytes); error != 0) fail("write", error);
  written_ += static_cast<index_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  if (fd_ < 0) throw IoError(fmt::format("cannot commit '{}': it failed before, or is committed", path_), path_);
  if (fsync(fd_) != 0) fail("write to disk", errno);
  if (temporary_.empty()) give_temporary_name();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the finished file to", errno);
  temporary_.clear();
  discard();

  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;  // a directory that may be written but not read: the name exists, but may not be durable
  const int error = fsync(directory) == 0 ? 0 : errno;
  close(directory);
  // EINVAL: this file system cannot do it
  if (error != 0 && error != EINVAL) throw_errno("make durable the name of", path_, error);
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::exists(a, error) || fs::exists(b, error)) return fs::equivalent(a, b, error);
  const fs::path real_a = fs::weakly_canonical(fs::absolute(a, error), error);
  const fs::path real_b = fs::weakly_canonical(fs::absolute(b, error), error);
  return !real_a.empty() && real_a == real_b;
}

}  // namespace redblue::file
