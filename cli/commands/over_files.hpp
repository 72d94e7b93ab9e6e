#pragma once
#include <memory>
#include <optional>
#include <string>

#include "options/options.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/files/backend.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// `redblue run --memory`: slow memory is the files themselves, and all memory of the run, page cache included, stays
/// below what is given and a constant.
class OverFiles {
 public:
  /// Memory of the program itself beside what --memory names: code, libraries, the plan, headers of files. The README
  /// of its test measures 20 MiB.
  static constexpr index_t kBeside = index_t{48} << 20;

  explicit OverFiles(const MemoryOptions& memory);

  bool asked() const { return limit_.has_value(); }
  /// Where tensors get their addresses; null unless it was asked for.
  file::io::FileMap* map() { return asked() ? &map_ : nullptr; }
  /// Is its data in a file, where nobody shall look at it before the run?
  bool holds(const Tensor& t) const { return map_.find(t.data).has_value(); }
  /// Throws InvalidProblem where an option reads all of an array, or is about runs in memory.
  void require_heeded(const Problem& kind, const ObjectiveOptions& objective, const std::string& input, bool verify,
                      bool certificate) const;
  /// The nest of least time in fast memory which, with all buffers, fits the limit: --M words, or as many as do. Where
  /// no level below can carry out kernels, the plan of the fewest words, for one thread. `options` then says where it
  /// is carried out; workspace goes beside the file `output`.
  plan::Plan plan(const Problem& p, const plan::Options& planner, const Tensors& tensors, RunOptions& options,
                  const std::string& output);

  /// The bytes of the words that the plan moves; 0 unless it was asked for.
  double bytes_of(const plan::Plan& plan, DType compute) const {
    return asked() ? plan.io().total().to_double() * static_cast<double>(size_of(compute)) : 0;
  }
  void add_to(Json& j, double seconds) const;
  void print(double seconds) const;

 private:
  /// The outermost plan of a nest with the caches of this machine; null where there is none.
  std::optional<plan::Plan> nested(const Problem& p, const plan::Options& planner, const Tensors& tensors,
                                   RunOptions& options, DType compute, index_t room);

  std::optional<index_t> M_, limit_;
  FilesOptions files_;
  file::io::FileMap map_;
  std::unique_ptr<Backend> backend_;
  FilesReport report_;
  Words memory_;  ///< bytes that the run takes beside the program
};

}  // namespace redblue::cli
