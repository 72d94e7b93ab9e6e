#include "redblue/runtime/files/backend.hpp"

#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "redblue/levels/inner_ram.hpp"
#include "redblue/machines/files/cover.hpp"
#include "redblue/machines/files/file_memory.hpp"
#include "redblue/machines/files/listing.hpp"
#include "redblue/machines/resumable.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/runtime/files/checkpoints.hpp"
#include "redblue/runtime/ram/lay_out.hpp"
#include "redblue/runtime/ram/run_row.hpp"

namespace redblue {

namespace {

using file::io::FileMap;
using file::io::OpenFile;
using machine::FileMemory;
using machine::FileQueue;

/// Lists, on a thread of its own, what a schedule will read and write.
class Lister {
 public:
  /// Leaves out the first `done` operations.
  Lister(FileQueue& queue, const machine::FileArrays& arrays, const plan::Prepared& schedule, index_t done)
      : queue_(queue), thread_([&queue, &arrays, &schedule, done] {
          try {
            machine::Listing<FileQueue> listing(queue, arrays);
            machine::Resumption before{.done = done};
            machine::Resumable resumable(listing, before);
            machine::Any any(resumable);
            schedule.run(any);
            queue.end_list();
          } catch (const machine::UnknownNumber&) {
            queue.end_list();
          } catch (const FileQueue::Stopped&) {
            queue.end_list();
          } catch (...) {
            queue.end_list(std::current_exception());
          }
        }) {}
  ~Lister() {
    queue_.stop();
    thread_.join();
  }
  Lister(const Lister&) = delete;
  Lister& operator=(const Lister&) = delete;

 private:
  FileQueue& queue_;
  std::thread thread_;
};

/// Writes outputs that were held in the compute type to where they belong. Returns the bytes that it moved.
template <class T>
index_t write_converted(const Converted& converted, FileQueue& queue) {
  constexpr index_t kRows = 256;  // at a time
  const kernel::Implementations<T>& implementations = kernel::implementations<T>(best_isa());
  queue.end_list();  // one block after another
  machine::FileArrays from, to;
  from.queue = to.queue = &queue;
  const FileMemory<T> source(from, implementations), target(to, implementations);
  std::vector<T> words;
  for (const Converted::Pair& pair : converted.pairs()) {
    const auto [batch, heads, rows, cols] = pair.to.shape;
    from[index_of(SlowArray::O)] = storage_of(pair.from, heads, 1, false);
    to[index_of(SlowArray::O)] = storage_of(pair.to, heads, 1, true);
    for (index_t i = 0; i < batch * heads; ++i)
      for (index_t row = 0; row < rows; row += kRows) {
        const Block b{SlowArray::O, i, row, 0, {std::min(kRows, rows - row), cols}};
        words.resize(static_cast<std::size_t>(b.shape.words()));
        source.fetch(b, words.data(), cols);
        target.put(b, View<const T>(words.data(), b.shape, cols));
      }
  }
  queue.finish();
  return queue.traffic().read + queue.traffic().written;
}

class FilesBackend : public Backend {
 public:
  FilesBackend(FileMap map, FilesOptions options) : map_(std::move(map)), options_(std::move(options)) {}

  std::string_view name() const override { return "files"; }
  std::unique_ptr<Memo> new_memo() const override { return std::make_unique<ArenaMemo>(!options_.inner.empty()); }
  void require(const Problem& problem, const Tensors& tensors, const RunOptions& options) const override {
    require_arithmetic(options.compute, problem, tensors);
    if (options.compute == DType::bf16)
      throw Unsupported(
          "compute type bf16 over files: its kernels read bf16 where it lies; compute in f32, which takes "
          "bf16 tensors");
    if (options.threads > 1 && options_.inner.empty())
      throw Unsupported(
          fmt::format("threads = {} over files: one thread takes blocks in the order in which they are "
                      "read ahead; give 1, or 0, or inner levels, whose workers share the work on tiles",
                      options.threads));
    if (options.memory.data() != nullptr)
      throw Unsupported("RunOptions::memory over files: such a run takes its own buffers; leave it empty");
    if (const auto sequences = problem.sizes().sequences; sequences != nullptr && sequences->reordered())
      throw Unsupported(
          "queries or keys in another order, over files: rows would be copied one by one; a pattern with the order "
          "in-place leaves them where they are, and a dilated window runs in memory");
  }
  Words bytes(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo,
              Walk walk) const override {
    return with_compute(options.compute, [&]<class T>(T*) {
      Stack arrays;
      return needs<T>(plan, tensors, options, memo, walk, arrays).bytes + buffer_bytes() + inner_bytes<T>(options);
    });
  }
  Measured run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo) const override {
    return with_compute(options.compute, [&]<class T>(T*) { return run_in<T>(plan, tensors, options, memo); });
  }

 private:
  /// A file for workspace of this size.
  std::shared_ptr<const OpenFile> workspace_file(index_t bytes) const {
    if (options_.partial != nullptr) return options_.partial->workspace(bytes);
    const std::string& given = options_.workspace_directory;
    return std::make_shared<const OpenFile>(OpenFile::temporary(
        given.empty() ? std::filesystem::temp_directory_path().string() : given, bytes, options_.cache));
  }
  index_t buffer_bytes() const { return options_.buffers.read + options_.buffers.write; }
  static ThreadPool& pool_of(const RunOptions& options) {
    return options.pool == nullptr ? default_pool() : *options.pool;
  }
  /// The workers of the first inner level.
  static int workers_of_inner(const RunOptions& options) {
    const int most = pool_of(options).size();
    return options.threads == 0 ? most : std::min(options.threads, most);
  }
  template <class T>
  Words inner_bytes(const RunOptions& options) const {
    Words words;
    for (const levels::Inner& level : options_.inner) words += level.M;
    return words * sizeof(T) * workers_of_inner(options);
  }
  template <class T>
  Need needs(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo, Walk walk,
             Stack& arrays) const {
    RunOptions one = options;
    one.threads = 1;
    return need_of<T, FileMemory<T>>(plan, tensors, one, static_cast<ArenaMemo&>(memo), walk, &arrays);
  }
  template <class T>
  Measured run_in(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, Memo& memo) const;
  bool all_direct(const Tensors& tensors, const FileMap& map) const;

  const FileMap map_;
  const FilesOptions options_;
};

bool FilesBackend::all_direct(const Tensors& tensors, const FileMap& map) const {
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (const auto place = map.find(tensors[static_cast<SlowArray>(a)].data); place && !place->file->direct())
      return false;
  return true;
}

/// Throws Unsupported where a run that can be resumed has an output in memory.
void require_in_files(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options, const FileMap& map) {
  const auto require = [&](SlowArray a, const Tensor& t) {
    if (t.data != nullptr && !map.find(t.data))
      throw Unsupported(
          fmt::format("{} of a run that can be resumed is in memory, which ends with the process: place "
                      "it in a file of the partial run",
                      name_of(a)));
  };
  for (const SlowArray a : outputs_of(plan.problem)) require(a, tensors[a]);
  require(SlowArray::O, options.forward.o);
  require(SlowArray::lse, options.forward.lse);
}

template <class T>
Measured FilesBackend::run_in(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options,
                              Memo& memo) const {
  RunOptions one = options;
  one.threads = 1;
  Stack sizes;
  const Need need = needs<T>(plan, tensors, options, memo, Walk::whole, sizes);
  const Words in_all = need.bytes + buffer_bytes() + inner_bytes<T>(options);
  if (plan.options.cap && in_all > plan.options.cap->most)
    throw MemoryError(fmt::format("{}, and {} for buffers of files; the plan was made for at most {}: plan for these "
                                  "tensors, or with a larger cap",
                                  need.account(), buffer_bytes(), plan.options.cap->most.str()),
                      in_all, plan.options.cap->most);
  const std::unique_ptr<std::byte[]> memory = allocate(need);

  if (options_.partial != nullptr) options_.partial->require(facts_of(plan, options.compute, options_.inner));
  FileMap map = map_;
  FilesReport report;
  std::byte* workspace = nullptr;
  const bool has_workspace = sizes.largest().bytes > 0;
  if (has_workspace) {
    report.workspace_bytes = sizes.bytes().to_index();
    auto file = workspace_file(report.workspace_bytes);
    report.direct = file->direct();
    workspace = map.place(std::move(file), 0, report.workspace_bytes);
  }
  report.direct = (!has_workspace || report.direct) && all_direct(tensors, map);

  if (options_.partial != nullptr) {
    require_in_files(plan, tensors, options, map);
    options_.partial->begin();
  }

  const std::unique_ptr<file::io::Engine> engine = make_engine(options_.engine);
  report.engine = engine->name();
  report.buffer_bytes = buffer_bytes();
  Stack arrays(std::span(workspace, has_workspace ? static_cast<std::size_t>(report.workspace_bytes) : 0));
  Stack fast(std::span(memory.get(), static_cast<std::size_t>(need.bytes.to_index())));
  Scratch<T, FileMemory<T>> scratch;
  std::optional<levels::InnerLevels<T>> inner;
  if (!options_.inner.empty()) {
    inner.emplace(options_.inner, 1, pool_of(options), workers_of_inner(options),
                  kernel::implementations<T>(best_isa()));
    scratch.states.below = &*inner;
  }
  Measured all;
  Checkpoints checkpoints(options_.partial, options_.checkpoint_s);
  const auto execute = [&](const plan::Plan& part, const RowFacts& facts, Resources<T, FileMemory<T>>& with,
                           const Converted& converted, const Reordered&) {
    machine::Resumption resumption = checkpoints.begin_part();
    std::optional<ProgressReport> progress;
    if (options.progress) {
      progress.emplace(options.progress, 1, all.io.total(), plan.io().total());
      with.report = [&](int worker, index_t words) {
        if (resumption.operations > resumption.done) (*progress)(worker, words);  // what was done before goes by
      };
    }
    {
      const auto start = std::chrono::steady_clock::now();
      FileQueue queue(map, *engine, options_.buffers);
      with.slow().front().queue = &queue;
      const Lister lister(queue, with.slow().front(), facts.prepared(), resumption.done);
      const Measured m = run_row_on(part, facts.prepared(), with, [&](machine::Ram<T, FileMemory<T>>& ram) {
        checkpoints.watch(queue, resumption, [&ram] { return ram.fast_memory(); });
        return machine::Resumable(ram, resumption);
      });
      queue.finish();
      if (all.kernels.empty())
        all = m;
      else
        add_part(all, m);
      report.read += queue.traffic().read;
      report.written += queue.traffic().written;
      report.waited_s += queue.traffic().waited;
      report.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (!converted.pairs().empty() && resumption.done != machine::kAllOperations) {
      FileQueue queue(map, *engine, options_.buffers);
      checkpoints.watch(queue);
      report.converted += write_converted<T>(converted, queue);
    }
    all.converted_words += converted.words();
    checkpoints.end_part(resumption);
    if (options.progress) options.progress(all.io.total().to_double() / plan.io().total().to_double());
  };
  lay_out(plan, tensors, one, {need.bytes, Walk::whole}, Room{arrays, fast}, static_cast<ArenaMemo&>(memo), scratch,
          execute);
  all.bytes = in_all;
  if (inner) {
    for (const auto& level : inner->moved()) report.inner_words.push_back(level.words);
    report.inner_s = inner->seconds();
    all.threads = workers_of_inner(options);
  }
  report.disk_s = engine->busy_seconds();
  if (options_.partial != nullptr) {
    report.resumed_operations = checkpoints.left_out();
    report.checkpoints = options_.partial->checkpoints();
    report.kept_bytes = options_.partial->kept_bytes();
    report.fast_bytes = options_.partial->fast_bytes();
  }
  report.reads = engine->reads();
  report.writes = engine->writes();
  if (options_.report) options_.report(report);
  return all;
}

/// What requests take over what words take, for the chosen row.
double cover_of(const RowFacts& facts, const machine::FileArrays& arrays, const machine::FileBuffers& buffers) {
  machine::Cover cover(buffers);
  machine::Listing<machine::Cover> listing(cover, arrays);
  machine::Any any(listing);
  try {
    facts.prepared().run(any);
  } catch (const machine::Cover::Enough&) {
    return cover.ratio();
  } catch (const machine::UnknownNumber&) {
    return cover.ratio();
  }
  return cover.ratio();
}

}  // namespace

double bytes_over_files(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options,
                        const machine::FileBuffers& buffers) {
  return with_compute(options.compute, [&]<class T>(T*) {
    double bytes = 0;
    Stack arrays, fast;
    Scratch<T, FileMemory<T>> scratch;
    ArenaMemo memo;
    RunOptions one = options;
    one.threads = 1;
    lay_out(plan, tensors, one, {physical_memory(), Walk::some}, Room{arrays, fast}, memo, scratch,
            [&](const plan::Plan& part, const RowFacts& facts, Resources<T, FileMemory<T>>& with, const Converted&,
                const Reordered&) {
              bytes += part.row().io.total().to_double() * sizeof(T) * cover_of(facts, with.slow().front(), buffers);
            });
    return bytes;
  });
}

std::unique_ptr<Backend> files_backend(FileMap map, FilesOptions options) {
  return std::make_unique<FilesBackend>(std::move(map), std::move(options));
}

}  // namespace redblue
