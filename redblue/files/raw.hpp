#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/files/place.hpp"
#include "redblue/files/tensor_file.hpp"

/// Tensors in files without a header: row by row, little-endian.
namespace redblue::file {

/// The tensor that begins at byte `offset`; without an offset it is the whole file. Throws IoError where the size of
/// the file does not agree; InvalidProblem for an impossible shape or offset.
TensorPlace raw_place(const std::string& path, DType dtype, std::vector<index_t> shape, std::optional<index_t> offset);

/// Maps the file of such a tensor, as read_npy does, and throws what raw_place throws.
Tensor read_raw(const std::string& path, DType dtype, std::vector<index_t> shape, std::optional<index_t> offset);

}  // namespace redblue::file
