#include "redblue/hardware/hardware.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "files/support.hpp"
#include "redblue/hardware/load.hpp"
#include "redblue/language/error.hpp"
#include "redblue/version.hpp"
#include "support/paths.hpp"

namespace redblue::test {
namespace {

using testing::HasSubstr;

const std::string kInvented = test::in_sources("/tests/data/hardware.json");

std::string message_of(const std::string& text) {
  try {
    hardware_from_json(text, "h.json");
  } catch (const IoError& e) {
    EXPECT_EQ(e.path, "h.json");
    return e.what();
  }
  return "no IoError";
}

/// The invented machine's file with its first `from` replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = file::read_text(kInvented);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HardwareFile, RoundTrips) {
  const Hardware h = load_hardware(kInvented);
  EXPECT_EQ(h.cores, 16);
  EXPECT_EQ(h.private_cache().name, "L2");
  EXPECT_EQ(h.peak(Isa::avx512, DType::f64)->flops, 95e9);
  EXPECT_EQ(h.peak(Isa::avx2, DType::f64), nullptr);
  EXPECT_EQ(h.exp_rate(Isa::avx512, DType::f32)->elements, 10e9);
  const std::string text = to_json(h);
  EXPECT_EQ(to_json(hardware_from_json(text, "again")), text);
}

const Disk kInventedDisk{"/data", "xfs", 4'000'000'000'000,     "io_uring", true, 6.5e9, 3.1e9, 8e-5,
                         1 << 20, 8,     "2026-11-29T20:45:00Z"};

TEST(HardwareFile, HasADiskWhereOneWasMeasured) {
  Hardware h = load_hardware(kInvented);
  EXPECT_FALSE(h.disk) << "files of earlier versions have none";
  EXPECT_THAT(to_json(h), testing::Not(HasSubstr("disk")));
  h.disk = kInventedDisk;
  const std::string text = to_json(h);
  const Hardware again = hardware_from_json(text, "again");
  ASSERT_TRUE(again.disk);
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(again.disk->file_system, "xfs");
  EXPECT_EQ(again.disk->read_bandwidth, 6.5e9);
  EXPECT_EQ(again.disk->write_bandwidth, 3.1e9);
  EXPECT_EQ(again.disk->request, 1 << 20);
  EXPECT_EQ(again.disk->depth, 8);
  EXPECT_EQ(again.levels.back().name, "DRAM") << "main memory stays the last of the levels";
  for (const auto& [from, to, says] :
       {std::tuple("\"direct\": true", "\"direct\": 1", "disk.direct is 1, it must be true"),
        {"\"depth\": 8", "\"depth\": 0", "disk.depth is 0, it must be a whole number"},
        {"\"latency\"", "\"lateness\"", "disk.latency is missing"}}) {
    std::string bad = text;
    EXPECT_THAT(message_of(bad.replace(bad.find(from), std::string_view(from).size(), to)), HasSubstr(says));
  }
}

TEST(HardwareFile, IsWrittenCompletelyOrNotAtAll) {
  const file::TemporaryDirectory directory;
  const std::string path = directory / "hardware.json";
  const Hardware h = load_hardware(kInvented);
  save_hardware(h, path);
  EXPECT_EQ(file::read_text(path), to_json(h));
  save_hardware(h, path);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory / ""), {}), 1);
  EXPECT_THROW(save_hardware(h, directory / "a/b/hardware.json"), IoError);
  EXPECT_FALSE(std::filesystem::exists(directory / "a"));
}

TEST(HardwareFile, BadOnesAreRefusedWithTheFieldAndWhatItMustBe) {
  EXPECT_THAT(message_of(""), HasSubstr("not JSON"));
  EXPECT_THAT(message_of("{\"schema\": "), HasSubstr("redblue doctor"));
  EXPECT_THAT(message_of("[1, 2]"), HasSubstr("the whole is [1,2], it must be an object"));
  EXPECT_THAT(message_of("{}"), HasSubstr("schema is missing"));
  EXPECT_THAT(message_of(with("hardware/1", "hardware/2")), HasSubstr("it must be \"redblue.hardware/1\""));
  EXPECT_THAT(message_of(with("\"clock\": 3e9,", "")), HasSubstr("clock is missing"));
  EXPECT_THAT(message_of(with("3e9", "-3")), HasSubstr("clock is -3, it must be a number above 0"));
  EXPECT_THAT(message_of(with("3e9", "1e999")), HasSubstr("hardware file 'h.json'"));
  EXPECT_THAT(message_of(with("3e9", "\"fast\"")), HasSubstr("clock is \"fast\""));
  EXPECT_THAT(message_of(with("\"cores\": 16", "\"cores\": 2.5")),
              HasSubstr("cores is 2.5, it must be a whole number"));
  EXPECT_THAT(message_of(with("\"cores\": 16", "\"cores\": 18446744073709551615")), HasSubstr("it must be a whole"));
  EXPECT_THAT(message_of(with("150e9", "0")), HasSubstr("levels[1].read_bandwidth is 0"));
  EXPECT_THAT(message_of(with("1048576", "16384")), HasSubstr("levels[1].bytes is 16384, it must be at least 32768"));
  EXPECT_THAT(message_of(with("\"avx512\"", "\"avx1024\"")), HasSubstr("peaks[2].isa is \"avx1024\""));
  EXPECT_THAT(message_of(with("\"f64\"", "\"i8\"")), HasSubstr("peaks[1].dtype is \"i8\", it must be f64"));
  EXPECT_THAT(message_of(with("0.01", "-1")), HasSubstr("spread is -1"));
  std::string none = file::read_text(kInvented);
  none.replace(none.find("\"levels\": ["), std::string("\"levels\": [").size(), "\"levels\": [], \"was\": [");
  EXPECT_THAT(message_of(none), HasSubstr("levels is [], it must be a list with at least one entry"));
}

TEST(HardwareFile, KeepsWhenAndUnderWhatLoadItWasMeasured) {
  Hardware h = load_hardware(kInvented);
  h.measured = {.at = "2026-11-29T20:45:00Z",
                .version = "0.1.0",
                .brief = true,
                .load = 1.5,
                .others = 0.25,
                .figures = 20,
                .repeated = 3,
                .disturbed = 1};
  const Circumstances c = hardware_from_json(to_json(h), "h.json").measured;
  EXPECT_EQ(c.at, h.measured.at);
  EXPECT_EQ(c.version, "0.1.0");
  EXPECT_TRUE(c.brief);
  EXPECT_EQ(c.load, 1.5);
  EXPECT_EQ(c.others, 0.25);
  EXPECT_EQ(c.figures, 20);
  EXPECT_EQ(c.repeated, 3);
  EXPECT_EQ(c.disturbed, 1);
  h.measured.load = h.measured.others = std::nullopt;  // a system that does not tell
  EXPECT_EQ(hardware_from_json(to_json(h), "h.json").measured.others, std::nullopt);
}

TEST(HardwareFile, IsDoubtedForWhatMakesItStale) {
  Hardware h = describe_hardware();
  h.measured = {.at = "2026-11-29T20:45:00Z", .version = std::string(kVersion), .figures = 20};
  EXPECT_TRUE(doubts_about(h).empty());
  const auto one = [&](const auto& change) {
    Hardware other = h;
    change(other);
    const auto doubts = doubts_about(other);
    return doubts.size() == 1 ? doubts[0] : std::to_string(doubts.size()) + " doubts";
  };
  EXPECT_THAT(one([](Hardware& x) { x.cpu = "another"; }), HasSubstr("another processor, another; this one is"));
  EXPECT_THAT(one([](Hardware& x) { x.cores += 3; }), HasSubstr("cores; this process may use"));
  EXPECT_THAT(one([](Hardware& x) { x.measured.version = "0.0.1"; }), HasSubstr("redblue 0.0.1 wrote it; this is"));
  EXPECT_THAT(one([](Hardware& x) { x.measured = {}; }), HasSubstr("did not note when"));
  EXPECT_THAT(one([](Hardware& x) { x.measured.brief = true; }), HasSubstr("in a moment"));
  EXPECT_THAT(one([](Hardware& x) { x.spread = 0.3; }), HasSubstr("scatter by 30 %"));
  EXPECT_THAT(one([](Hardware& x) { x.measured.disturbed = 2; }), HasSubstr("2 of 20 figures look disturbed"));
}

/// Two moments, 1 s apart on two processors: one was busy, half of that time for this process.
TEST(Load, ShareOfOthersIsWhatThisProcessDidNotTake) {
  using namespace hardware;
  const auto before = cpu_time("cpu  100 0 50 1000 20 0 5 5 0 0", 100, 3);
  const auto after = cpu_time("cpu  160 10 70 1090 30 0 10 5 0 0", 100, 3.5);
  ASSERT_TRUE(before && after);
  EXPECT_DOUBLE_EQ(before->total, 11.8);
  EXPECT_DOUBLE_EQ(before->busy, 1.6);
  EXPECT_NEAR(share_of_others(before, after).value(), (0.95 - 0.5) / 1.95, 1e-12);
  EXPECT_EQ(share_of_others(before, before), std::nullopt);
  EXPECT_EQ(share_of_others(std::nullopt, after), std::nullopt);
  for (const char* bad : {"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8"})
    EXPECT_FALSE(cpu_time(bad, 100, 0)) << bad;
}

TEST(HardwareFile, MissingOneIsNamed) {
  try {
    load_hardware("/no/such/hardware.json");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("/no/such/hardware.json"));
  }
}

TEST(HardwareFile, DefaultPlaceFollowsXdg) {
  const auto path = [](const char* xdg, const char* home) {
    xdg == nullptr ? unsetenv("XDG_CONFIG_HOME") : setenv("XDG_CONFIG_HOME", xdg, 1);
    home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
    return default_hardware_path();
  };
  EXPECT_EQ(path("/x", "/h"), "/x/redblue/hardware.json");
  EXPECT_EQ(path(nullptr, "/h"), "/h/.config/redblue/hardware.json");
  EXPECT_EQ(path("relative", "/h"), "/h/.config/redblue/hardware.json");
  EXPECT_EQ(path("", nullptr), "");
}

/// A file of another machine is left alone. One of this processor gets the peaks that it lacks, and keeps those it has.
TEST(HardwareFile, OfThisProcessorGetsThePeaksOfNewInstructionSets) {
  Hardware h = load_hardware(kInvented);
  EXPECT_EQ(to_json(with_new_peaks(h)), to_json(h));
  h.cpu = describe_hardware().cpu;
  const Hardware all = with_new_peaks(h);
  for (const Isa isa : kIsas)
    EXPECT_EQ(std::ranges::any_of(all.peaks, [&](const Peak& p) { return p.isa == isa; }),
              isa <= best_isa() || h.peak(isa, DType::f32) != nullptr)
        << name_of(isa);
  EXPECT_EQ(all.peak(Isa::portable, DType::f32)->flops, h.peak(Isa::portable, DType::f32)->flops);
  EXPECT_EQ(to_json(with_new_peaks(all)), to_json(all));
}

/// What can be said of any machine without a clock: all is there, positive, and survives its file.
TEST(Doctor, MeasuresWhatThereIs) {
  const Hardware h = measure_hardware();
  EXPECT_GT(h.clock, 1e8);
  EXPECT_GE(h.cores, 1);
  EXPECT_EQ(h.levels.back().name, "DRAM");
  for (Isa isa : kIsas) {
    EXPECT_EQ(h.peak(isa, DType::f32) != nullptr, is_available(isa) && isa <= Isa::avx512);
    EXPECT_EQ(h.exp_rate(isa, DType::f64) != nullptr, is_available(isa) && isa <= Isa::avx512);
  }
  for (const Isa isa : {Isa::avx512_bf16, Isa::amx_bf16})
    EXPECT_EQ(h.peak(isa, DType::bf16) != nullptr, is_available(isa));
  for (const Peak& p : h.peaks) EXPECT_GT(p.flops, 0);
  for (const MemoryLevel& l : h.levels) EXPECT_GT(l.read_bandwidth, 0) << l.name;
  const std::string text = to_json(h);
  EXPECT_EQ(to_json(hardware_from_json(text, "measured")), text);
  EXPECT_EQ(h.measured.at.size(), std::string("2026-11-29T20:45:00Z").size());
  EXPECT_EQ(h.measured.version, kVersion);
  // The clock, each peak, each rate of exponentials, each level, and all cores together.
  EXPECT_EQ(h.measured.figures, std::ssize(h.peaks) + std::ssize(h.exp_rates) + std::ssize(h.levels) + 2);
  EXPECT_LE(h.measured.disturbed, h.measured.figures);
  EXPECT_LE(h.measured.repeated, h.measured.figures);
}

TEST(Doctor, MeasuresAllOfItBrieflyToo) {
  const Hardware h = measure_briefly();
  EXPECT_TRUE(h.measured.brief);
  for (Isa isa : kIsas) EXPECT_EQ(h.peak(isa, DType::f32) != nullptr, is_available(isa) && isa <= Isa::avx512);
  for (const MemoryLevel& l : h.levels) EXPECT_GT(l.read_bandwidth, 0) << l.name;
  EXPECT_GE(h.all_cores_bandwidth, h.levels.back().read_bandwidth);
  const std::string text = to_json(h);
  EXPECT_EQ(to_json(hardware_from_json(text, "measured")), text);
}

TEST(Doctor, DescribesWithoutMeasuring) {
  const Hardware h = describe_hardware();
  EXPECT_NE(h.cpu, "");
  EXPECT_GE(h.cores, 1);
  EXPECT_EQ(h.levels.back().name, "DRAM");
  for (const MemoryLevel& l : h.levels) EXPECT_GT(l.bytes, 0) << l.name;
  EXPECT_TRUE(h.peaks.empty());
}

TEST(Doctor, SamplesTheLargestLoopThatAnInstructionSetHolds) {
  EXPECT_GT(sample_clock(), 1e8);
  for (Isa isa : kIsas) {
    if (is_available(isa)) {
      EXPECT_GT(sample_peak(isa, DType::f32), 0);
      EXPECT_GT(sample_peak(isa, DType::f64), 0);
    } else {
      EXPECT_THROW(sample_peak(isa, DType::f32), Unsupported) << name_of(isa);
    }
  }
  EXPECT_THROW(sample_peak(Isa::portable, DType::bf16), Unsupported);
  EXPECT_THROW(sample_peak(Isa::portable, DType::f16), Unsupported);
}

}  // namespace
}  // namespace redblue::test
