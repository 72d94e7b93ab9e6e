#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "redblue/runtime/files/plan.hpp"
#include "runtime/in_file.hpp"
#include "runtime/problems.hpp"
#include "support/paths.hpp"

/// Plans for runs over files, and runs of them.
namespace redblue::test {
namespace {

constexpr index_t kMiB = 1 << 20;

/// A machine whose cores have little cache, so that small problems have levels.
Hardware small_caches() {
  Hardware h = load_hardware(in_sources("/tests/data/hardware.json"));
  h.levels.erase(h.levels.begin());
  h.levels.front().bytes = 32 << 10;
  return h;
}
Disk disk_with_knee(index_t request, int depth) {
  Disk d;
  d.read_bandwidth = 2e9;
  d.request = request;
  d.depth = depth;
  return d;
}

struct Ran {
  Measured measured;
  FilesReport report;
};
Ran run_over_files(const FilesPlan& plan, Filled& filled, const file::io::FileMap& map) {
  Ran ran;
  FilesOptions files;
  files.report = [&](const FilesReport& r) { ran.report = r; };
  files.workspace_directory = quick_directory();
  const auto backend = files_backend(map, plan.backend_options(files));
  RunOptions options;
  options.threads = plan.threads;
  options.backend = backend.get();
  ran.measured = run(plan.nest.outer, filled.tensors(), options);
  return ran;
}

TEST(PlanOverFiles, HasALevelForCachesAndMovesWhatItSays) {
  const Problem p = with_lse({.n_q = 700, .n_k = 600, .d = 32, .d_v = 24});
  Filled filled(p, DType::f32, Strides::bhsd), in_memory(p, DType::f32, Strides::bhsd);
  const InFile in_file(filled, file::io::PageCache::bypassed_if_possible);
  RunOptions options;
  options.threads = 2;
  plan::Options outer;
  outer.M = 16384;
  Hardware hardware = small_caches();
  hardware.disk = disk_with_knee(512 << 10, 4);
  const FilesPlan plan = plan_over_files(p, filled.tensors(), in_file.map, options,
                                         {.memory = 2 * kMiB, .outer = outer, .hardware = hardware});
  ASSERT_EQ(plan.nest.inner.size(), 1U);
  ASSERT_EQ(plan.nest.borders.size(), 2U);
  EXPECT_EQ(plan.threads, 2);
  EXPECT_LE(plan.bytes, Words(2 * kMiB));
  EXPECT_EQ(plan.nest.outer.options.M, Words(16384));
  EXPECT_TRUE(plan.measured);
  EXPECT_TRUE(plan.look_ahead.measured);
  EXPECT_DOUBLE_EQ(*plan.nest.borders[0].seconds, plan.nest.borders[0].bytes.to_double() / 2e9);
  EXPECT_DOUBLE_EQ(*plan.nest.seconds,
                   std::max(*plan.nest.borders[0].seconds, *plan.nest.borders[1].seconds + *plan.nest.compute_seconds));
  const Ran ran = run_over_files(plan, filled, in_file.map);
  EXPECT_EQ(ran.measured.io, plan.nest.borders[0].io);
  EXPECT_EQ(Words(ran.report.read + ran.report.written), 4 * plan.nest.borders[0].io.total());
  ASSERT_EQ(ran.report.inner_words.size(), 1U);
  EXPECT_EQ(ran.report.inner_words[0], plan.nest.borders[1].io.total());
  EXPECT_EQ(ran.measured.bytes, plan.bytes);
  EXPECT_EQ(ran.report.buffer_bytes, plan.look_ahead.buffers.read + plan.look_ahead.buffers.write);
  // Seconds are parts of each other, whatever the machine.
  EXPECT_GT(ran.report.inner_s, 0);
  EXPECT_GT(ran.report.disk_s, 0);
  EXPECT_LE(ran.report.inner_s + ran.report.waited_s, ran.report.seconds);
  in_file.read_back(filled);
  options.threads = 1;
  run(plan::make_plan(p, {.M = 16384}), in_memory.tensors(), options);
  const std::vector<double> there = filled.arrays.at(SlowArray::O).get(),
                            here = in_memory.arrays.at(SlowArray::O).get();
  for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(there[i], here[i], 1e-5);
}

TEST(PlanOverFiles, RunsImplementationsOnTilesThatACacheHolds) {
  const Problem p = with_lse({.n_q = 90, .n_k = 80, .d = 8, .d_v = 8});
  Filled filled(p, DType::f32, Strides::bhsd);
  const InFile in_file(filled, file::io::PageCache::used);
  plan::Options outer;
  outer.M = 2000;
  FilesPlanOptions wanted{.memory = 2 * kMiB, .outer = outer, .hardware = small_caches()};
  const FilesPlan plan = plan_over_files(p, filled.tensors(), in_file.map, {}, wanted);
  EXPECT_TRUE(plan.nest.inner.empty());
  EXPECT_EQ(plan.threads, 1);
  EXPECT_FALSE(plan.look_ahead.measured);
  ASSERT_EQ(plan.nest.borders.size(), 1U);
  EXPECT_EQ(plan.nest.borders[0].io, plan.nest.outer.io());
  EXPECT_GE(plan.nest.borders[0].bytes, 4 * plan.nest.outer.io().total());
  EXPECT_TRUE(plan.nest.seconds);
  const Ran ran = run_over_files(plan, filled, in_file.map);
  EXPECT_EQ(ran.measured.io, plan.nest.outer.io());
  EXPECT_TRUE(ran.report.inner_words.empty());
  EXPECT_LE(ran.measured.bytes, Words(2 * kMiB));
  const auto refusal = [&](int threads, index_t memory) -> std::string {
    RunOptions options;
    options.threads = threads;
    wanted.memory = memory;
    try {
      plan_over_files(p, filled.tensors(), in_file.map, options, wanted);
    } catch (const InvalidProblem& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(2, 2 * kMiB), testing::HasSubstr("threads = 2 over files"));
  EXPECT_THAT(refusal(0, kMiB / 2), testing::HasSubstr("memory of 524288 bytes"));
  wanted.outer.cap = plan::Cap{kMiB, {}};
  EXPECT_THAT(refusal(0, 2 * kMiB), testing::HasSubstr("max_workspace = 1048576 for a run over files"));
}

TEST(LookAhead, TakesTheKneeOfTheDisk) {
  const auto of = [](index_t memory, const std::optional<Disk>& disk) { return look_ahead_within(memory, disk); };
  const LookAhead plain = of(256 * kMiB, std::nullopt);
  EXPECT_FALSE(plain.measured);
  EXPECT_EQ(plain.buffers.request, kMiB);
  EXPECT_EQ(plain.depth, 32);
  const LookAhead deep = of(256 * kMiB, disk_with_knee(2 * kMiB, 8));
  EXPECT_TRUE(deep.measured);
  EXPECT_EQ(deep.buffers.request, 2 * kMiB);
  EXPECT_EQ(deep.depth, 8 + 4);  // and 8 MiB that are written
  // As many bytes under way, by requests that do not read every other page twice.
  const LookAhead small = of(256 * kMiB, disk_with_knee(64 << 10, 16));
  EXPECT_EQ(small.buffers.request, 256 << 10);
  EXPECT_EQ(small.depth, 4 + 32);
  // Little memory: small requests, and more of them, as many as the buffers hold.
  const LookAhead tight = of(16 * kMiB, disk_with_knee(kMiB, 4));
  EXPECT_EQ(tight.buffers.request, 256 << 10);
  EXPECT_EQ(tight.depth, 8 + 4);
  EXPECT_EQ(tight.buffers.read, 2 * kMiB);
  EXPECT_THROW(of(kLeastFilesMemory - 1, std::nullopt), InvalidProblem);
}

}  // namespace
}  // namespace redblue::test
