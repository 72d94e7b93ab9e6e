#pragma once
#include "redblue/files/atomic_file.hpp"
#include "redblue/files/tensor_file.hpp"

namespace redblue::file {

/// Throws InvalidProblem, which names `what`, unless shape, strides and data of the tensor are such that it can be
/// written.
void check_writable(const FileTensor& tensor, const std::string& what);

/// Appends the elements of a checked tensor, row-major and little-endian.
void write_elements(AtomicFile& out, const FileTensor& tensor);

}  // namespace redblue::file
