#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "redblue/core/dtype.hpp"
#include "redblue/isa.hpp"

/// What a machine can do, measured once (`redblue doctor`) and kept in a file: the planner's model of time reads it.
namespace redblue {

/// A cache, or main memory (the last level).
struct MemoryLevel {
  std::string name;           ///< "L1", "L2", "L3", "DRAM"
  std::int64_t bytes = 0;     ///< of one instance
  int cores = 1;              ///< that share one instance
  double read_bandwidth = 0;  ///< bytes per second that one core reads
};

/// How fast one core multiplies and adds.
struct Peak {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;  ///< of the factors; bf16 is summed in fp32
  double flops = 0;          ///< measured, per second: 2 per multiply-add
  int macs_per_vector = 0;   ///< multiply-adds of one vector instruction
  /// Vector multiply-adds per cycle: the one of 0.5, 1, 2, 4 nearest to what was measured.
  double vectors_per_cycle = 0;

  /// What width x clock promises, in flops per second.
  double expected(double clock) const { return 2 * macs_per_vector * vectors_per_cycle * clock; }
};

/// How fast one core turns scores into weights: y = exp2(scale x - max) and the sum of y, in L1.
struct ExpRate {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;
  double elements = 0;  ///< per second
};

/// More cores, or threads that time is modelled for, than any machine has.
inline constexpr int kMostCores = 1 << 20;

struct Hardware {
  std::string cpu;                  ///< its name
  int cores = 1;                    ///< physical ones that this process may use
  double clock = 0;                 ///< cycles per second of a core at work
  std::vector<MemoryLevel> levels;  ///< smallest first; the last is main memory
  double all_cores_bandwidth = 0;   ///< bytes per second that all cores together read from main memory
  std::vector<Peak> peaks;
  std::vector<ExpRate> exp_rates;
  /// The largest distance between the quartiles of a measurement's samples, over their median. Above 0.1 something else
  /// kept the machine busy.
  double spread = 0;

  /// Entries for an instruction set and a type; null where there is none.
  const Peak* peak(Isa isa, DType dtype) const;
  const ExpRate* exp_rate(Isa isa, DType dtype) const;
  /// The largest cache that one core has for itself, else the smallest level.
  const MemoryLevel& private_cache() const;
};

/// What needs no measuring: the processor's name, cores, and sizes of caches and memory.
Hardware describe_hardware();

/// One sample of what measure_hardware takes many of, a few milliseconds long: how fast the core of the calling thread
/// is now. Cycles per second:
double sample_clock();
/// Multiply-adds in a loop of nothing else, flops per second. `isa` may be one that has no loop of its own for the
/// type: then the largest below it that has. Throws Unsupported where there is none, or this machine has no such `isa`.
double sample_peak(Isa isa, DType dtype);

/// Measures this machine: about three seconds on idle cores. Every instruction set that is available is measured,
/// whatever REDBLUE_ISA says.
Hardware measure_hardware();

/// JSON, schema "redblue.hardware/1" (docs/hardware.md).
std::string to_json(const Hardware& hardware);
/// Throws IoError that names `path`, the field, its value and what it must be.
Hardware hardware_from_json(const std::string& text, const std::string& path);

/// Throws IoError.
Hardware load_hardware(const std::string& path);
/// The file appears complete or not at all. Throws IoError, also where its directory does not exist; that of
/// default_hardware_path() is made.
void save_hardware(const Hardware& hardware, const std::string& path);

/// ${XDG_CONFIG_HOME:-~/.config}/redblue/hardware.json. Empty where neither that variable nor HOME is an absolute path.
std::string default_hardware_path();

}  // namespace redblue
