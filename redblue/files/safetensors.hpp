#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/files/tensor_file.hpp"

namespace redblue::file {

class AtomicFile;

/// What the header says of one tensor. The dtype is as written there; redblue may not be able to compute with it.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<index_t> shape;
  index_t begin = 0, end = 0;  ///< its bytes in the file
};

/// A safetensors file: named tensors, little-endian and row-major, and a map of strings.
/// Copies are cheap and share the mapped file.
class Safetensors {
 public:
  /// The header's entry for one tensor, and its bytes.
  struct Entry : SafetensorsEntry {
    std::span<const std::byte> bytes;
  };
  using Metadata = std::map<std::string, std::string>;

  /// All entries, in the order of their data in the file.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The names of all tensors, sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return index_.contains(name); }
  /// The strings under __metadata__.
  const Metadata& metadata() const { return metadata_; }

  /// The header's entry for `name`, with its raw bytes, whatever the dtype.
  /// Throws InvalidProblem, with a list of all names, if there is no such tensor.
  const Entry& entry(const std::string& name) const;
  /// The tensor `name`: F64, F32, F16 or BF16; Unsupported for another dtype; otherwise as entry().
  Tensor tensor(const std::string& name) const;

 private:
  friend Safetensors parse_safetensors(std::span<const std::byte>, const std::string&, std::shared_ptr<const void>);
  Safetensors() = default;

  std::string path_;
  std::shared_ptr<const void> owner_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;  ///< name -> position in entries_
  Metadata metadata_;
};

/// Maps `path` and checks its whole header, as strictly as the reference implementation: at most 100 MB, no key twice,
/// data without holes or overlaps that ends where the file ends, sizes equal to shape x dtype.
/// Throws IoError when the file cannot be read or breaks a rule. A dtype that the format does not know makes only its
/// own tensor unreadable.
Safetensors read_safetensors(const std::string& path);

/// Reads a safetensors file that lies in memory. `path` is for error messages; `keeps_alive` owns the bytes, null if
/// the caller does.
Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& path = "<memory>",
                              std::shared_ptr<const void> keeps_alive = nullptr);

/// The type of such elements: F64, F32, F16 or BF16; none for what redblue does not compute with.
std::optional<DType> safetensors_dtype(std::string_view name);

/// A tensor (any strides, any byte order) and its name in the file.
struct NamedTensor {
  std::string name;
  FileTensor tensor;
};

/// Writes a safetensors file: widest elements first, then by type and name, header padded with spaces to 8 bytes, so
/// that all data is aligned. The file appears complete or not at all. Throws IoError when it cannot be written;
/// InvalidProblem for a name that is repeated, reserved or not UTF-8.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const Safetensors::Metadata& metadata = {});
/// Writes into a file that the caller commits, for instance together with others.
void write_safetensors(AtomicFile& out, const std::vector<NamedTensor>& tensors,
                       const Safetensors::Metadata& metadata = {});
/// What write_safetensors puts before the data, and for each tensor the byte of the file at which its data begins, for
/// who writes it in place. The data is not looked at.
struct SafetensorsHeader {
  std::string text;
  std::vector<index_t> begin;
};
SafetensorsHeader safetensors_header(const std::vector<NamedTensor>& tensors,
                                     const Safetensors::Metadata& metadata = {});
/// Bytes of the file that write_safetensors makes of such tensors; their data is not looked at.
index_t safetensors_file_size(const std::vector<NamedTensor>& tensors, const Safetensors::Metadata& metadata = {});

}  // namespace redblue::file
