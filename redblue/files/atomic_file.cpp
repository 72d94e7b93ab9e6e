#include "redblue/files/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

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
constexpr int kAttempts = 16;   // processes that write one target at the same time

std::string path_of_descriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

bool is_name_of(const std::string& name, int fd) {
  struct stat by_name{}, by_descriptor{};
  return lstat(name.c_str(), &by_name) == 0 && fstat(fd, &by_descriptor) == 0 &&
         by_name.st_dev == by_descriptor.st_dev && by_name.st_ino == by_descriptor.st_ino;
}

/// Who holds the lock may remove or rename the file. It ends with the process. Where the file system has no locks,
/// nobody gets one, and no leftover is removed.
bool lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0; }
}  // namespace

AtomicFile::AtomicFile(std::string path, Temporary temporary) : path_(std::move(path)) {
  const fs::path target(path_);
  struct stat status{};
  const bool exists = stat(path_.c_str(), &status) == 0;
  if (path_.empty()) throw IoError("cannot write '': name a file", path_);
  if (!target.has_filename() || (exists && S_ISDIR(status.st_mode)))
    throw IoError(fmt::format("cannot write '{}': it is a directory; name a file", path_), path_, -1, EISDIR);
  if (exists && !S_ISREG(status.st_mode))  // a rename would replace the device itself
    throw IoError(fmt::format("cannot write '{}': it is not a regular file", path_), path_);
  directory_ = target.has_parent_path() ? target.parent_path().string() : ".";
  // Now, and not when all is computed and the file gets its name.
  if (const long most = pathconf(directory_.c_str(), _PC_NAME_MAX);
      most > 0 && target.filename().string().size() > static_cast<std::size_t>(most))
    throw IoError(fmt::format("cannot write '{}': a file name has at most {} bytes here", path_, most), path_, -1,
                  ENAMETOOLONG);
  remove_leftovers();
  if (temporary == Temporary::unnamed_if_possible) create_unnamed();
  if (fd_ < 0) create_named();
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::create_unnamed() {
  fd_ = open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (fd_ >= 0 && access(path_of_descriptor(fd_).c_str(), F_OK) != 0) discard();  // no /proc: it could not get a name
}

void AtomicFile::create_named() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(attempt);
    fd_ = open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) break;
    // Before the lock, it may have looked like a leftover to another process, which then removes it.
    if ((lock(fd_) || errno != EWOULDBLOCK) && is_name_of(name, fd_)) {
      temporary_ = name;
      return;
    }
    discard();
    errno = EEXIST;
  }
  const int error = errno;
  throw_errno(fmt::format("create a file in '{}' for", directory_), path_, error);
}

std::string AtomicFile::temporary_name(int attempt) const {
  constexpr std::size_t kMost = 200;  // bytes of the target's name: a file system allows 255 for all
  return fmt::format("{}/.{}.redblue-{}.tmp", directory_, fs::path(path_).filename().string().substr(0, kMost),
                     attempt);
}

void AtomicFile::remove_leftovers() const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(attempt);
    const int fd = open(name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (lock(fd) && is_name_of(name, fd)) unlink(name.c_str());
    close(fd);
  }
}

void AtomicFile::give_temporary_name() {
  lock(fd_);  // before there is a name that may be found
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = temporary_name(attempt);
    if (link(name) == 0) {
      temporary_ = name;
      return;
    }
    if (errno != EEXIST) break;
  }
  fail("name", errno);
}

int AtomicFile::link(const std::string& name) const {
  return linkat(AT_FDCWD, path_of_descriptor(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
}

void AtomicFile::discard() noexcept {
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void AtomicFile::fail(std::string_view doing, int errno_value) {
  discard();
  throw_errno(doing, path_, errno_value);
}

void AtomicFile::require_open(std::string_view doing) const {
  if (fd_ < 0) throw IoError(fmt::format("cannot {} '{}': it failed before, or is committed", doing, path_), path_);
}

void AtomicFile::reserve(index_t bytes) {
  require_open("write");
  if (bytes <= 0) return;
  int error = 0;
  do error = fallocate(fd_, 0, 0, bytes) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) return;
  if (error != 0) fail(fmt::format("reserve {} bytes for", bytes), error);
  reserved_ = bytes;
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require_open("write");
  if (const int error = detail::write_all(fd_, bytes); error != 0) fail("write", error);
  written_ += static_cast<index_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::rewrite(index_t offset, std::span<const std::byte> bytes) {
  require_open("write");
  while (!bytes.empty()) {
    const ssize_t done = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<index_t>(done);
  }
}

void AtomicFile::commit_together(std::span<AtomicFile* const> files) {
  for (AtomicFile* f : files) f->make_durable();
  // No instant shows a new file beside an old one: the old ones go before the first new one comes.
  for (std::size_t i = files.size(); i-- > 1;) files[i]->remove_target();
  for (AtomicFile* f : files) f->publish();
  for (const AtomicFile* f : files) f->make_name_durable();
}

void AtomicFile::commit() {
  AtomicFile* const self = this;
  commit_together({&self, 1});
}

void AtomicFile::make_durable() {
  require_open("commit");
  if (reserved_ > written_ && ftruncate(fd_, written_) != 0) fail("cut to its size", errno);
  if (fsync(fd_) != 0) fail("write to disk", errno);
}

void AtomicFile::remove_target() {
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) fail("replace", errno);
}

void AtomicFile::publish() {
  const bool is_new = temporary_.empty() && link(path_) == 0;
  if (!is_new) {
    if (temporary_.empty()) give_temporary_name();
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the finished file to", errno);
    temporary_.clear();
  }
  discard();
}

void AtomicFile::make_name_durable() const {
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
