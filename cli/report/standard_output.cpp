#include "report/standard_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "redblue/language/error.hpp"

namespace redblue::cli {

void fill_closed_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      if (open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;  // the lowest that is free
}

void require_standard_output() {
  if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY)
    throw IoError("standard output is closed: open it, or give --quiet", "standard output");
}

void note(const std::string& text) { std::fputs(("redblue: " + text + "\n").c_str(), stderr); }

std::string output_failure() {
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? "" : std::strerror(errno);
}

}  // namespace redblue::cli
