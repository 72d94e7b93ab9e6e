#pragma once
#include <string>

#include "redblue/files/raw.hpp"

namespace redblue::cli {

/// A tensor in a file without a header, as --raw names it.
struct NamedRaw {
  std::string name;  ///< "q"
  file::RawTensor tensor;
};

/// From "q=q.bin:f32:1x8x4096x64@4096", or with strides in elements "q=q.bin:f32:8x4096x64/64x512x1@4096". Throws
/// InvalidProblem, which says which part is wrong.
NamedRaw parse_raw(const std::string& text);

}  // namespace redblue::cli
