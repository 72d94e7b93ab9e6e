#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "calls.hpp"
#include "redblue/files/partial/partial_run.hpp"
#include "redblue/language/error.hpp"
#include "redblue/runtime/files/backend.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"

/// Runs over files that are killed, or meet errors, at any system call: no output, until a run that goes on from there
/// gives all of it, to the same bits.
namespace redblue::test {
namespace {

namespace fs = std::filesystem;
using calls::Trouble;

/// REDBLUE_RESUME_CASES: how many kills, and how many errors, each test is to try in all.
int asked_cases(int usual) {
  const char* const asked = std::getenv("REDBLUE_RESUME_CASES");
  return asked == nullptr ? cases(usual) : std::max(1, std::atoi(asked));
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// REDBLUE_RESUME_DIRECTORY, or memory: a disk takes some milliseconds for each checkpoint.
std::string where() {
  if (const char* const asked = std::getenv("REDBLUE_RESUME_DIRECTORY"); asked != nullptr) return asked;
  return fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string();
}

/// Seconds between checkpoints: some of them fall into runs as short as these.
constexpr double kOften = 5e-4;

/// How a process ended.
struct End {
  enum class Kind : std::uint8_t { finished, refused, killed } kind;
  std::string message;  ///< of the error
  bool met = false;     ///< the trouble
  std::int64_t calls = 0;
};

/// Does this in a process of its own.
End in_child(Trouble trouble, std::int64_t at, const std::function<void()>& work) {
  struct Told {
    char message[2000];
    bool met;
    std::int64_t calls;
  };
  void* const shared = mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& told = *new (shared) Told{};
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    calls::meet(trouble, at);
    try {
      work();
    } catch (const std::exception& e) {
      std::snprintf(told.message, sizeof told.message, "%s", e.what());
      code = dynamic_cast<const Error*>(&e) != nullptr ? 1 : 2;
    }
    told.met = calls::has_met();
    told.calls = calls::count();
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  End end{End::Kind::finished, told.message, told.met, told.calls};
  munmap(shared, sizeof(Told));
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    end.kind = End::Kind::killed;
  } else if (WEXITSTATUS(status) != 0) {
    EXPECT_EQ(WEXITSTATUS(status), 1) << "not an error of redblue: " << end.message;
    end.kind = End::Kind::refused;
  }
  return end;
}

/// A run over files in a directory of its own. The first output has a file, and the others have one together.
class FilesRun {
 public:
  explicit FilesRun(const plan::Plan& plan, DType dtype = DType::f32)
      : plan_(plan), filled_(plan.problem, dtype, Strides::bhsd) {
    std::string name = where() + "/redblue-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    directory_ = name;
    std::ofstream in(input(), std::ios::binary);
    for (const SlowArray a : inputs_of(plan.problem))
      in.write(static_cast<const char*>(filled_.arrays.at(a).tensor().data), bytes_of(a));
    for (const SlowArray a : outputs_of(plan.problem))
      if (filled_.arrays.contains(a)) outputs_of_run_.push_back(a);
    for (std::size_t i = 0; i < std::min<std::size_t>(outputs_of_run_.size(), 2); ++i)
      outputs.push_back(directory_ + "/out" + std::to_string(i));
  }
  ~FilesRun() {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }
  FilesRun(const FilesRun&) = delete;
  FilesRun& operator=(const FilesRun&) = delete;

  std::string input() const { return directory_ + "/in"; }
  std::string partial() const { return file::partial::directory_of(outputs[0]); }
  void clear() const {
    for (const std::string& out : outputs) fs::remove(out);
    fs::remove_all(partial());
  }
  /// Of the outputs that have their names.
  std::vector<std::string> bits() const {
    std::vector<std::string> all;
    all.reserve(outputs.size());
    for (const std::string& out : outputs) all.push_back(fs::exists(out) ? read_all(out) : "");
    return all;
  }

  /// What a process does: begins, or goes on, and finishes.
  void go() {
    file::partial::PartialRun partial(
        {.outputs = outputs, .inputs = {{"all", input()}}, .facts = facts, .resume = resume, .block_bytes = 512});
    if (!partial.complete()) compute(partial);
    partial.finish();
  }

  std::vector<std::string> outputs;
  std::vector<file::partial::Fact> facts{{"M", "4096"}};
  bool resume = true;
  double every_s = kOften;
  file::io::EngineOptions engine{.kind = file::io::EngineKind::threads, .depth = 4};
  FilesReport report;

 private:
  index_t bytes_of(SlowArray a) {
    const Tensor t = filled_.arrays.at(a).tensor();
    return t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3] * static_cast<index_t>(size_of(t.dtype));
  }
  void compute(file::partial::PartialRun& partial) {
    file::io::FileMap map;
    Tensors tensors;
    const auto place = [&](SlowArray a, const std::shared_ptr<const file::io::OpenFile>& file, index_t& offset) {
      const Tensor t = filled_.arrays.at(a).tensor();
      tensors[a] = Tensor(map.place(file, offset, bytes_of(a)), t.dtype, t.shape);
      offset += bytes_of(a);
    };
    const auto in = std::make_shared<const file::io::OpenFile>(input(), file::io::PageCache::used);
    index_t from = 0;
    for (const SlowArray a : inputs_of(plan_.problem)) place(a, in, from);
    index_t first = std::ssize(kHeader), others = first;
    for (const SlowArray a : outputs_of_run_) (a == outputs_of_run_[0] ? first : others) += bytes_of(a);
    std::vector<std::shared_ptr<const file::io::OpenFile>> files{partial.output(0, first, kHeader)};
    if (outputs.size() > 1) files.push_back(partial.output(1, others, kHeader));
    first = others = std::ssize(kHeader);
    for (const SlowArray a : outputs_of_run_) {
      const bool is_first = a == outputs_of_run_[0];
      const auto& out = files[is_first ? 0 : 1];
      index_t& offset = is_first ? first : others;
      if (plan_.problem.accumulate) give(partial, *out, offset, filled_.arrays.at(a).tensor().data, bytes_of(a));
      place(a, out, offset);
    }
    RunOptions options;
    options.compute = std::as_const(tensors)[outputs_of_run_[0]].dtype == DType::f64 ? DType::f64 : DType::f32;
    options.threads = 1;
    FilesOptions over{.buffers = {.request = 4096, .read = 32768, .write = 32768}, .engine = engine};
    over.cache = file::io::PageCache::used;
    over.partial = &partial;
    over.checkpoint_s = every_s;
    over.report = [this](const FilesReport& r) { report = r; };
    const auto backend = files_backend(map, over);
    options.backend = backend.get();
    run(plan_, tensors, options);
  }
  static void give(file::partial::PartialRun& partial, const file::io::OpenFile& out, index_t offset, const void* from,
                   index_t bytes) {
    if (partial.resumed()) return;
    file::partial::write_at(out.cached_descriptor(), out.path(), offset,
                            {static_cast<const std::byte*>(from), static_cast<std::size_t>(bytes)});
    partial.given(out, offset, bytes);
  }

  static constexpr std::string_view kHeader = "a header";

  plan::Plan plan_;
  Filled filled_;
  std::string directory_;
  std::vector<SlowArray> outputs_of_run_;
};

Problem of(Operation op, Problem p) {
  p.op = op;
  return p;
}

/// Plans that differ in how they use slow memory: outputs written once, written again and again, workspace, outputs
/// that are converted at the end, a forward pass before the gradients.
std::vector<plan::Plan> some_plans() {
  std::vector<plan::Plan> plans;
  const Problem p = with_heads({.n_q = 21, .n_k = 26, .d = 6, .d_v = 5}, 1, 2, 2);
  const auto add = [&](const Problem& problem, std::string_view schedule) {
    for (plan::Plan& plan : plans_of(problem, schedule)) plans.push_back(std::move(plan));
  };
  for (const std::string_view name : plan::Registry::built_in().names(Operation::forward)) add(with_lse(p), name);
  for (const std::string_view name : plan::Registry::built_in().names(Operation::backward))
    add(of(Operation::backward, p), name);
  Problem sum = p;
  sum.accumulate = true;
  for (const std::string_view name : {"flash", "key_outer"}) add(with_lse(sum), name);
  Problem q = of(Operation::backward, p);
  q.forward_given = false;
  for (const std::string_view name : plan::Registry::built_in().names(Operation::backward)) add(q, name);
  return plans;
}

/// Which of them comes next, so that neighbours in the list come far apart.
class Turns {
 public:
  const plan::Plan& next() { return plans_[(at_ += 7) % plans_.size()]; }

 private:
  std::vector<plan::Plan> plans_ = some_plans();
  std::size_t at_ = 0;
};

/// The bits of a run that nothing stops, and how many calls it makes: the same with checkpoints and without.
std::vector<std::string> reference_of(FilesRun& run, std::int64_t& calls) {
  const auto bits_of = [&](double every_s) {
    run.clear();
    run.every_s = every_s;
    const End end = in_child(Trouble::none, 0, [&] { run.go(); });
    EXPECT_EQ(end.kind, End::Kind::finished) << end.message;
    EXPECT_FALSE(fs::exists(run.partial()));
    calls = end.calls;
    return run.bits();
  };
  const auto bits = bits_of(1e6);
  EXPECT_TRUE(bits_of(kOften) == bits);
  return bits;
}

/// An output is not there, or right.
void expect_whole(const FilesRun& run, const std::vector<std::string>& bits) {
  const auto found = run.bits();
  for (std::size_t i = 0; i < bits.size(); ++i) EXPECT_TRUE(found[i].empty() || found[i] == bits[i]);
}

constexpr int kPerPlan = 4;

TEST(Resume, AfterAKillAnywhereGivesTheSameBits) {
  Turns plans;
  std::mt19937_64 random(20261130);
  const int in_all = asked_cases(20);
  int kills = 0, resumed = 0;
  while (kills < in_all) {
    const plan::Plan& plan = plans.next();
    SCOPED_TRACE(text_of(plan));
    FilesRun run(plan);
    std::int64_t calls = 0;
    const auto bits = reference_of(run, calls);
    for (int k = 0; k < kPerPlan; ++k) {
      run.clear();
      // Killed, and killed again, after ever more calls, so that it comes to an end.
      for (std::int64_t most = calls;; most *= 2) {
        const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
        SCOPED_TRACE("killed before call " + std::to_string(at));
        const End end = in_child(Trouble::killed, at, [&] { run.go(); });
        ASSERT_NE(end.kind, End::Kind::refused) << end.message;
        if (end.kind == End::Kind::finished) break;
        ++kills;
        expect_whole(run, bits);
        resumed += fs::exists(run.partial() + "/progress.json") ? 1 : 0;
      }
      ASSERT_TRUE(run.bits() == bits);
      EXPECT_FALSE(fs::exists(run.partial()));
    }
  }
  EXPECT_GT(resumed, share_of_cases() > 1 ? 0 : kills / 3);
  std::printf("%d kills, %d of them left something to go on with\n", kills, resumed);
}

TEST(Resume, AfterAKillOfIoUringGivesTheSameBits) {
  Turns plans;
  std::mt19937_64 random(1);
  const int in_all = asked_cases(5);
  for (int kills = 0; kills < in_all; ++kills) {
    const plan::Plan& plan = plans.next();
    SCOPED_TRACE(text_of(plan));
    FilesRun run(plan);
    run.engine.kind = file::io::EngineKind::best;
    std::int64_t calls = 0;
    const auto bits = reference_of(run, calls);
    run.clear();
    const auto at = static_cast<index_t>(random() % 100);
    run.engine.fault = [at](file::io::Request::Kind, index_t number) {
      if (number == at) raise(SIGKILL);
      return file::io::Fault{};
    };
    in_child(Trouble::none, 0, [&] { run.go(); });
    expect_whole(run, bits);
    run.engine.fault = {};
    const End end = in_child(Trouble::none, 0, [&] { run.go(); });
    EXPECT_EQ(end.kind, End::Kind::finished) << end.message;
    EXPECT_TRUE(run.bits() == bits);
  }
}

TEST(Resume, AfterAnErrorAnywhereGivesTheSameBits) {
  Turns plans;
  std::mt19937_64 random(7);
  const int in_all = asked_cases(20);
  int met = 0, refused = 0;
  while (met < in_all) {
    const plan::Plan& plan = plans.next();
    SCOPED_TRACE(text_of(plan));
    FilesRun run(plan);
    std::int64_t calls = 0;
    const auto bits = reference_of(run, calls);
    for (const Trouble trouble : {Trouble::fails, Trouble::disk_full, Trouble::comes_short, Trouble::is_truncated}) {
      run.clear();
      const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(calls));
      SCOPED_TRACE(std::to_string(static_cast<int>(trouble)) + " at call " + std::to_string(at));
      const End end = in_child(trouble, at, [&] { run.go(); });
      ASSERT_NE(end.kind, End::Kind::killed);
      met += end.met ? 1 : 0;
      expect_whole(run, bits);
      ASSERT_TRUE(trouble != Trouble::comes_short || end.kind == End::Kind::finished) << end.message;
      if (end.kind == End::Kind::refused) {
        ++refused;
        EXPECT_TRUE(end.message.find(run.outputs[0]) != std::string::npos ||
                    end.message.find(run.input()) != std::string::npos ||
                    end.message.find(fs::path(run.input()).parent_path().string()) != std::string::npos)
            << end.message;
        const End again = in_child(Trouble::none, 0, [&] { run.go(); });
        ASSERT_EQ(again.kind, End::Kind::finished) << again.message << " after " << end.message;
      }
      ASSERT_TRUE(run.bits() == bits);
      EXPECT_FALSE(fs::exists(run.partial()));
    }
  }
  EXPECT_GT(refused, met / 4);
  std::printf("%d errors, %d of them ended a run\n", met, refused);
}

}  // namespace
}  // namespace redblue::test
