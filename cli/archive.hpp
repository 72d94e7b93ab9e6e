#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/files/atomic_file.hpp"
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

  /// Told apart by how the file begins. Throws IoError, which names the file.
  static std::unique_ptr<Archive> open(const std::string& path);
  virtual ~Archive() = default;

  virtual std::string_view format() const = 0;
  virtual std::vector<Entry> entries() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  /// Throws InvalidProblem, with a list of all names, if there is no such tensor; Unsupported for another dtype.
  virtual file::Tensor tensor(const std::string& name) const = 0;
};

/// A name from a file, fit for a terminal: control characters as \xNN.
std::string readable(const std::string& name);
/// Does the file begin with this? False if it cannot be read.
bool begins_with(const std::string& path, std::string_view text);
/// Does the file name end like this, in small or capital letters?
bool has_extension(const std::string& path, std::string_view extension);
/// Does this file name ask for .npz? All others are safetensors.
bool is_npz(const std::string& path);
/// Writes the tensors in the format of the file's name, for the caller to commit.
void write_archive(file::AtomicFile& out, const std::vector<file::NamedTensor>& tensors);
/// Bytes of that file, or a little more; data is not looked at.
index_t archive_size(const std::string& path, const std::vector<file::NamedTensor>& tensors);

}  // namespace redblue::cli
