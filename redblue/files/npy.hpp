#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "redblue/files/tensor_file.hpp"

namespace redblue::file {

class AtomicFile;

/// Reads a numpy .npy file (format 1, 2 or 3; row- or column-major; either byte order) of dtype f8, f4, f2, or V2,
/// which is how numpy stores the bfloat16 of ml_dtypes: numpy has no code for it, so two void bytes are read as bf16.
/// Throws IoError when the file cannot be read, is truncated or malformed; Unsupported for any other dtype.
Tensor read_npy(const std::string& path);

/// Reads an .npy file that lies in memory; the result points into `bytes`. `path` is for error messages.
FileTensor parse_npy(std::span<const std::byte> bytes, const std::string& path = "<memory>");

/// What the header of an .npy file says.
struct NpyDescription {
  std::string dtype;          ///< as numpy writes it: "<f4"
  std::optional<DType> type;  ///< none for what redblue does not compute with
  std::vector<index_t> shape;
  bool fortran_order = false;
};
/// Looks at the header alone; `bytes` may end after it. Throws IoError where it is malformed.
NpyDescription describe_npy(std::span<const std::byte> bytes, const std::string& path);

/// Whole numbers, row by row.
struct WholeNumbers {
  std::vector<index_t> shape;
  std::vector<index_t> values;
};
/// Reads an .npy of signed or unsigned integers of 1, 2, 4 or 8 bytes, from memory. Throws as parse_npy does, and
/// InvalidProblem for a number above 2^63.
WholeNumbers parse_npy_integers(std::span<const std::byte> bytes, const std::string& path);
/// Reads an .npy of one text of bytes (dtype S), as scipy names the format of a sparse matrix.
std::string parse_npy_text(std::span<const std::byte> bytes, const std::string& path);

/// Writes `tensor` (any strides, any byte order) as .npy: row-major, little-endian, format 1 (2 when the header is too
/// long for it), bf16 as '<V2'. The file appears complete or not at all.
/// Throws IoError when it cannot be written, InvalidProblem when the tensor makes no sense.
void write_npy(const std::string& path, const FileTensor& tensor);
/// Writes into a file that the caller commits, for instance together with others.
void write_npy(AtomicFile& out, const FileTensor& tensor);
/// What write_npy puts before the elements of such a tensor; its data is not looked at.
std::string npy_header(const FileTensor& tensor);
/// Bytes of the file that write_npy makes of such a tensor; its data is not looked at.
index_t npy_file_size(const FileTensor& tensor);

}  // namespace redblue::file
