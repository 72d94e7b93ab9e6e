#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "files/archive.hpp"
#include "files/layout.hpp"
#include "files/raw.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/files/partial/partial_run.hpp"
#include "redblue/files/tensor_file.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue::cli {

/// Where the tensors of a run come from and go to: one safetensors or .npz file each way, or a .npy file per tensor;
/// inputs may also lie in files without a header.
/// Tensors go by the lower-case names of their arrays: q, lse, dq, a1.
struct FileOptions {
  std::optional<std::string> input, output;               ///< safetensors or .npz
  std::map<std::string, std::optional<std::string>> npy;  ///< by tensor
  std::vector<std::string> raw;                           ///< "q=q.bin:f32:8x4096x64": inputs without a header
  std::vector<std::string> names;                         ///< "q=query": names inside these files
  std::optional<std::string> layout;
  bool with_forward = false;           ///< gradients: o and lse are computed, and written beside them
  bool strict = false;                 ///< no tensor of `input` may be left unused
  std::vector<std::string> ignored{};  ///< tensors of `input` that shall be

  void add_to(const Command& command);
  /// Throws InvalidProblem unless the options name a complete set of files for a problem of this kind (op, score,
  /// sources), outputs apart from inputs.
  void validate(const Problem& kind) const;
  std::string name_of(const std::string& tensor) const;
  /// Does --ignore name this tensor of `input`?
  bool ignores(const std::string& name) const;
  /// Does the archive, or null, hold this tensor, and does --ignore not name it?
  bool is_taken_from(const Archive* archive, const std::string& tensor) const;
  /// The input of this name that has no header, if --raw names it.
  std::optional<file::RawTensor> raw_of(const std::string& tensor) const;
  /// `input`, open; null without one, or where it cannot be read: `validate` and LoadedInputs say what is wrong with
  /// it.
  std::unique_ptr<Archive> opened() const;
  /// Sets which of bias, slopes, sinks and dlse a problem has: those that the files hold. `archive` is `input`, or
  /// null.
  void add_modifiers_to(Problem& kind, const Archive* archive) const;
  /// The tensors that a problem of this kind cannot do without.
  std::vector<std::string> needed(const Problem& kind) const;
  bool wants(const std::string& tensor) const { return output || npy.at(tensor); }
  /// Where this input lies; nothing where no option names it. Throws what npy_place, place_of and safetensors_place do.
  std::optional<file::TensorPlace> place_of(const std::string& tensor) const;
  /// The arrays that files of a problem of this kind take.
  std::vector<SlowArray> written(const Problem& kind) const;

 private:
  /// Throws InvalidProblem unless --raw names inputs, each of them once in all.
  void require_raw(const std::vector<std::string>& in, const std::vector<std::string>& out) const;
};

/// A problem of this kind with sizes, for its lists of arrays.
Problem sample(Problem kind);
/// The arrays that a run reads from files: inputs, and outputs that are given.
std::vector<SlowArray> read_by(const Problem& p);
std::vector<std::string> tensor_names(const std::vector<SlowArray>& arrays);
/// Every tensor that a file may hold for some operation.
std::vector<std::string> all_names();
/// --name and --layout.
void add_names_and_layout(const Command& command, std::vector<std::string>& names, std::optional<std::string>& layout);
/// Throws InvalidProblem unless each is TENSOR=NAME with a tensor of `known`, none of them twice.
void require_names(const std::vector<std::string>& names, const std::vector<std::string>& known);

/// Has it one number a head? A run over files reads it at its start, too.
bool is_read_at_once(SlowArray a);

/// Tensors in one layout, kept alive.
class LoadedInputs {
 public:
  /// Reads the tensors that a problem of this kind needs; O and lse must both be in the file, or neither. `archive` is
  /// files.input, or what stands in its place; null: it is opened here, if there is one. `map`: the data of the
  /// tensors, but for those that are read at once, are addresses of it, and nothing of them is read.
  LoadedInputs(const FileOptions& files, const Problem& kind, const Archive* archive, file::io::FileMap* map = nullptr);

  const Tensors& tensors() const { return tensors_; }
  /// `kind` with the sizes of the tensors. Throws InvalidProblem where they do not fit each other.
  Problem problem(Problem kind) const;
  const FileLayout& layout() const { return layout_.value(); }
  bool any_f64() const;
  /// The file of each tensor whose data is in its file, and where in it the tensor lies.
  std::vector<file::partial::Input> places(const FileOptions& files) const;
  /// The names of the tensors that it took from the archive.
  const std::set<std::string>& used() const { return used_; }

 private:
  std::set<std::string> used_;
  std::map<SlowArray, file::Tensor> loaded_;
  Tensors tensors_;
  std::optional<FileLayout> layout_;
  bool forward_given_ = true;
};

/// Memory for the outputs, and the files they go to, which appear complete or not at all.
class OutputFiles {
 public:
  /// The paths of the files.
  static std::vector<std::string> paths(const FileOptions& files, const Problem& p);
  /// Opens the files and takes room for them on the disk, so that a directory that cannot be written, and a disk that
  /// is full, show before the work.
  OutputFiles(const FileOptions& files, const Problem& p, DType dtype, DType lse_dtype, const FileLayout& layout)
      : OutputFiles(files, p, dtype, lse_dtype, layout, nullptr, nullptr) {}
  /// Puts the outputs into files of a partial run that has their paths, and gives them addresses of the map.
  OutputFiles(const FileOptions& files, const Problem& p, DType dtype, DType lse_dtype, const FileLayout& layout,
              file::partial::PartialRun* partial, file::io::FileMap* map);
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  /// Adds the outputs to the inputs, for a run and its options; lse only where a file takes it.
  void add_to(Tensors& tensors, RunOptions& options) const;
  /// Outputs that a problem adds to begin as these.
  void copy_given(const Problem& p, const Tensors& given) const;
  /// Throws IoError. All files are complete before the first appears (AtomicFile::commit_together).
  void commit();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace redblue::cli
