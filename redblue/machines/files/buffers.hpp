#pragma once
#include "redblue/language/types.hpp"

namespace redblue::machine {

/// The memory through which blocks of files pass.
struct FileBuffers {
  index_t request = 1 << 20;  ///< bytes of a request, at most
  index_t read = 32 << 20;    ///< bytes that are read ahead, at most
  index_t write = 8 << 20;    ///< bytes that are still to be written, at most
};

}  // namespace redblue::machine
