#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/types.hpp"

namespace redblue::file {

/// The three entries of an .npy header.
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<index_t> shape;
};

/// Parses the header text, a Python dictionary with exactly these entries, in any order.
/// `offset` is where the text starts in the file `path`, for error messages.
/// Throws IoError for anything else, Unsupported for a record dtype (a list of fields).
NpyHeader parse_npy_header(std::string_view text, const std::string& path, std::size_t offset);

}  // namespace redblue::file
