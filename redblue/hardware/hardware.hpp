#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "redblue/hardware/isa.hpp"
#include "redblue/language/dtype.hpp"

/// How fast a machine is: `redblue doctor` measures it once; the planner's model of time reads it from a file.
namespace redblue {

/// A cache, or main memory (the last level).
struct MemoryLevel {
  std::string name;           ///< "L1", "L2", "L3", "DRAM"
  std::int64_t bytes = 0;     ///< size of one instance
  int cores = 1;              ///< cores that share one instance
  double read_bandwidth = 0;  ///< bytes per second that one core reads
};

/// How fast one core multiplies and adds.
struct Peak {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;  ///< type of the factors; bf16 is summed in fp32
  double flops = 0;          ///< measured flops per second, 2 per multiply-add
  int macs_per_vector = 0;   ///< multiply-adds of one instruction for vectors, or for matrix tiles
  /// Such instructions per cycle: whichever of 1/16, 0.5, 1, 2, 4 is nearest to the measured rate.
  double vectors_per_cycle = 0;

  /// The flops per second that vector width and clock promise.
  double expected(double clock) const { return 2 * macs_per_vector * vectors_per_cycle * clock; }
};

/// How fast one core turns scores into weights: y = exp2(scale x - max) and the sum of y, in L1.
struct ExpRate {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;
  double elements = 0;  ///< per second
};

/// The level below main memory: files of a directory, as requests to them were met (hardware/disk.hpp).
struct Disk {
  std::string directory;       ///< its full path
  std::string file_system;     ///< "ext4"
  std::int64_t bytes = 0;      ///< size of the file system
  std::string engine;          ///< what carried requests out: "io_uring" or "threads"
  bool direct = false;         ///< did requests pass by the page cache?
  double read_bandwidth = 0;   ///< bytes per second at the knee, in order or by blocks, whichever is less
  double write_bandwidth = 0;  ///< bytes per second, new bytes in order, until they are on the disk
  double latency = 0;          ///< seconds that the read of one page takes when nothing else is under way
  /// The knee: the requests that keep the fewest bytes under way and come within 5 % of the most that any did.
  std::int64_t request = 0;  ///< bytes of each
  int depth = 0;             ///< requests under way at a time
  std::string at;            ///< when it was measured, "2026-11-29T20:45:00Z"
};

/// When a machine was measured, and what else it did meanwhile.
struct Circumstances {
  std::string at;                  ///< "2026-11-29T20:45:00Z"; empty: not known, as of files of earlier versions
  std::string version;             ///< of redblue
  bool brief = false;              ///< was it measured in a moment, for a first plan?
  std::optional<double> load{};    ///< the load average of the minute before
  std::optional<double> others{};  ///< the share of all CPUs, 0 to 1, that other processes took meanwhile
  int figures = 0;                 ///< figures that were measured
  int repeated = 0;                ///< figures that were taken again because they looked disturbed
  int disturbed = 0;               ///< figures that looked disturbed to the end
};

/// The largest number of cores, or of threads to model: more than any machine has.
inline constexpr int kMostCores = 1 << 20;

struct Hardware {
  std::string cpu;                  ///< its name
  int cores = 1;                    ///< physical cores that this process may use
  double clock = 0;                 ///< cycles per second of a core at work
  std::vector<MemoryLevel> levels;  ///< smallest first; the last is main memory
  double all_cores_bandwidth = 0;   ///< bytes per second that all cores together read from main memory
  std::vector<Peak> peaks;
  std::vector<ExpRate> exp_rates;
  /// The largest distance between the quartiles of a measurement's samples, over their median. Above 0.1 other programs
  /// kept the machine busy.
  double spread = 0;
  Circumstances measured;
  std::optional<Disk> disk{};  ///< none unless `redblue doctor --disk` has measured one

  /// Entries for an instruction set and a type; null where there is none.
  const Peak* peak(Isa isa, DType dtype) const;
  const ExpRate* exp_rate(Isa isa, DType dtype) const;
  /// The largest cache that only one core uses; if there is none, the smallest level.
  const MemoryLevel& private_cache() const;
};

/// The fields that need no measuring: the processor's name, cores, and sizes of caches and memory.
Hardware describe_hardware();

/// One sample of a few milliseconds: how fast the core of the calling thread is now. (measure_hardware takes many
/// samples.) Cycles per second:
double sample_clock();
/// Flops per second of a loop of multiply-adds alone. If `isa` has no loop for the type, the largest instruction set
/// below it that has one. Throws Unsupported if there is none, or if this machine cannot run `isa`.
double sample_peak(Isa isa, DType dtype);

/// A figure looks disturbed if its samples scatter by more than this, or if other processes take more than this share
/// of all CPUs while it is measured.
inline constexpr double kMostSpread = 0.1, kMostOthers = 0.2;

/// Measures this machine: a few seconds on idle cores. Every instruction set that is available is measured,
/// whatever REDBLUE_ISA says. A figure that looks disturbed is taken again, up to three times in all, and the one whose
/// samples scatter least is kept.
Hardware measure_hardware();
/// Measures the same in some 40 ms, by few short samples, each figure once. The bandwidth of all cores is not measured:
/// it is taken for that of one core, times the cores, but of 8 at most.
Hardware measure_briefly();

/// JSON, schema "redblue.hardware/1" (docs/hardware.md).
std::string to_json(const Hardware& hardware);
/// Throws IoError that names `path`, the field, its value and what it must be.
Hardware hardware_from_json(const std::string& text, const std::string& path);

/// Throws IoError.
Hardware load_hardware(const std::string& path);
/// The file appears complete or not at all. Creates the directory of default_hardware_path(). Throws IoError, also if
/// the directory of another path does not exist.
void save_hardware(const Hardware& hardware, const std::string& path);

/// h and, if it is of this processor, the peaks of instruction sets that the process may use and h lacks: an earlier
/// version, which did not know them, measured it. A tenth of a second for each.
Hardware with_new_peaks(Hardware h);

/// The machine at hand, as `redblue doctor` has left it in default_hardware_path(), with_new_peaks(). Where there is no
/// such file it is measured briefly. The first answer stays for the whole process. Throws IoError if the
/// file is bad.
const Hardware& this_machine();
/// Is that file there?
bool has_hardware_file();

/// Why a measurement may not be that of this machine and this version, one sentence each: another processor, another
/// number of cores, another version, or figures that were disturbed.
std::vector<std::string> doubts_about(const Hardware& hardware);

/// ${XDG_CONFIG_HOME:-~/.config}/redblue/hardware.json. Empty where neither that variable nor HOME is an absolute path.
std::string default_hardware_path();

}  // namespace redblue
