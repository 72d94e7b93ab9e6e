#pragma once
#include <functional>
#include <memory>
#include <string>

#include "redblue/files/io/engine.hpp"
#include "redblue/files/io/file_map.hpp"
#include "redblue/files/partial/partial_run.hpp"
#include "redblue/levels/sizes.hpp"
#include "redblue/machines/files/buffers.hpp"
#include "redblue/runtime/backend.hpp"

namespace redblue {

/// What a run over files did, beside what Measured says.
struct FilesReport {
  std::string engine;               ///< "io_uring", "threads"
  bool direct = false;              ///< Did requests to all files pass by the page cache?
  index_t read = 0, written = 0;    ///< bytes of words that the schedule moved between files and fast memory
  index_t converted = 0;            ///< bytes moved afterwards, for outputs that were held in the compute type
  file::io::Traffic reads, writes;  ///< all of it, as the kernel was asked for it
  index_t buffer_bytes = 0;         ///< memory for what is read ahead and still to be written
  index_t workspace_bytes = 0;      ///< of a temporary file
  double seconds = 0;               ///< from the schedule's first operation to its last write
  double waited_s = 0;              ///< of them, those for which the computation waited for files
  double disk_s = 0;                ///< with a request under way, for converted outputs, too
  std::vector<Words> inner_words;   ///< words that moved at each inner level
  /// Seconds of calls of kernels, which inner levels carried out: multiply-adds, and words at inner borders.
  double inner_s = 0;
  // The rest is of runs that can be resumed.
  index_t resumed_operations = 0;  ///< that an earlier process did, and this one left out
  index_t checkpoints = 0;
  index_t kept_bytes = 0;  ///< that were kept before they were written over
  index_t fast_bytes = 0;  ///< of fast memory, written at checkpoints
};

struct FilesOptions {
  machine::FileBuffers buffers{};
  file::io::EngineOptions engine{};
  file::io::PageCache cache = file::io::PageCache::bypassed_if_possible;  ///< of workspace
  /// Where the temporary file of a run lies that needs workspace; "": the directory for temporary files.
  std::string workspace_directory{};
  /// The levels of memory inside fast memory, which carry out calls of kernels with RunOptions::threads (0: all of the
  /// pool); none: implementations run kernels on whole tiles, on one thread.
  std::vector<levels::Inner> inner{};
  /// The run can be resumed from its last checkpoint. All outputs must lie in files of this directory, and workspace
  /// will; begin() and checkpoint() are called here, finish() by whoever made it. One run uses it.
  file::partial::PartialRun* partial = nullptr;
  /// Seconds between checkpoints, at least; more where they would take more than a twentieth of the time.
  double checkpoint_s = 30;
  /// Called at the end of a run.
  std::function<void(const FilesReport&)> report{};
};

/// Slow memory that is files. The data of a tensor is an address of `map`, which says where in which file it lies, or
/// of memory: such tensors are read and written where they are, and not reported. All blocks pass through buffers,
/// which are read ahead and written behind. A schedule runs as it is, and takes its blocks on one thread. Without inner
/// levels the bits are those of a run in RAM.
///
/// A run takes its fast memory and the buffers; workspace, and outputs that are held in the compute type, lie in a
/// temporary file that has no name. It refuses RunOptions::memory, threads above 1 without inner levels, the compute
/// type bf16, and patterns that take rows in another order.
std::unique_ptr<Backend> files_backend(file::io::FileMap map, FilesOptions options = {});

/// About how many bytes the requests of a run move, for this layout of the tensors: the pages of the words, and what
/// lies between the rows of columns and other blocks. It looks at the beginning of a long run.
double bytes_over_files(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options,
                        const machine::FileBuffers& buffers = {});

}  // namespace redblue
