#pragma once
#include <optional>

#include "redblue/hardware/hardware.hpp"
#include "redblue/levels/nest.hpp"
#include "redblue/runtime/files/backend.hpp"

/// Plans for runs over files: schedule and tiles for fast memory, the caches inside it, and how far reads go ahead.
namespace redblue {

/// How requests to files go out: their size, and how many are under way.
struct LookAhead {
  machine::FileBuffers buffers{};
  int depth = file::io::EngineOptions{}.depth;  ///< transfers under way at a time, reads and writes together
  bool measured = false;  ///< Are depth and size of requests those that a disk was measured to need?
};

/// Memory for requests is a part of less memory than this, however small requests are.
inline constexpr index_t kLeastFilesMemory = index_t{1} << 20;

/// The look-ahead of a run in `memory` bytes. Where the disk was measured, requests are as large as at its
/// knee, and as many are under way, beside those that write; else they have 1 MiB, and 32 are under way. Requests are
/// smaller where memory is short, and then more of them are under way. They are never below 256 KiB for the disk's
/// sake, for each that begins inside a page reads this page once more; then fewer are under way. Throws InvalidProblem
/// below kLeastFilesMemory.
LookAhead look_ahead_within(index_t memory, const std::optional<Disk>& disk);

/// What plan_over_files() plans for.
struct FilesPlanOptions {
  /// Bytes that the run may take: fast memory, buffers of files, the memory of caches. A program with its libraries,
  /// its plan and headers of files comes on top.
  index_t memory = 0;
  plan::Options outer{};  ///< of the outermost plan, without a cap. M: words of fast memory; 0: as many as fit
  /// The machine; null: this one, as `redblue doctor` has left it. What nobody has measured is taken for that of a
  /// plain machine, and nothing is measured now: a run that goes on later must have the same plan.
  std::optional<Hardware> hardware{};
};

/// A plan for a run over files, with what moves at each of its borders and how long that takes.
struct FilesPlan {
  /// nest.outer is the plan. Without inner levels one thread runs implementations on whole tiles.
  levels::Nest nest;
  LookAhead look_ahead;
  int threads = 1;        ///< RunOptions::threads
  Words bytes;            ///< of memory that the run takes
  bool measured = false;  ///< Are rates of cores, caches and memory measured? (Of the disk: look_ahead.measured.)

  /// These options of the backend, with the levels inside fast memory and the look-ahead of this plan.
  FilesOptions backend_options(FilesOptions others = {}) const;
};

/// The nest of least time in fast memory and the private cache of each core which, with all buffers, takes no more
/// memory than is given. Where no level below fast memory can carry out the kernels, as those of lists of pairs, it is
/// the plan that moves the fewest bytes over files, columns and what lies between their words included, for one thread.
/// Schedules with an n x n workspace are taken by name only. `tensors` say how arrays lie, and `map` what of them lies
/// in files; of `run` it heeds compute, threads and forward.
///
/// Throws MemoryError where no run is so small, InvalidProblem where it is for one thread and run.threads are more, and
/// where the plan has a cap, and what plan::make_plan throws.
///
/// ```
/// const FilesPlan plan = plan_over_files(problem, tensors, map, {}, {.memory = 256 << 20});
/// const auto backend = files_backend(map, plan.backend_options());
/// run(plan.nest.outer, tensors, {.threads = plan.threads, .backend = backend.get()});
/// ```
FilesPlan plan_over_files(const Problem& problem, const Tensors& tensors, const file::io::FileMap& map,
                          const RunOptions& run, const FilesPlanOptions& options);

}  // namespace redblue
