#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "json.hpp"
#include "redblue/attention.hpp"

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
  Measured measured;   ///< of one iteration, as of any
  Words bytes;         ///< the words moved, in the types of the arrays in slow memory
  int iterations = 1;  ///< in each repetition
  std::vector<Repetition> repetitions;

  /// The usual count: 2 (d + d_v) for each pair of query and visible key forward, 2.5 times that backward, whatever the
  /// schedule computes again.
  double flops() const;
  double gflops(const Repetition& r) const { return flops() / r.real_seconds * 1e-9; }
  /// Of what the threads that took part could do if they did nothing but multiply and add.
  double peak_share(const Repetition& r) const { return flops() / r.real_seconds / (r.peak * measured.threads); }
};

/// What is known of the machine and the program before the first run.
struct BenchContext {
  std::chrono::system_clock::time_point date = std::chrono::system_clock::now();
  double clock = 0;  ///< cycles per second, measured
};

/// Median of value(repetition).
double median(const BenchCell& cell, const std::function<double(const Repetition&)>& value);

void print_header(const BenchContext& context);
void print_line(const BenchCell& cell);
/// In the layout of Google Benchmark.
Json to_json(const BenchContext& context, const std::vector<BenchCell>& cells);

}  // namespace redblue::cli
