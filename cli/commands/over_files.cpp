#include "commands/over_files.hpp"

#include <fmt/format.h>

#include <fstream>
#include <utility>
#include <vector>

#include "commands/partial_options.hpp"
#include "files/open_archive.hpp"
#include "redblue/runtime/files/checkpoints.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {

namespace {

constexpr index_t kKiB = 1 << 10, kMiB = 1 << 20;

/// What the system says that this process has read and written, and how much memory it has held.
struct OfProcess {
  index_t read_bytes = 0, write_bytes = 0, peak_rss = 0;
  std::optional<index_t> cgroup;

  OfProcess() {
    std::ifstream io("/proc/self/io");
    for (std::string name; io >> name;) {
      index_t value = 0;
      io >> value;
      if (name == "read_bytes:") read_bytes = value;
      if (name == "write_bytes:") write_bytes = value;
    }
    std::ifstream status("/proc/self/status");  // getrusage counts what the process held that started this one
    for (std::string name; status >> name;)
      if (name == "VmHWM:" && status >> peak_rss) peak_rss *= kKiB;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string::npos || second + 2 >= line.size()) continue;  // the group of all processes
      const std::string kind = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
      const std::string file = kind.empty() ? "/sys/fs/cgroup" + path + "/memory.peak"
                                            : "/sys/fs/cgroup/memory" + path + "/memory.max_usage_in_bytes";
      if (index_t value = 0; (kind.empty() || kind == "memory") && std::ifstream(file) >> value) cgroup = value;
    }
  }
};

Json or_null(const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); }

/// What moves at each border, as it was planned and as it was measured. The cores that move words at inner borders also
/// multiply: calls_to_json() has the seconds of both together.
Json levels_to_json(const levels::Nest& nest, const FilesReport& r) {
  Json list = Json::array();
  for (std::size_t i = 0; i < nest.borders.size(); ++i) {
    const levels::Border& b = nest.borders[i];
    Json measured;
    if (i == 0)
      measured = {{"bytes", r.read + r.written},
                  {"bytes_moved", r.reads.moved + r.writes.moved},
                  {"seconds", r.disk_s},
                  {"waited_seconds", r.waited_s}};
    else
      measured = {{"words", to_json(r.inner_words[i - 1])}};
    list.push_back({{"from", b.above},
                    {"into", b.below},
                    {"predicted",
                     {{"words", to_json(b.io.total())}, {"bytes", to_json(b.bytes)}, {"seconds", or_null(b.seconds)}}},
                    {"measured", measured}});
  }
  return list;
}

/// Seconds of kernels, with what moves at inner borders meanwhile.
Json calls_to_json(const levels::Nest& nest, const FilesReport& r) {
  std::optional<double> predicted = nest.compute_seconds;
  for (std::size_t i = 1; i < nest.borders.size(); ++i)
    if (predicted && nest.borders[i].seconds) *predicted += *nest.borders[i].seconds;
  return {{"predicted_arithmetic_seconds", or_null(nest.compute_seconds)},
          {"predicted_seconds", or_null(predicted)},
          {"measured_seconds", r.inner_words.empty() ? Json(nullptr) : Json(r.inner_s)}};
}

std::string mib(double bytes) { return fmt::format("{:.1f} MiB", bytes / static_cast<double>(kMiB)); }
std::string mib(index_t bytes) { return mib(static_cast<double>(bytes)); }

}  // namespace

void ResumeOptions::add_to(const Command& command) {
  command.flag(
      "--resume", resume,
      "with --memory: go on with a run that was stopped, from its last checkpoint, if there is one; the result "
      "is the same to the last bit");
  command
      .option("--checkpoint-seconds", checkpoint_s,
              "with --memory: seconds between checkpoints (default 30), and more where they would take more than a "
              "twentieth of the time; 0, for tests: one before every operation of the schedule, each of which waits "
              "for the disk, so that small runs take minutes")
      .type_name("SECONDS");
}

void ResumeOptions::require_none() const {
  if (resume) throw InvalidProblem("--resume without --memory: a run in memory leaves nothing to go on with");
  if (checkpoint_s) throw InvalidProblem("--checkpoint-seconds without --memory: a run in memory has no checkpoints");
}

OverFiles::OverFiles(const MemoryOptions& memory, const ResumeOptions& resume) : resume_(resume), M_(memory.M) {
  if (!memory.memory) {
    resume.require_none();
    return;
  }
  files_.checkpoint_s = resume.checkpoint_s.value_or(files_.checkpoint_s);
  if (!(files_.checkpoint_s >= 0 && files_.checkpoint_s <= 1e9))
    throw InvalidProblem(fmt::format("--checkpoint-seconds {}: give 0 to 1e9", files_.checkpoint_s));
  limit_ = parse_bytes("--memory", *memory.memory).to_index();
  files_.report = [this](const FilesReport& r) { report_ = r; };
  if (*limit_ < kLeastFilesMemory)
    throw InvalidProblem(
        fmt::format("--memory {}: a run over files takes {} bytes for requests alone; give {} or more, "
                    "or --M WORDS for a run in memory",
                    *memory.memory, kLeastFilesMemory / 2, kLeastFilesMemory));
}

void OverFiles::require_heeded(const Problem& kind, const PlannerOptions& planner, const ObjectiveOptions& objective,
                               const FileOptions& files, bool verify, bool certificate) const {
  if (!asked()) return;
  const auto refuse = [](bool given, std::string_view option, std::string_view why) {
    if (given) throw InvalidProblem(fmt::format("{} with --memory: {}", option, why));
  };
  constexpr std::string_view kAll = "it holds all arrays in memory; leave one of them out";
  refuse(verify, "--verify", kAll);
  refuse(kind.accumulate, "--partial", kAll);
  refuse(kind.op == Operation::merge, "--op merge", kAll);
  refuse(certificate, "--tolerance, or --certificate,", kAll);
  refuse(planner.max_workspace.has_value(), "--max-workspace",
         "--memory is the most that such a run takes beside inputs and outputs, buffers of files included; leave "
         "--max-workspace out, and give the smaller of both as --memory");
  refuse(objective.objective.has_value(), "--objective",
         "such a run is planned for its files and this machine's caches; leave it out");
  refuse(objective.machine.has_value(), "--machine",
         "such a run is planned for the machine that it runs on; leave it out");
  refuse(files.input && is_npz(*files.input), "an input in .npz",
         "it is unpacked into memory; write safetensors or .npy, which are read where they lie");
  refuse(files.output && is_npz(*files.output), "an output in .npz",
         "it is packed from memory; name a safetensors file, or .npy files, which are written where they lie");
}

file::partial::PartialRun* OverFiles::begin(const FileOptions& files, const LoadedInputs& loaded, const Problem& p,
                                            const PatternOptions& pattern) {
  if (!asked()) return nullptr;
  file::partial::Options options = partial_options(files, loaded, p, pattern);
  options.resume = resume_.resume;
  partial_ = std::make_unique<file::partial::PartialRun>(std::move(options));
  files_.partial = partial_.get();
  return partial_.get();
}

plan::Plan OverFiles::plan(const Problem& p, const plan::Options& planner, const Tensors& tensors,
                           RunOptions& options) {
  FilesPlanOptions wanted{.memory = *limit_, .outer = planner};
  if (M_) wanted.outer.M = *M_;
  planned_ = plan_over_files(p, tensors, map_, options, wanted);
  backend_ = files_backend(map_, planned_.backend_options(files_));
  options.backend = backend_.get();
  options.threads = planned_.threads;
  return planned_.nest.outer;
}

bool OverFiles::were_computed(const plan::Plan& plan, const RunOptions& options) {
  if (partial_ == nullptr || !partial_->complete()) return false;
  partial_->require(facts_of(plan, options.compute, planned_.nest.inner));
  partial_->finish();
  return true;
}

Measured OverFiles::run(const plan::Plan& plan, const Tensors& tensors, const RunOptions& options) const {
  try {
    return redblue::run(plan, tensors, options);
  } catch (const IoError& e) {
    if (e.errno_value != 0)
      note(
          fmt::format("'{}' keeps the run up to its last checkpoint: when the cause of this error is gone, --resume "
                      "goes on from there",
                      partial_->directory()));
    throw;
  }
}

void OverFiles::add_to(Json& j, double seconds) const {
  if (!asked()) return;
  const OfProcess process;
  const FilesReport& r = report_;
  const auto traffic = [](const file::io::Traffic& t) {
    return Json{{"asked", t.asked}, {"moved", t.moved}, {"transfers", t.transfers}};
  };
  Json inner = Json::array();
  for (const Words words : r.inner_words) inner.push_back(to_json(words));
  j["files"] = {{"engine", r.engine},
                {"direct", r.direct},
                {"limit", *limit_},
                {"beside_limit", kBeside},
                {"memory", to_json(planned_.bytes)},
                {"buffers", r.buffer_bytes},
                {"workspace_on_disk", r.workspace_bytes},
                {"word_bytes_read", r.read},
                {"word_bytes_written", r.written},
                {"converted_bytes", r.converted},
                {"reads", traffic(r.reads)},
                {"writes", traffic(r.writes)},
                {"waited_seconds", r.waited_s},
                {"inner_words", inner},
                {"levels", levels_to_json(planned_.nest, r)},
                {"calls", calls_to_json(planned_.nest, r)},
                {"predicted_seconds", or_null(planned_.nest.seconds)},
                {"measured_seconds", r.seconds},
                {"rates_measured", planned_.measured},
                {"look_ahead",
                 {{"request", planned_.look_ahead.buffers.request},
                  {"depth", planned_.look_ahead.depth},
                  {"read", planned_.look_ahead.buffers.read},
                  {"write", planned_.look_ahead.buffers.write},
                  {"disk_measured", planned_.look_ahead.measured}}},
                {"resumed", partial_->resumed()},
                {"operations_done_before", r.resumed_operations},
                {"checkpoints", r.checkpoints},
                {"kept_bytes", r.kept_bytes},
                {"fast_memory_bytes", r.fast_bytes},
                {"bytes_per_second", static_cast<double>(r.reads.moved + r.writes.moved) / seconds},
                {"process",
                 {{"read_bytes", process.read_bytes},
                  {"write_bytes", process.write_bytes},
                  {"peak_rss", process.peak_rss},
                  {"cgroup_peak", process.cgroup ? Json(*process.cgroup) : Json(nullptr)}}}};
}

void OverFiles::print(double seconds) const {
  if (!asked()) return;
  const OfProcess process;
  const FilesReport& r = report_;
  fmt::print("{:<14} {:>20} by {}, {}\n", "files", mib(r.read + r.written), r.engine,
             r.direct ? "direct" : "through the page cache, whose pages are given back");
  const auto line = [](const char* what, index_t words, const file::io::Traffic& t) {
    fmt::print("{:<14} {:>20} bytes of words, {} asked of the kernel ({:+.2f} %) in {} transfers\n", what, words,
               t.moved, words == 0 ? 0.0 : 100.0 * (static_cast<double>(t.moved) / static_cast<double>(words) - 1),
               t.transfers);
  };
  line("  read", r.read, r.reads);
  line("  written", r.written, r.writes);
  if (r.converted > 0) fmt::print("  {} bytes of outputs moved once more, out of the compute type\n", r.converted);
  if (partial_->resumed())
    fmt::print("{:<14} {:>20} operations of the run were done before; files moved what the others need\n", "resumed",
               r.resumed_operations);
  fmt::print("{:<14} {:>20} for --resume, with {} bytes of fast memory and {} that were written over\n", "checkpoints",
             r.checkpoints, r.fast_bytes, r.kept_bytes);
  fmt::print("{:<14} {:>20.1f} MB/s; kernels waited {:.3g} s of {:.3g}\n", "rate",
             static_cast<double>(r.reads.moved + r.writes.moved) / seconds * 1e-6, r.waited_s, seconds);
  const LookAhead& ahead = planned_.look_ahead;
  fmt::print("{:<14} {:>20} a request, {} under way, as {}\n", "look-ahead", mib(ahead.buffers.request), ahead.depth,
             ahead.measured ? "the measured disk needs" : "no disk was measured: redblue doctor --disk DIR");
  const levels::Nest& nest = planned_.nest;
  if (nest.seconds)
    fmt::print(
        "{:<14} {:>20} s, {:.3g} of it files beside the rest; measured {:.3g}, {:.3g} with files under way{}{}\n",
        "predicted", fmt::format("{:.3g}", *nest.seconds), *nest.borders.front().seconds, r.seconds, r.disk_s,
        r.inner_words.empty() ? "" : fmt::format(", {:.3g} in kernels", r.inner_s),
        planned_.measured ? "" : " (this machine was not measured: redblue doctor)");
  if (r.inner_words.empty())
    fmt::print("{:<14} {:>20} implementations run kernels on whole tiles, on one thread\n", "cache", "no level:");
  for (const Words words : r.inner_words)
    fmt::print("{:<14} {:>20} words between fast memory and caches\n", "cache", words.str());
  fmt::print("{:<14} {:>20} of {}, {} of it buffers of files; workspace on disk {}\n", "memory",
             mib(planned_.bytes.to_double()), mib(*limit_), mib(r.buffer_bytes), mib(r.workspace_bytes));
  fmt::print("{:<14} {:>20} peak of the process; {} read and {} written by /proc/self/io{}\n", "system",
             mib(process.peak_rss), mib(process.read_bytes), mib(process.write_bytes),
             process.cgroup ? fmt::format("; {} at most in its cgroup", mib(*process.cgroup)) : std::string());
}

}  // namespace redblue::cli
