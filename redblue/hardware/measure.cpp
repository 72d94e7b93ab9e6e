#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "redblue/hardware/family.hpp"
#include "redblue/hardware/hardware.hpp"
#include "redblue/hardware/load.hpp"
#include "redblue/hardware/topology.hpp"
#include "redblue/language/error.hpp"
#include "redblue/version.hpp"

namespace redblue {

namespace hardware {
namespace {

/// How much time measurements take.
struct Pace {
  double sample_seconds;  ///< at least
  std::size_t least_samples, most_samples;
  double enough_seconds;  ///< for long samples, as of reading a gigabyte
  int most_rounds;        ///< the most measurements of a figure that looks disturbed
};
constexpr Pace kThorough{4e-3, 5, 25, 0.5, 3}, kOnce{4e-3, 5, 25, 0.5, 1}, kBrief{1e-4, 1, 3, 3e-3, 1};

/// Medians of repeated samples, in processor time of this thread: time that other programs take does not count.
class Stopwatch {
 public:
  explicit Stopwatch(const Pace& pace) : pace_(pace) {}

  /// Units per second of run(steps), where a step is `units` of them.
  template <class Run>
  double rate(double units, const Run& run) {
    const std::int64_t steps = enough(run).steps;
    return figure([&] {
      std::vector<double> samples;
      for (double spent = 0; samples.size() < pace_.most_samples &&
                             (samples.size() < pace_.least_samples || spent < pace_.enough_seconds);) {
        const double sample = seconds(run, steps);
        samples.push_back(units * static_cast<double>(steps) / sample);
        spent += sample;
      }
      return samples;
    });
  }
  /// The median of the samples that take() gives. If they look disturbed, others are taken, and the ones that scatter
  /// least count.
  template <class Take>
  double figure(const Take& take) {
    Round best{0, std::numeric_limits<double>::infinity()};
    bool calm = false;
    int rounds = 0;
    const int most = disturbed < kHopeless ? pace_.most_rounds : 1;
    for (; rounds < most && !calm; ++rounds) {
      const auto before = cpu_time_now();
      const Round round = median(take());
      calm = round.spread <= kMostSpread && share_of_others(before, cpu_time_now()).value_or(0) <= kMostOthers;
      if (calm || round.spread < best.spread) best = round;
    }
    ++figures;
    repeated += rounds > 1 ? 1 : 0;
    disturbed += calm ? 0 : 1;
    spread = std::max(spread, best.spread);
    return best.median;
  }
  /// Units per second from one sample.
  template <class Run>
  double sample(double units, const Run& run) {
    const Taken t = enough(run);
    return units * static_cast<double>(t.steps) / t.seconds;
  }

  int figures = 0, repeated = 0, disturbed = 0;
  double spread = 0;  ///< of the figure whose samples scatter most

 private:
  struct Taken {
    std::int64_t steps;
    double seconds;
  };
  struct Round {
    double median, spread;
  };

  static Round median(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const std::size_t n = samples.size();
    const double middle = samples[n / 2];
    return {middle, (samples[n * 3 / 4] - samples[n / 4]) / middle};
  }

  /// As many steps as a sample takes.
  template <class Run>
  Taken enough(const Run& run) {
    for (Taken t{1, 0};; t.steps *= 2) {
      t.seconds = seconds(run, t.steps);
      if (t.seconds >= pace_.sample_seconds) return t;
    }
  }
  template <class Run>
  double seconds(const Run& run, std::int64_t steps) {
    const double before = now();
    sink_ = static_cast<double>(run(steps));
    return now() - before;
  }
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  static constexpr int kHopeless = 4;  ///< after that many disturbed figures others are not taken again

  Pace pace_;
  volatile double sink_ = 0;  // keeps the compiler from leaving out what `run` computes
};

/// A block of memory whose pages are all mapped.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes) : bytes_(std::max(kReadMultiple, bytes / kReadMultiple * kReadMultiple)) {
    data_ = mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED)
      throw Error("redblue doctor: no memory to measure bandwidth with; free some and try again");
    madvise(data_, size(), MADV_HUGEPAGE);  // if the system refuses, pages are small
    std::fill_n(static_cast<char*>(data_), size(), char{1});
  }
  ~Buffer() { munmap(data_, size()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::size_t size() const { return static_cast<std::size_t>(bytes_); }

  std::int64_t bytes_;
  void* data_;
};

/// The loops of the instruction sets that this one includes. Linux is not asked for tiles unless they are among them.
std::vector<const Loops*> available_loops(std::optional<Isa> most = {}) {
  std::vector<const Loops*> list = {&kPortableF32, &kPortableF64};
  for (const Loops* l : family_loops())
    if ((!most || includes(*most, l->isa)) && is_available(l->isa)) list.push_back(l);
  return list;
}

/// A chain of integer additions, each of which takes one cycle on every processor there is.
constexpr int kAdditions = 64;
double dependent_additions(std::int64_t steps) {
  std::uint64_t x = 1, y = 3;
  asm volatile("" : "+r"(y));
  for (std::int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 64
    for (int i = 0; i < kAdditions; ++i) {
      x += y;
      asm volatile("" : "+r"(x));  // keeps the compiler from merging two additions
    }
  }
  return static_cast<double>(x);
}

double nearest_rate(double per_cycle) {
  constexpr std::array<double, 5> kRates = {0.0625, 0.5, 1, 2, 4};
  return *std::min_element(kRates.begin(), kRates.end(), [&](double a, double b) {
    return std::abs(std::log(a / per_cycle)) < std::abs(std::log(b / per_cycle));
  });
}

double flops_per_step(const Loops& l) { return 2.0 * l.macs_per_vector * l.chains; }

Peak measure_peak(Stopwatch& watch, const Loops& l, double clock) {
  const double flops = watch.rate(flops_per_step(l), l.multiply_add);
  return {l.isa, l.dtype, flops, l.macs_per_vector, nearest_rate(flops / (2 * l.macs_per_vector * clock))};
}

/// Numbers of -8 to 8: ordinary ones, which no processor treats apart.
template <class T>
void fill_with_scores(void* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(x)[i] = static_cast<T>(i % 17 - 8);
}

ExpRate measure_exp(Stopwatch& watch, const Loops& l) {
  constexpr std::int64_t kElements = 1024;  // twice 8 KiB of doubles: in any L1
  const Buffer x(kElements * 8), y(kElements * 8);
  l.dtype == DType::f64 ? fill_with_scores<double>(x.data(), kElements) : fill_with_scores<float>(x.data(), kElements);
  return {l.isa, l.dtype,
          watch.rate(kElements, [&](std::int64_t passes) { return l.exp2(x.data(), y.data(), kElements, passes); })};
}

double measure_read(Stopwatch& watch, const Loops& l, std::int64_t bytes) {
  const Buffer buffer(bytes);
  return watch.rate(static_cast<double>(buffer.bytes()),
                    [&](std::int64_t passes) { return l.read(buffer.data(), buffer.bytes(), passes); });
}

/// A number of bytes that fits well into level i and is well above the size of the level below. A virtual machine may
/// report a shared cache that is mostly not there.
std::int64_t bytes_within(const std::vector<MemoryLevel>& levels, std::size_t i, bool brief) {
  const std::int64_t below = i == 0 ? 0 : levels[i - 1].bytes;
  if (i + 1 == levels.size()) {
    const int caches = brief ? 2 : 4;  // to map pages takes most of the time
    return std::min(std::max(caches * below, std::int64_t{64} << 20), levels[i].bytes / 4);
  }
  if (levels[i].cores == 1) return levels[i].bytes / 2;
  return std::min(std::max(2 * below, std::min(8 * below, levels[i].bytes / 4)), levels[i].bytes);  // others use it too
}

/// All cores at once, each in its own part of the memory, in wall-clock time.
double measure_all_cores(Stopwatch& watch, const Loops& l, const std::vector<MemoryLevel>& levels, int cores) {
  const MemoryLevel& memory = levels.back();
  const MemoryLevel& last = levels.size() > 1 ? levels[levels.size() - 2] : memory;
  const std::int64_t each =
      std::min(std::max(std::int64_t{16} << 20, 4 * last.bytes / last.cores), memory.bytes / 4 / cores);
  constexpr std::size_t kSamples = 5;
  using Rates = std::array<double, kSamples>;
  std::barrier together(cores);
  const auto work = [&](Rates& mine) {
    const Buffer buffer(each);
    volatile double sink = 0;
    for (double& rate : mine) {
      together.arrive_and_wait();
      using Clock = std::chrono::steady_clock;
      const auto start = Clock::now();
      std::chrono::duration<double> passed{};
      double bytes = 0;
      for (; passed.count() < 0.05; passed = Clock::now() - start) {
        sink = l.read(buffer.data(), buffer.bytes(), 1);
        bytes += static_cast<double>(buffer.bytes());
      }
      rate = bytes / passed.count();
    }
    static_cast<void>(sink);
  };
  return watch.figure([&] {
    std::vector<Rates> rates(static_cast<std::size_t>(cores));
    {
      std::vector<std::jthread> threads;
      threads.reserve(rates.size());
      for (auto& mine : rates) threads.emplace_back(work, std::ref(mine));
    }
    std::vector<double> total(kSamples);
    for (const auto& mine : rates)
      for (std::size_t i = 0; i < kSamples; ++i) total[i] += mine[i];
    return total;
  });
}

}  // namespace
}  // namespace hardware

Hardware describe_hardware() {
  Hardware h;
  h.cpu = hardware::cpu_name();
  h.cores = hardware::cores();
  h.levels = hardware::levels();
  return h;
}

double sample_clock() {
  return hardware::Stopwatch(hardware::kOnce).sample(hardware::kAdditions, hardware::dependent_additions);
}

double sample_peak(Isa isa, DType dtype) {
  const auto loops = hardware::available_loops(isa);
  const auto found = std::find_if(loops.rbegin(), loops.rend(),
                                  [&](const hardware::Loops* l) { return l->dtype == dtype && includes(isa, l->isa); });
  if (!is_available(isa) || found == loops.rend())
    throw Unsupported(fmt::format("the peak of {} with {} cannot be measured here", name_of(dtype), name_of(isa)));
  return hardware::Stopwatch(hardware::kOnce).sample(hardware::flops_per_step(**found), (*found)->multiply_add);
}

Hardware with_new_peaks(Hardware h) {
  using namespace hardware;
  if (h.cpu != cpu_name()) return h;
  const Isa best = best_isa();
  Stopwatch watch(kOnce);
  for (const Isa isa : kIsas)
    if (includes(best, isa) && std::ranges::none_of(h.peaks, [&](const Peak& p) { return p.isa == isa; }))
      for (const Loops* l : available_loops(best))
        if (l->isa == isa) {
          h.peaks.push_back(measure_peak(watch, *l, h.clock));
          if (l->exp2 != nullptr) h.exp_rates.push_back(measure_exp(watch, *l));
        }
  return h;
}

namespace hardware {
namespace {

Hardware measured_at(const Pace& pace, bool brief) {
  Hardware h = describe_hardware();
  h.measured = {.at = time_now(), .version = std::string(kVersion), .brief = brief, .load = load_average()};
  const auto before = cpu_time_now();
  const auto loops = available_loops();
  {
    Stopwatch warm_up(pace);  // until clock and vector units are awake
    warm_up.rate(1, loops.back()->multiply_add);
  }
  Stopwatch watch(pace);
  h.clock = watch.rate(kAdditions, dependent_additions);
  for (const Loops* l : loops) {
    h.peaks.push_back(measure_peak(watch, *l, h.clock));
    if (l->exp2 != nullptr) h.exp_rates.push_back(measure_exp(watch, *l));
  }
  const Loops& reader = **std::find_if(loops.rbegin(), loops.rend(), [](const Loops* l) { return l->read != nullptr; });
  for (std::size_t i = 0; i < h.levels.size(); ++i)
    h.levels[i].read_bandwidth = measure_read(watch, reader, bytes_within(h.levels, i, brief));
  const double one_core = h.levels.back().read_bandwidth;
  constexpr int kCoresThatFillMemory = 8;
  // At least the bandwidth of one core: a lower figure means that other programs took the rest.
  h.all_cores_bandwidth = brief ? one_core * std::min(h.cores, kCoresThatFillMemory)
                                : std::max(one_core, measure_all_cores(watch, reader, h.levels, h.cores));
  h.spread = watch.spread;
  h.measured.others = share_of_others(before, cpu_time_now());
  h.measured.figures = watch.figures;
  h.measured.repeated = watch.repeated;
  h.measured.disturbed = watch.disturbed;
  return h;
}

}  // namespace
}  // namespace hardware

Hardware measure_hardware() { return hardware::measured_at(hardware::kThorough, false); }
Hardware measure_briefly() { return hardware::measured_at(hardware::kBrief, true); }

}  // namespace redblue
