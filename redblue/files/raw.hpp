#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/files/place.hpp"
#include "redblue/files/tensor_file.hpp"

/// Tensors in files without a header, whose elements are little-endian.
namespace redblue::file {

/// Which bytes of a file a tensor is.
struct RawTensor {
  std::string path;
  DType dtype = DType::f32;
  std::vector<index_t> shape;
  /// In elements, none of them negative; without any the elements lie row by row.
  std::optional<std::vector<index_t>> strides{};
  /// Byte of the file at which the tensor begins; without one, and without strides, it is the whole file.
  std::optional<index_t> offset{};
};

/// Throws IoError where the size of the file does not agree; InvalidProblem for an impossible shape, stride or offset.
TensorPlace place_of(const RawTensor& raw);

/// Maps the file of such a tensor, as read_npy does. Throws what place_of throws, and Unsupported for strides where
/// elements do not lie at multiples of their size.
Tensor read_raw(const RawTensor& raw);

}  // namespace redblue::file
