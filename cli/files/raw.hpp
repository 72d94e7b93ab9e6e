#pragma once
#include <optional>
#include <string>
#include <vector>

#include "redblue/files/place.hpp"
#include "redblue/files/tensor_file.hpp"

namespace redblue::cli {

/// A tensor in a file without a header, as --raw names it.
struct RawTensor {
  std::string tensor;  ///< "q"
  std::string path;
  DType dtype = DType::f32;
  std::vector<index_t> shape;
  std::optional<index_t> offset;  ///< in bytes; without one the tensor is the whole file

  /// From "q=q.bin:f32:1x8x4096x64@4096". Throws InvalidProblem, which says which part is wrong.
  explicit RawTensor(const std::string& text);
  /// The tensor, mapped. Throws IoError where the size of the file does not agree.
  file::Tensor read() const;
  /// Where it lies. Throws what read() does.
  file::TensorPlace place() const;
};

}  // namespace redblue::cli
