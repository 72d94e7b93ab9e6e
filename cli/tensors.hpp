#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "redblue/attention.hpp"
#include "redblue/file/tensor_file.hpp"

namespace redblue::cli {

/// Where the tensors of a run come from and go to: one safetensors file each way, or a .npy file per tensor. Tensors
/// go by the lower-case names of their arrays: q, lse, dq, a1.
struct FileOptions {
  std::optional<std::string> input, output;               ///< safetensors
  std::map<std::string, std::optional<std::string>> npy;  ///< by tensor
  std::vector<std::string> names;                         ///< "q=query": names inside the safetensors files

  void add_to(const Command& command);
  /// Throws InvalidProblem unless the options name a complete set of files for the operation, outputs apart from
  /// inputs.
  void validate(Operation op) const;
  std::string name_of(const std::string& tensor) const;
  bool wants(const std::string& tensor) const { return output || npy.at(tensor); }
};

/// Tensors of rank 2 [n, d], 3 [heads, n, d] or 4 [batch, heads, n, d], kept alive; lse has no last dimension. `rank`
/// is the rank of the other tensors.
class LoadedInputs {
 public:
  /// Reads the tensors that the operation needs; O and lse must both be in the file, or neither.
  LoadedInputs(const FileOptions& files, Operation op, Score score, Sources sources);

  const Tensors& tensors() const { return tensors_; }
  std::size_t rank() const { return rank_; }
  bool forward_given() const { return forward_given_; }
  bool any_f64() const;

 private:
  std::map<SlowArray, file::Tensor> loaded_;
  Tensors tensors_;
  std::size_t rank_ = 0;
  bool forward_given_ = true;
};

/// Sizes from shapes. Throws InvalidProblem where dimensions are missing or empty.
void set_sizes(Problem& p, const Tensors& tensors);

/// Memory for the outputs, and the files they go to, which appear complete or not at all.
class OutputFiles {
 public:
  /// Opens the files and takes room for them on the disk, so that a directory that cannot be written, and a disk that
  /// is full, show before the work.
  OutputFiles(const FileOptions& files, const Problem& p, DType dtype, DType lse_dtype, std::size_t rank);
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  /// Adds the outputs to the inputs; lse only where a file takes it.
  void add_to(Tensors& tensors) const;
  /// Throws IoError. All files are complete before the first appears (AtomicFile::commit_together).
  void commit();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace redblue::cli
