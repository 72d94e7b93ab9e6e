#include "redblue/files/io/open_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::io {

namespace {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

/// Does the file system read and write whole pages directly? Some open a file for direct requests and refuse them
/// later.
bool takes_whole_pages(int descriptor, index_t size) {
  if (size == 0) return true;
  const std::unique_ptr<void, FreeDeleter> page(std::aligned_alloc(kPage, kPage));
  return page != nullptr && pread(descriptor, page.get(), kPage, 0) >= 0;
}

/// Takes room for all bytes of a file.
void take_room(int descriptor, const std::string& path, index_t bytes) {
  int error = 0;
  do error = bytes > 0 && fallocate(descriptor, 0, 0, bytes) != 0 ? errno : 0;
  while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) error = ftruncate(descriptor, bytes) == 0 ? 0 : errno;
  if (error != 0) throw_errno(fmt::format("take {} bytes for", bytes), path, error);
}

}  // namespace

OpenFile::OpenFile(std::string path, PageCache cache) : path_(std::move(path)) {
  cached_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe does not wait for its writer
  if (cached_ < 0) throw_errno("open", path_, errno);
  struct stat status{};
  const int error = fstat(cached_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    close(std::exchange(cached_, -1));
    if (error != 0) throw_errno("inspect", path_, error);
    throw IoError(fmt::format("cannot read '{}': it is not a regular file", path_), path_);
  }
  size_ = status.st_size;
  open_direct(cache);
}

OpenFile OpenFile::temporary(const std::string& directory, index_t bytes, PageCache cache) {
  OpenFile file;
  file.path_ = directory + "/(a temporary file of this run)";
  file.size_ = bytes;
  file.writable_ = true;
  file.cached_ = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (file.cached_ < 0) {  // a file system without such files
    std::string name = directory + "/.redblue-XXXXXX";
    file.cached_ = mkostemp(name.data(), O_CLOEXEC);
    if (file.cached_ < 0) throw_errno("make a temporary file in", directory, errno);
    unlink(name.c_str());
  }
  take_room(file.cached_, file.path_, bytes);
  file.open_direct(cache);
  return file;
}

OpenFile OpenFile::in_place(std::string path, index_t bytes, PageCache cache) {
  OpenFile file;
  file.path_ = std::move(path);
  file.size_ = bytes;
  file.writable_ = true;
  file.cached_ = open(file.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file.cached_ < 0) throw_errno("open", file.path_, errno);
  take_room(file.cached_, file.path_, bytes);
  file.open_direct(cache);
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      writable_(other.writable_),
      cached_(std::exchange(other.cached_, -1)),
      direct_(std::exchange(other.direct_, -1)) {}

OpenFile::~OpenFile() {
  if (cached_ >= 0) close(cached_);
  if (direct_ >= 0) close(direct_);
}

void OpenFile::open_direct(PageCache cache) {
  // Requests say what is read. What the kernel would read ahead of them would stay in the page cache: it comes in
  // pieces that reach beyond a request, and only whole ones are given back.
  posix_fadvise(cached_, 0, 0, POSIX_FADV_RANDOM);
  if (cache == PageCache::used) return;
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (syscall(SYS_statx, cached_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 &&
      (status.stx_dio_offset_align == 0 || kPage % status.stx_dio_offset_align != 0 ||
       kPage % std::max(status.stx_dio_mem_align, 1U) != 0))
    return;
#endif
  const std::string self = fmt::format("/proc/self/fd/{}", cached_);
  direct_ = open(self.c_str(), (writable_ ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC);
  if (direct_ >= 0 && !takes_whole_pages(direct_, size_)) close(std::exchange(direct_, -1));
}

}  // namespace redblue::file::io
