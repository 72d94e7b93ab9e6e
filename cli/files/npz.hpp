#pragma once
#include <memory>

#include "files/archive.hpp"
#include "redblue/files/atomic_file.hpp"

/// The .npz of numpy: a zip archive with one .npy file per array, by minizip, which comes with zlib.
namespace redblue::cli {

std::unique_ptr<Archive> open_npz(const std::string& path);
/// A sparse matrix as scipy.sparse.save_npz writes it, of format csr or bsr.
struct SparseMatrix {
  std::string format;
  std::vector<index_t> shape, indptr, indices;
  std::vector<index_t> block{1, 1};  ///< bsr: rows and columns of a block
};
/// Throws IoError or InvalidProblem where the file is none, or of another format.
SparseMatrix read_sparse_npz(const std::string& path);
/// Writes tensors that lie row by row, not compressed, as numpy.savez does.
void write_npz(file::AtomicFile& out, const std::vector<file::NamedTensor>& tensors);
/// Bytes of that file, or a little more.
index_t npz_file_size(const std::vector<file::NamedTensor>& tensors);

}  // namespace redblue::cli
