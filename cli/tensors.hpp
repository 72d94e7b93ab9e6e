#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/file/tensor_file.hpp"

namespace redblue::cli {

/// Where the tensors of a run come from and go to: one safetensors file each way, or .npy files.
struct FileOptions {
  std::optional<std::string> input, output;    ///< safetensors
  std::optional<std::string> q, k, v, o, lse;  ///< npy
  std::vector<std::string> names;              ///< "q=query": names inside the safetensors files

  /// Throws InvalidProblem unless the options name a complete set of files, outputs apart from inputs.
  void validate() const;
  std::string name_of(const std::string& tensor) const;
};

/// Tensors of rank 2 [n, d], 3 [heads, n, d] or 4 [batch, heads, n, d], kept alive; `rank` is that of q.
struct LoadedInputs {
  file::Tensor q, k, v;
  std::size_t rank;
  Inputs views() const;
};
LoadedInputs load_inputs(const FileOptions& files);

/// Memory for o and lse, and the files they go to, which appear complete or not at all.
class OutputFiles {
 public:
  /// Opens the files, so that a directory that cannot be written shows before the work.
  OutputFiles(const FileOptions& files, const Problem& p, DType o_dtype, DType lse_dtype, std::size_t rank);
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  Outputs views() const { return views_; }  ///< lse without data where no file takes it
  /// Throws IoError. Both files are complete before the first appears; should the second then not get its name, the
  /// first stays.
  void commit();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
  std::vector<std::byte> o_, lse_;
  file::FileTensor o_tensor_, lse_tensor_;
  Outputs views_;
};

}  // namespace redblue::cli
