#pragma once
#include <memory>

#include "files/archive.hpp"
#include "redblue/files/atomic_file.hpp"

/// Which format an archive has or shall have.
namespace redblue::cli {

/// The format is told by how the file begins. Throws IoError, which names the file.
std::unique_ptr<Archive> open_archive(const std::string& path);
/// Does the file begin with this? False if it cannot be read.
bool begins_with(const std::string& path, std::string_view text);
/// Does the file name end like this, in small or capital letters?
bool has_extension(const std::string& path, std::string_view extension);
/// Does this file name ask for .npz? All others are safetensors.
bool is_npz(const std::string& path);
/// Throws InvalidProblem where the name of an output ends like that of another format.
void require_known_extension(const std::string& path);
/// Writes the tensors in the format of the file's name, for the caller to commit.
void write_archive(file::AtomicFile& out, const std::vector<file::NamedTensor>& tensors);
/// Bytes of that file, or a little more; data is not looked at.
index_t archive_size(const std::string& path, const std::vector<file::NamedTensor>& tensors);

}  // namespace redblue::cli
