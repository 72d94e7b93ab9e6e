#include "redblue/files/partial/stamp.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "redblue/files/partial/blocks.hpp"
#include "redblue/files/partial/descriptor.hpp"
#include "redblue/files/text.hpp"

namespace redblue::file::partial {

std::string stamp_of(const std::string& path) {
  constexpr std::size_t kFirstBytes = 1 << 16;
  struct Closed {
    int fd;
    ~Closed() { close(fd); }
  };
  const Closed file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw_errno("open", path, errno);
  struct stat status{};
  if (fstat(file.fd, &status) != 0) throw_errno("inspect", path, errno);
  std::vector<std::byte> first(kFirstBytes);
  first.resize(static_cast<std::size_t>(read_at(file.fd, path, 0, first)));
  return fmt::format("{} bytes, changed at {}.{:09} s, first bytes {:016x}", status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, checksum(first));
}

}  // namespace redblue::file::partial
