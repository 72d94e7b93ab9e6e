#include <fmt/format.h>

#include "redblue/files/io/threads.hpp"
#include "redblue/files/io/uring.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::io {

std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
  if (options.depth < 1 || options.depth > 4096)
    throw InvalidProblem(fmt::format("depth = {}: give a number of transfers from 1 to 4096", options.depth));
  if (options.kind != EngineKind::threads) {
    if (std::unique_ptr<Engine> engine = make_uring_engine(options)) return engine;
    if (options.kind == EngineKind::io_uring)
      throw Unsupported(fmt::format("there is no io_uring: {}; choose threads", why_no_uring()));
  }
  return std::make_unique<ThreadsEngine>(options);
}

}  // namespace redblue::file::io
