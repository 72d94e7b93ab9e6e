#include "redblue/hardware/disk.hpp"

#include <algorithm>

#include "files/support.hpp"
#include "redblue/language/error.hpp"

namespace redblue::test {
namespace {

using file::contains;
using file::TemporaryDirectory;

constexpr SweepOptions tiny() {
  return {
      .file_bytes = 1 << 18, .requests = {4096, 16384}, .depths = {1, 4}, .most_under_way = 1 << 15, .seconds = 0.02};
}

TEST(DiskSweep, MeasuresWhatMayBeUnderWayAndLeavesNothing) {
  const TemporaryDirectory here;
  const DiskSweep sweep = measure_disk(here / "", tiny());
  EXPECT_EQ(here.entries(), 0);
  std::vector<std::pair<std::int64_t, int>> kinds;
  for (const SweepCell& c : sweep.cells) {
    kinds.emplace_back(c.request, c.depth);
    EXPECT_GT(c.in_order, 0);
    EXPECT_GT(c.by_blocks, 0);
  }
  const std::vector<std::pair<std::int64_t, int>> all{
      {4096, 1}, {16384, 1}, {4096, 4}};  // 16384 x 4 are too many bytes
  ASSERT_FALSE(kinds.empty());
  EXPECT_TRUE(std::equal(kinds.begin(), kinds.end(), all.begin()));
  EXPECT_EQ(sweep.complete, kinds.size() == all.size());
  const Disk& d = sweep.disk;
  const SweepCell& knee = knee_of(sweep.cells);
  EXPECT_EQ(d.request, knee.request);
  EXPECT_EQ(d.depth, knee.depth);
  EXPECT_EQ(d.read_bandwidth, knee.bandwidth());
  EXPECT_GT(d.write_bandwidth, 0);
  EXPECT_GT(d.latency, 0);
  EXPECT_GE(d.bytes, 1 << 18);
  EXPECT_EQ(d.directory + "/", std::filesystem::canonical(here / "").string() + "/");
  EXPECT_NE(d.file_system, "");
  EXPECT_TRUE(d.engine == "io_uring" || d.engine == "threads") << d.engine;
}

TEST(DiskSweep, LeavesNothingWhereItFails) {
  const TemporaryDirectory here;
  SweepOptions options = tiny();
  options.depths = {5000};  // more than an engine takes, which shows after the file is written
  options.most_under_way = 5000 * 4096;
  EXPECT_THROW(measure_disk(here / "", options), InvalidProblem);
  EXPECT_EQ(here.entries(), 0);
}

TEST(DiskSweep, RefusesPlacesAndRequestsThatCannotBe) {
  const TemporaryDirectory here;
  EXPECT_CONTAINS(file::message_of<IoError>([&] { measure_disk(here / "none", tiny()); }), "No such file or directory");
  SweepOptions options = tiny();
  options.requests = {5000};
  EXPECT_CONTAINS(file::message_of<InvalidProblem>([&] { measure_disk(here / "", options); }), "multiples of 4096");
  options = tiny();
  options.most_under_way = 2048;
  EXPECT_CONTAINS(file::message_of<InvalidProblem>([&] { measure_disk(here / "", options); }), "multiples of 4096");
}

TEST(DiskSweep, KneeHasTheFewestBytesUnderWayNearTheBest) {
  const std::vector<SweepCell> cells{{64, 1, 50, 40},  {64, 4, 97, 90},  {128, 4, 96, 96},
                                     {512, 1, 96, 99}, {128, 8, 99, 98}, {256, 8, 101, 100}};
  EXPECT_EQ(knee_of(cells).request, 512) << "as many bytes as 128 x 4, in fewer requests";
  EXPECT_EQ(knee_of(cells).depth, 1);
  EXPECT_EQ(knee_of({cells[0]}).request, 64);
}

}  // namespace
}  // namespace redblue::test
