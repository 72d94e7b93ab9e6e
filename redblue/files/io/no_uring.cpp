#include "redblue/files/io/uring.hpp"

namespace redblue::file::io {

std::unique_ptr<Engine> make_uring_engine(const EngineOptions&) { return nullptr; }
std::string_view why_no_uring() { return "redblue was built without liburing"; }

}  // namespace redblue::file::io
