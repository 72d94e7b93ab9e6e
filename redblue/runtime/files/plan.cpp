#include "redblue/runtime/files/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "redblue/language/word_type.hpp"
#include "redblue/levels/on_machine.hpp"
#include "redblue/planner/time.hpp"

namespace redblue {

namespace {

constexpr index_t kKiB = 1 << 10, kMiB = 1 << 20;

/// Tiles of many rows keep kernels busy; smaller ones are for where memory is short.
constexpr std::array<index_t, 3> kMultiples{128, 16, 1};

/// What such a problem writes is most of what it moves: a tile is written while the next is computed.
bool writes_pairs(const Problem& p) { return p.op == Operation::scores || p.op == Operation::weights; }

/// A tile of scores or weights is written in as many pieces as it has rows, unless it takes all keys: tiles of few keys
/// would be written in pieces of some bytes. So these options plan for tiles whose rows take 64 KiB, or the whole row
/// if that is less, with as many queries as their M holds beside them. Returns whether they do now.
bool take_long_rows(const Problem& p, plan::Options& o, index_t word) {
  constexpr index_t kPiece = 64 * kKiB, kFewRows = 16;
  const bool asked =
      o.tiling || o.multiple.query > 1 || o.multiple.key > 1 || (!o.schedule.empty() && o.schedule != "sddmm");
  if (!writes_pairs(p) || asked || !p.patterns.empty() || p.n_k == 0) return false;
  const index_t M = o.M.to_index() / 64 * 63;  // statistics and slopes take few words
  const auto rows_beside = [&](index_t keys) { return std::min(p.n_q, M / (keys + p.d + 2)); };
  index_t keys = ceil_div(p.n_k, ceil_div(p.n_k * word, kPiece));
  while (keys > 1 && rows_beside(keys) < std::min(kFewRows, p.n_q)) keys = ceil_div(keys, 2);
  if (rows_beside(keys) < 1) return false;
  o.schedule = "sddmm";
  o.tiling = plan::Tiling{{"panel", 1}, {"a", rows_beside(keys)}, {"b", keys}};
  return true;
}
constexpr std::string_view kLongRows = "sddmm, with tiles of many keys, so that files get long pieces of rows";

// What is taken for the speed of a machine that `redblue doctor` has not measured: a plain solid-state disk, memory and
// core.
constexpr double kSomeDisk = 1e9, kSomeMemory = 1e10, kSomeCache = 1e11, kSomeFlops = 1e11, kSomeExps = 2e9;
/// The share of a core's cache that a level takes: keys and values pass beside it.
constexpr int kShareOfCache = 2;

/// The machine with such speeds where it lacks them.
Hardware with_plain_speeds(Hardware h) {
  if (h.peaks.empty()) {
    for (MemoryLevel& level : h.levels) level.read_bandwidth = kSomeCache;
    h.levels.back().read_bandwidth = kSomeMemory;
    h.all_cores_bandwidth = 2 * kSomeMemory;
    for (const DType dtype : {DType::f32, DType::f64}) {
      h.peaks.push_back({.isa = Isa::portable, .dtype = dtype, .flops = kSomeFlops / (dtype == DType::f64 ? 2 : 1)});
      h.exp_rates.push_back({.isa = Isa::portable, .dtype = dtype, .elements = kSomeExps});
    }
  }
  if (!h.disk) h.disk.emplace().read_bandwidth = kSomeDisk;
  return h;
}

/// The levels of a run: files, fast memory of this size, and the private cache of each core.
std::vector<levels::Level> levels_of(const Hardware& hardware, index_t fast_bytes) {
  const MemoryLevel& cache = hardware.private_cache();
  return {{.name = "disk"},
          {.name = "memory", .bytes = fast_bytes},
          {.name = cache.name, .bytes = Words(cache.bytes / kShareOfCache)}};
}

/// A search for the plan of one run.
class Search {
 public:
  Search(const Problem& problem, const Tensors& tensors, const file::io::FileMap& map, const RunOptions& run,
         const FilesPlanOptions& options)
      : problem_(problem), tensors_(tensors), map_(map), run_(run), options_(options) {
    if (!options_.hardware) options_.hardware = has_hardware_file() ? this_machine() : describe_hardware();
    planned_.look_ahead = look_ahead_within(options_.memory, options_.hardware->disk);
    planned_.measured = !options_.hardware->peaks.empty();
    options_.hardware = with_plain_speeds(std::move(*options_.hardware));
    if (options_.outer.schedule.empty()) options_.outer.quadratic_workspace = false;
    word_ = static_cast<index_t>(size_of(word_of(run.compute)));
    machine::FileBuffers& buffers = planned_.look_ahead.buffers;
    if (writes_pairs(problem_)) buffers.write = std::max(buffers.write, (options_.memory - buffers.read) / 2);
    room_ = (options_.memory - buffers.read - buffers.write) / word_;
  }

  FilesPlan plan() && {
    if (nested()) return std::move(planned_);
    if (run_.threads > 1)
      throw InvalidProblem(
          fmt::format("threads = {} over files: threads share the kernels of a plan whose fast memory is larger than a "
                      "cache and whose kernels divide, and here there is none: leave threads out, or give more memory",
                      run_.threads));
    on_whole_tiles();
    return std::move(planned_);
  }

 private:
  levels::NestOptions on_machine(index_t words, int threads) const {
    return levels::on_machine(levels_of(*options_.hardware, words * word_), *options_.hardware, best_isa(),
                              run_.compute, threads);
  }
  Words own_M() const { return options_.outer.M; }

  /// The nest with the caches of this machine. False where there is none.
  bool nested() {
    planned_.threads = run_.threads;
    const int threads = run_.threads > 0 ? run_.threads : (run_.pool == nullptr ? default_pool() : *run_.pool).size();
    // Buffers beside fast memory take more or less of the limit, as schedules and tiles have it.
    for (index_t percent = 100; percent >= 30; percent = own_M() > 0 ? 0 : percent - 10) {
      levels::NestOptions o = on_machine(own_M() > 0 ? own_M().to_index() : room_ / 100 * percent, threads);
      if (o.levels[1].bytes <= o.levels[2].bytes) return false;
      o.outer = options_.outer;
      o.grain = levels::grain_for_kernels(o.word, threads);
      o.by_time = true;
      o.outer.M = o.levels[1].bytes / word_;
      const bool long_rows = take_long_rows(problem_, o.outer, word_);
      try {
        planned_.nest = levels::make_nest(problem_, o);
        if (long_rows) planned_.nest.outer.reason = kLongRows;
        planned_.bytes = bytes_of(planned_.nest.outer);
        if (planned_.bytes <= options_.memory) return true;
      } catch (const CapacityError&) {
        continue;
      } catch (const Unsupported&) {  // a kernel that no level below can carry out
        return false;
      }
    }
    return false;
  }
  Words bytes_of(const plan::Plan& plan) const {
    const auto backend = files_backend(map_, planned_.backend_options());
    RunOptions run = run_;
    run.backend = backend.get();
    return run_bytes(plan, tensors_, run);
  }

  struct Candidate {
    std::optional<plan::Plan> plan;
    double bytes = std::numeric_limits<double>::infinity();
  };

  /// The plan that moves the fewest bytes over files, for one thread.
  void on_whole_tiles() {
    planned_.threads = 1;
    planned_.nest = {};
    const auto backend = files_backend(map_, planned_.backend_options());
    RunOptions run = run_;
    run.threads = 1;
    run.backend = backend.get();
    const plan::Cap cap = memory_cap(options_.memory, tensors_, run);
    // Kernels take large multiples faster: the largest that cost few bytes more.
    const auto& own = options_.outer.multiple;
    const bool own_multiples = own.query > 1 || own.key > 1 || own.feature > 1;
    std::vector<Candidate> candidates;
    for (const index_t multiple : own_multiples ? std::span(kMultiples).last(1) : std::span(kMultiples))
      if (Candidate c = of_fewest_bytes(multiple, cap, run); c.plan) candidates.push_back(std::move(c));
    if (candidates.empty() && none_) std::rethrow_exception(none_);
    if (candidates.empty())
      throw MemoryError(fmt::format("memory of {} bytes is too small for a run over files: the smallest takes {}",
                                    options_.memory, smallest_.str()),
                        smallest_, options_.memory);
    const double least = std::ranges::min_element(candidates, {}, &Candidate::bytes)->bytes;
    Candidate& best = *std::ranges::find_if(candidates, [&](const Candidate& c) { return c.bytes <= 1.1 * least; });
    best.plan->options.cap = cap;
    planned_.bytes = run_bytes(*best.plan, tensors_, run);
    planned_.nest = with_times(std::move(*best.plan), best.bytes);
  }

  /// The best plan with tiles of such multiples that fits.
  Candidate of_fewest_bytes(index_t multiple, const plan::Cap& cap, const RunOptions& run) {
    Candidate best;
    const bool own_multiples = multiple == 1;  // those of the options
    for (const index_t percent : {100, 85, 70, 55, 40}) {
      plan::Options o = options_.outer;
      o.M = own_M() > 0 ? own_M() : Words(room_ / 100 * percent);
      const bool long_rows = take_long_rows(problem_, o, word_);
      if (!own_multiples && !o.tiling) o.multiple.query = o.multiple.key = multiple;
      try {
        plan::Plan plan = plan::make_plan(problem_, o);
        if (long_rows) plan.reason = kLongRows;
        consider(std::move(plan), cap, run, best);
      } catch (const CapacityError&) {
        none_ = std::current_exception();
      }
      if (own_M() > 0) break;
    }
    return best;
  }
  void consider(plan::Plan plan, const plan::Cap& cap, const RunOptions& run, Candidate& best) {
    const std::size_t of_words = plan.chosen;
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      const plan::Row& row = plan.rows[i];
      if (row.io.total().to_double() * static_cast<double>(word_) >= best.bytes) break;  // those of more words follow
      if (!plan.may_choose(row)) continue;
      plan.chosen = i;
      if (const Words takes = cap.bytes_of(plan); takes > cap.most) {
        smallest_ = smallest_ == 0 ? takes : std::min(smallest_, takes);
        continue;
      }
      const double bytes = bytes_over_files(plan, tensors_, run, planned_.look_ahead.buffers);
      if (bytes >= best.bytes) continue;
      best = {plan, bytes};
      if (i != of_words)
        best.plan->reason = fmt::format(
            "of the schedules that fit the memory, {} moves the fewest bytes over files, whose pages, and what lies "
            "between the rows of columns, move as a whole",
            row.schedule);
    }
  }
  /// The plan as a nest of files and fast memory.
  levels::Nest with_times(plan::Plan plan, double bytes) const {
    const levels::NestOptions o = on_machine(plan.options.M.to_index(), 1);
    levels::Nest nest{.outer = std::move(plan), .levels = {o.levels[0], o.levels[1]}};
    levels::Border b{.above = o.levels[0].name, .below = o.levels[1].name, .M = nest.outer.options.M};
    b.held = nest.outer.footprint();
    b.io = nest.outer.io();
    b.bytes = static_cast<index_t>(bytes);
    b.bound = nest.outer.bound;
    b.ratio = nest.outer.row().ratio;
    if (o.levels[1].bandwidth > 0) b.seconds = bytes / o.levels[1].bandwidth;
    if (o.macs_per_second > 0) nest.compute_seconds = nest.outer.flops().to_double() / 2 / o.macs_per_second;
    if (b.seconds && nest.compute_seconds) nest.seconds = std::max(*b.seconds, *nest.compute_seconds);
    nest.borders.push_back(std::move(b));
    return nest;
  }

  const Problem& problem_;
  const Tensors& tensors_;
  const file::io::FileMap& map_;
  const RunOptions& run_;
  FilesPlanOptions options_;
  FilesPlan planned_;
  index_t word_ = 4, room_ = 0;  ///< bytes of a word, words beside the buffers
  Words smallest_ = 0;           ///< bytes of plans that do not fit
  std::exception_ptr none_;      ///< why there is no plan
};

}  // namespace

LookAhead look_ahead_within(index_t memory, const std::optional<Disk>& disk) {
  constexpr index_t kUnit = 64 * kKiB, kLeastForDisk = 256 * kKiB;
  if (memory < kLeastFilesMemory)
    throw InvalidProblem(fmt::format(
        "memory of {} bytes: a run over files takes {} for requests alone; give {} or more, or run in memory", memory,
        kLeastFilesMemory / 2, kLeastFilesMemory));
  LookAhead a;
  const bool measured = disk && disk->request > 0 && disk->depth > 0;
  const index_t wanted = measured ? std::max(disk->request, kLeastForDisk) : kMiB;
  machine::FileBuffers& b = a.buffers;
  b.request = std::clamp(memory / 64 / kUnit * kUnit, kUnit, wanted);
  b.read = std::clamp<index_t>(memory / 8, 4 * b.request, 33 * kMiB);
  b.write = std::clamp<index_t>(memory / 32, 4 * b.request, 8 * kMiB);
  if (!measured) return a;
  a.measured = true;
  const index_t reads = ceil_div(disk->request * disk->depth, b.request);
  a.depth = static_cast<int>(std::clamp<index_t>(reads, 1, b.read / b.request) + b.write / b.request);
  return a;
}

FilesOptions FilesPlan::backend_options(FilesOptions others) const {
  others.inner = nest.inner;
  others.buffers = look_ahead.buffers;
  others.engine.depth = look_ahead.depth;
  return others;
}

FilesPlan plan_over_files(const Problem& problem, const Tensors& tensors, const file::io::FileMap& map,
                          const RunOptions& run, const FilesPlanOptions& options) {
  if (options.outer.cap)
    throw InvalidProblem(fmt::format(
        "max_workspace = {} for a run over files: memory = {} is the most that it takes beside inputs and outputs, "
        "buffers of files included; leave max_workspace out, and give the smaller of both as memory",
        options.outer.cap->most.str(), options.memory));
  return Search(problem, tensors, map, run, options).plan();
}

}  // namespace redblue
