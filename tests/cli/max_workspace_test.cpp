#include "cli/cli.hpp"
#include "redblue/planner/planner.hpp"
#include "support/schedules.hpp"

/// --max-workspace, held against a limit on the address space of the process.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

/// A number of threads and a limit on address space. (A separate heap for each thread would take address space, too.)
std::string limit(int threads, index_t kib) {
  return "export MALLOC_ARENA_MAX=1 REDBLUE_THREADS=" + std::to_string(threads) + "; ulimit -v " + std::to_string(kib) +
         ";";
}
std::string no_limit(int threads) { return "export REDBLUE_THREADS=" + std::to_string(threads) + ";"; }

/// A run of 2 heads: what it reads and writes, in bytes, and how to ask for it.
struct Job {
  Workplace w;
  Args args;
  index_t tensors = 0;  ///< bytes of inputs and outputs

  Job(Operation op, std::string_view schedule, index_t n, index_t d) {
    args = {"run", "--op", std::string(name_of(op)), "--schedule", std::string(schedule), "--M", "1048576"};
    const auto file = [&](const std::string& name, bool input) {
      if (input) w.zeros(name + ".npy", {2, n, d});
      args = args + Args{"--" + name, name + ".npy"};
      tensors += 2 * n * d * 4;
    };
    for (const char* name : {"q", "k", "v"}) file(name, true);
    if (op == Operation::backward) {
      file("do", true);
      for (const char* name : {"dq", "dk", "dv"}) file(name, false);
    } else {
      file("o", false);
    }
  }
};

/// Address space, in KiB, that a run needs whatever its sizes: the program, its libraries, its stacks.
index_t baseline(int threads) {
  const Job tiny(Operation::forward, "flash", 3, 1);
  const Args args = tiny.args + Args{"--threads", std::to_string(threads)};
  index_t too_small = 0, enough = 1 << 20;
  while (enough - too_small > 16) {
    const index_t middle = (too_small + enough) / 2;
    (tiny.w.run(args, limit(threads, middle)).exit_code == 0 ? enough : too_small) = middle;
  }
  return enough;
}

index_t kib(index_t bytes) { return ceil_div(bytes, 1024); }

TEST(Cli, MaxWorkspaceIsKeptByEverySchedule) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than any limit here";
  // malloc and the kernel round what they hand out; a file is read and written through some buffers.
  constexpr index_t kRounding = 512;
  for (const int threads : {1, 2}) {
    const index_t constant = baseline(threads);
    for (const Operation op : {Operation::forward, Operation::backward})
      for (int number = 0; const std::string_view schedule : softmax_schedules(op)) {
        if (threads == 2 && ++number % 4 != 1) continue;  // a second thread has the same memory, once more
        SCOPED_TRACE(testing::Message() << schedule << ", " << threads << " threads");
        const Job job(op, schedule, 800, 512);
        const Args args = job.args + Args{"--threads", std::to_string(threads), "--json"};
        const Finished free = job.w.run(args, no_limit(threads));
        ASSERT_EQ(free.exit_code, 0) << free.err;
        const auto bytes = free.json()["workspace_bytes"].get<index_t>();
        ASSERT_GT(kib(bytes), 4 * kRounding) << "a run that took twice as much would not show";
        const Args capped = args + Args{"--max-workspace", std::to_string(bytes)};
        const index_t all = constant + kRounding + kib(job.tensors) + kib(bytes);

        const Finished kept = job.w.run(capped, limit(threads, all));
        EXPECT_EQ(kept.exit_code, 0) << kept.err;
        EXPECT_EQ(kept.json()["workspace_bytes"], bytes);

        // The limit is what makes the difference: where it leaves room for half, memory cannot be had.
        const Finished half = job.w.run(capped, limit(threads, all - kib(bytes / 2)));
        EXPECT_EQ(half.exit_code, 2);
        EXPECT_THAT(half.err, AnyOf(HasSubstr("bytes beside inputs and outputs"), HasSubstr("cannot start thread 2")));

        const Finished refused = job.w.run(args + "--max-workspace 1KiB"_args, no_limit(threads));
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_THAT(refused.err, AllOf(HasSubstr(std::string(schedule) + ": takes "), HasSubstr("the cap of 1024")));
        const Finished one_less =
            job.w.run(args + Args{"--max-workspace", std::to_string(bytes - 1)}, no_limit(threads));
        if (one_less.exit_code == 0)  // with another forward pass before it
          EXPECT_LT(one_less.json()["workspace_bytes"], bytes);
        else
          EXPECT_THAT(one_less.err, HasSubstr(": takes " + std::to_string(bytes) + " bytes"));
      }
  }
}

/// Where scores in slow memory move the fewest words, a cap makes the planner take a schedule without them.
TEST(Cli, MaxWorkspaceMakesThePlannerTakeAnother) {
  const Args plan = "plan --n 4096 --d 256 --M 4096 --json"_args;
  const Json free = Workplace().run(plan).json();
  const auto chosen = [](const Json& j) { return j["plans"][j["chosen"].get<std::size_t>()]; };
  ASSERT_GT(chosen(free)["workspace"].get<index_t>(), 1 << 20);
  const Json capped = Workplace().run(plan + "--max-workspace 1MiB"_args).json();
  EXPECT_EQ(chosen(capped)["workspace"].get<index_t>(), 0);
  EXPECT_EQ(capped["options"]["max_workspace"], 1 << 20);
  bool found = false;
  for (const Json& r : capped["refused"])
    if (r["schedule"] == chosen(free)["schedule"]) {
      found = true;
      EXPECT_THAT(r["why"].get<std::string>(), HasSubstr("more than the cap of 1048576"));
      EXPECT_GT(r["smallest_max_workspace"].get<index_t>(), index_t{4096} * 4096 * 4);
    }
  EXPECT_TRUE(found);
}

TEST(Cli, MaxWorkspaceThatNothingKeepsNamesTheSmallest) {
  const Args plan = "plan --n 512 --d 64 --M 16384"_args;
  const Finished f = Workplace().run(plan + "--max-workspace 1KiB"_args);
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, AllOf(HasSubstr("a cap of 1024 bytes is too small"), HasSubstr("the smallest that works")));
  const std::string after = "the smallest that works for M = 16384 words is ";
  const std::string least = f.err.substr(f.err.find(after) + after.size());
  EXPECT_EQ(Workplace().run(plan + Args{"--max-workspace", least.substr(0, least.find(','))}).exit_code, 0);

  for (const char* nonsense : {"0", "-5", "many", "1 MiB", "5PiB"}) {
    const Finished wrong = Workplace().run(plan + Args{"--max-workspace=" + std::string(nonsense)});
    EXPECT_EQ(wrong.exit_code, 2) << nonsense;
    EXPECT_THAT(wrong.err, HasSubstr("--max-workspace " + std::string(nonsense))) << nonsense;
  }
}

}  // namespace
}  // namespace redblue::test
