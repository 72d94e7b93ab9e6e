#include "calls.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace redblue::test::calls {

namespace {

enum class Kind : std::uint8_t { read, write, other };

Trouble coming = Trouble::none;
std::int64_t coming_at = 0;
std::atomic<std::int64_t> calls{0};
std::atomic<bool> met{false};

/// The trouble of the call that is about to be made.
Trouble next(Kind kind) {
  if (calls++ != coming_at || coming == Trouble::none) return Trouble::none;
  if (coming == Trouble::killed) raise(SIGKILL);
  const bool here = coming == Trouble::fails || (coming == Trouble::disk_full && kind == Kind::write) ||
                    (coming == Trouble::comes_short && kind != Kind::other) ||
                    (coming == Trouble::is_truncated && kind == Kind::read);
  if (!here) {  // another call will do
    coming_at = calls;
    return Trouble::none;
  }
  met = true;
  return coming;
}

/// Makes a call of kind `other`, or `write` where it may take room, unless it fails.
template <class Call>
int make(Kind kind, const Call& call) {
  const Trouble trouble = next(kind);
  if (trouble != Trouble::fails && trouble != Trouble::disk_full) return static_cast<int>(call());
  errno = trouble == Trouble::fails ? EIO : ENOSPC;
  return -1;
}

/// The same of a call that moves bytes.
template <class Call>
ssize_t move(Kind kind, std::size_t bytes, const Call& call) {
  const Trouble trouble = next(kind);
  if (trouble == Trouble::is_truncated) return 0;
  if (trouble == Trouble::comes_short) {
    constexpr std::size_t kPage = 4096;  // direct calls move whole ones
    const std::size_t less = bytes % kPage == 0 ? kPage : 1;
    return call(bytes > less ? bytes - less : bytes);
  }
  if (trouble == Trouble::none) return call(bytes);
  errno = trouble == Trouble::fails ? EIO : ENOSPC;
  return -1;
}

}  // namespace

void meet(Trouble trouble, std::int64_t at) {
  coming = trouble;
  coming_at = at;
  calls = 0;
  met = false;
}
std::int64_t count() { return calls; }
bool has_met() { return met; }

}  // namespace redblue::test::calls

using redblue::test::calls::Kind;
using redblue::test::calls::make;
using redblue::test::calls::move;

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
extern "C" {
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return move(Kind::read, bytes, [&](size_t n) { return syscall(SYS_pread64, fd, to, n, offset); });
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  return move(Kind::write, bytes, [&](size_t n) { return syscall(SYS_pwrite64, fd, from, n, offset); });
}
int rename(const char* from, const char* to) noexcept {
  return make(Kind::other, [&] { return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); });
}
int unlink(const char* name) noexcept {
  return make(Kind::other, [&] { return syscall(SYS_unlinkat, AT_FDCWD, name, 0); });
}
int ftruncate(int fd, off_t bytes) noexcept {
  return make(Kind::other, [&] { return syscall(SYS_ftruncate, fd, bytes); });
}
// What the kernel has outlives the process.
int fsync(int) {
  return make(Kind::write, [] { return 0; });
}
int fdatasync(int) {
  return make(Kind::write, [] { return 0; });
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return make(Kind::write, [&] { return syscall(SYS_fallocate, fd, mode, offset, bytes); });
}
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name,bugprone-reserved-identifier)
