#pragma once
#include <memory>

#include "redblue/files/io/engine.hpp"

namespace redblue::file::io {

/// Requests by io_uring; null where the kernel does not let this process have one, or redblue was built without
/// liburing (no_uring.cpp).
std::unique_ptr<Engine> make_uring_engine(const EngineOptions& options);
/// What is missing where there is none, for messages.
std::string_view why_no_uring();

}  // namespace redblue::file::io
