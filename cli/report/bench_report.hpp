#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "redblue/runtime/run.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// One repetition: means over its iterations.
struct Repetition {
  double real_seconds = 0;
  double cpu_seconds = 0;  ///< of all threads
  double peak = 0;         ///< flops per second of one core's multiply-adds, measured right before
};

/// One problem of the grid, and how long it took.
struct BenchCell {
  plan::Plan plan;
  DType dtype;         ///< of tensors
  DType compute;       ///< of arithmetic
  Measured measured;   ///< of one iteration; it is the same for all
  Words bytes;         ///< that move (plan::bytes_of)
  int iterations = 1;  ///< in each repetition
  std::vector<Repetition> repetitions;

  /// The usual count, without what the schedule computes again: forward 2 (d + d_v) for each pair of a query and a
  /// visible key, backward 2.5 times as many; tangent 2 (3d + 2d_v), and second 2 (10d + 5d_v), those of its two
  /// sweeps, for no schedule in O(n d) memory is known with fewer. Approximate attention, which forms no pairs, counts
  /// the flops of its schedule.
  double flops() const;
  double gflops(const Repetition& r) const { return flops() / r.real_seconds * 1e-9; }
  /// The share of the flops that the threads of the run could do with multiply-adds alone.
  double peak_share(const Repetition& r) const { return flops() / r.real_seconds / (r.peak * measured.threads); }
};

/// The machine and the program, as known before the first run.
struct BenchContext {
  std::chrono::system_clock::time_point date = std::chrono::system_clock::now();
  double clock = 0;  ///< cycles per second, measured
};

/// Median of value(repetition).
double median(const BenchCell& cell, const std::function<double(const Repetition&)>& value);

/// `bytes`: do the plans minimise bytes?
void print_header(const BenchContext& context, bool bytes);
void print_line(const BenchCell& cell);
/// In the layout of Google Benchmark.
Json to_json(const BenchContext& context, const std::vector<BenchCell>& cells);

}  // namespace redblue::cli
