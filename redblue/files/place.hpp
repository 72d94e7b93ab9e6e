#pragma once
#include <string>
#include <vector>

#include "redblue/language/dtype.hpp"
#include "redblue/language/types.hpp"

/// Where tensors lie in files: the address maps of formats. Nothing here maps a file or reads data.
namespace redblue::file {

/// Where the elements of a tensor lie in a file.
struct TensorPlace {
  std::string path;
  index_t offset = 0;  ///< byte of the file at which the element with all indices 0 begins
  DType dtype = DType::f32;
  std::vector<index_t> shape;    ///< outermost dimension first; empty for a scalar
  std::vector<index_t> strides;  ///< in elements, one per dimension; they may be negative
  bool swap_bytes = false;       ///< the elements have the other byte order than this machine

  bool operator==(const TensorPlace&) const = default;
};

/// The bytes of the file that the elements lie among, from the lowest to the highest.
struct ByteRange {
  index_t begin = 0, end = 0;  ///< equal where the tensor has no elements
};
/// Throws InvalidProblem, which names the file, where shape, strides and offset make no sense or overflow 63 bits.
ByteRange byte_range(const TensorPlace& place);

/// Throws IoError unless the file is there and all elements lie in it.
void require_in_file(const TensorPlace& place);

/// The tensor of an .npy file; reads the header. Throws what read_npy does.
TensorPlace npy_place(const std::string& path);
/// A tensor of a safetensors file; reads the header, and checks it as read_safetensors does. Throws what that and
/// Safetensors::tensor do.
TensorPlace safetensors_place(const std::string& path, const std::string& name);

}  // namespace redblue::file
