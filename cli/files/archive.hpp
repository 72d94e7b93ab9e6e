#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/files/safetensors.hpp"

namespace redblue::cli {

/// A file of named tensors that is read: safetensors, or the .npz of numpy, whose tensors go by the names of the arrays
/// in it.
class Archive {
 public:
  /// What the file says of a tensor. redblue may not be able to compute with its dtype.
  struct Entry {
    std::string name, dtype;
    std::vector<index_t> shape;
    std::optional<DType> type;  ///< none: tensor() throws
  };

  virtual ~Archive() = default;

  virtual std::string_view format() const = 0;
  virtual std::vector<Entry> entries() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  /// Throws InvalidProblem, with a list of all names, if there is no such tensor; Unsupported for another dtype.
  virtual file::Tensor tensor(const std::string& name) const = 0;
};

/// A name from a file, fit for a terminal: control characters as \xNN.
std::string readable(const std::string& name);

}  // namespace redblue::cli
