#pragma once
#include <memory>
#include <optional>
#include <string>

#include "files/tensors.hpp"
#include "options/options.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/runtime/files/plan.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// `redblue run --memory` that was stopped before, or may be.
struct ResumeOptions {
  bool resume = false;
  std::optional<double> checkpoint_s;

  void add_to(const Command& command);
  /// Throws InvalidProblem where one of them is given.
  void require_none() const;
};

/// `redblue run --memory`: slow memory is the files themselves, and all memory of the run, page cache included, stays
/// below what is given and a constant.
class OverFiles {
 public:
  /// Memory of the program itself beside what --memory names: code, libraries, the plan, headers of files: some 20
  /// MiB were measured.
  static constexpr index_t kBeside = index_t{48} << 20;

  OverFiles(const MemoryOptions& memory, const ResumeOptions& resume);

  bool asked() const { return limit_.has_value(); }
  /// Where tensors get their addresses; null unless it was asked for.
  file::io::FileMap* map() { return asked() ? &map_ : nullptr; }
  /// Is its data in a file, where nobody shall look at it before the run?
  bool holds(const Tensor& t) const { return map_.find(t.data).has_value(); }
  /// Throws InvalidProblem where an option reads all of an array, or is about runs in memory.
  void require_heeded(const Problem& kind, const PlannerOptions& planner, const ObjectiveOptions& objective,
                      const FileOptions& files, bool verify, bool certificate) const;
  /// The directory of the run, or null where it was not asked for: a new one, or that of a run that goes on. Throws
  /// InvalidProblem where it holds a run that is another one, or nobody asked to go on with it.
  file::partial::PartialRun* begin(const FileOptions& files, const LoadedInputs& loaded, const Problem& p,
                                   const PatternOptions& pattern);
  /// The plan of the run (plan_over_files) for --memory and --M. `options` then says where it is carried out, and by
  /// how many threads.
  plan::Plan plan(const Problem& p, const plan::Options& planner, const Tensors& tensors, RunOptions& options);
  /// Had an earlier process computed all with this plan, and only the names of the outputs were missing? They have
  /// them now. Throws InvalidProblem where the plan was another one.
  bool were_computed(const plan::Plan& plan, const RunOptions& options);
  /// The run. Where the system fails, it says how to go on.
  Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) const;

  /// The bytes of the words that the plan moves; 0 unless it was asked for.
  double bytes_of(const plan::Plan& plan, DType compute) const {
    return asked() ? plan.io().total().to_double() * static_cast<double>(size_of(compute)) : 0;
  }
  void add_to(Json& j, double seconds) const;
  void print(double seconds) const;

 private:
  ResumeOptions resume_;
  std::optional<index_t> M_, limit_;
  std::unique_ptr<file::partial::PartialRun> partial_;
  FilesOptions files_;
  file::io::FileMap map_;
  FilesPlan planned_;
  std::unique_ptr<Backend> backend_;
  FilesReport report_;
};

}  // namespace redblue::cli
