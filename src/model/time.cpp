#include "redblue/model/time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>

#include "redblue/core/error.hpp"

namespace redblue::model {

namespace {

/// The register tile: this many rows of results, this many vectors of columns, as gemm kernels have it.
constexpr index_t kRegisterRows = 8, kRegisterVectors = 3;
/// Cycles from a multiply-add to its result, on every processor with FMA of the last ten years.
constexpr double kLatency = 4;

double share_with_lanes_along(const Rates& r, index_t along, index_t across) {
  const index_t vectors = ceil_div(along, r.lanes);
  const double full = static_cast<double>(along) / static_cast<double>(vectors * r.lanes);
  const double sums = static_cast<double>(std::min(across, kRegisterRows) * std::min(vectors, kRegisterVectors));
  return full * std::min(1.0, sums / (kLatency * r.vectors_per_cycle));
}

}  // namespace

const MemoryLevel& Rates::level_of(double bytes) const {
  const auto holds = [&](const MemoryLevel& l) { return bytes <= static_cast<double>(l.bytes); };
  return *std::find_if(levels.begin(), levels.end() - 1, holds);
}

Isa largest_isa(const Hardware& hardware) {
  Isa largest = Isa::portable;
  for (const Peak& p : hardware.peaks) largest = std::max(largest, p.isa);
  return largest;
}

Rates rates_of(const Hardware& hardware, Isa isa, DType dtype) {
  const auto find = [&](const auto& get, DType type) -> decltype(get(isa, type)) {
    for (int i = static_cast<int>(isa); i >= 0; --i)
      if (const auto* found = get(static_cast<Isa>(i), type)) return found;
    return nullptr;
  };
  const auto peak = [&](Isa i, DType t) { return hardware.peak(i, t); };
  const auto exp_rate = [&](Isa i, DType t) { return hardware.exp_rate(i, t); };
  const DType arithmetic = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Peak* p = find(peak, dtype);
  if (p == nullptr) p = find(peak, arithmetic);
  const ExpRate* const e = find(exp_rate, arithmetic);
  if (p == nullptr || e == nullptr)
    throw InvalidProblem(fmt::format("the hardware file has no {} of {} for {} or any smaller instruction set",
                                     p == nullptr ? "peak" : "exp rate", name_of(arithmetic), name_of(isa)));
  Rates r;
  r.isa = p->isa;
  r.dtype = dtype;
  r.macs = p->flops / 2;
  r.lanes = p->dtype == DType::bf16 ? p->macs_per_vector / 2 : p->macs_per_vector;
  r.vectors_per_cycle = p->vectors_per_cycle;
  r.exps = e->elements;
  const Peak* const plain = hardware.peak(Isa::portable, arithmetic);
  const ExpRate* const plain_exp = hardware.exp_rate(Isa::portable, arithmetic);
  r.portable_macs = plain != nullptr ? std::min(plain->flops / 2, r.macs) : r.macs;
  r.portable_exps = plain_exp != nullptr ? std::min(plain_exp->elements, r.exps) : r.exps;
  r.word_bytes = static_cast<double>(size_of(dtype));
  r.levels = hardware.levels;
  r.all_cores_bandwidth = hardware.all_cores_bandwidth;
  return r;
}

double register_share(const Rates& r, index_t rows, index_t cols) {
  return std::max(share_with_lanes_along(r, rows, cols), share_with_lanes_along(r, cols, rows));
}

double product_seconds(const Rates& r, index_t rows, index_t cols, double depth, double held_bytes) {
  if (rows == 0 || cols == 0) return 0;
  const double results = static_cast<double>(rows) * static_cast<double>(cols);
  return results * depth / (r.macs * register_share(r, rows, cols)) + pass_seconds(r, 2 * results, held_bytes);
}

double pass_seconds(const Rates& r, double words, double held_bytes) {
  return words * r.word_bytes / r.level_of(held_bytes).read_bandwidth;
}

double transfer_seconds(const Rates& r, const Traffic& t, double cores) {
  const MemoryLevel& memory = r.levels.back();
  const double memory_bandwidth = std::min(cores * memory.read_bandwidth, r.all_cores_bandwidth);
  // Words that leave fast memory come back from the next level that holds what a head works on.
  const auto beyond = [&](const MemoryLevel& l) {
    return static_cast<double>(l.bytes) > t.fast_bytes && static_cast<double>(l.bytes) >= t.instance_bytes;
  };
  const auto last_cache = r.levels.end() - 1;
  const auto source = std::find_if(r.levels.begin(), last_cache, beyond);
  if (source == last_cache) return t.bytes / memory_bandwidth;
  const bool cold = last_cache == r.levels.begin() || t.distinct_bytes > static_cast<double>((last_cache - 1)->bytes);
  const double once = cold ? std::min(t.bytes, t.distinct_bytes) : 0;
  return once / memory_bandwidth + (t.bytes - once) / (cores * source->read_bandwidth);
}

double makespan(std::span<const double> items, index_t copies, int workers) {
  double all = 0;
  for (const double item : items) all += item;
  all *= static_cast<double>(copies);
  const index_t count = static_cast<index_t>(items.size()) * copies;
  if (workers == 1 || count >= index_t{32} * workers) return all / workers;  // the last item hardly shows
  std::vector<double> sorted;
  for (index_t c = 0; c < copies; ++c) sorted.insert(sorted.end(), items.begin(), items.end());
  std::sort(sorted.begin(), sorted.end(), std::greater());
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int w = 0; w < workers; ++w) free_at.push(0);
  double last = 0;
  for (const double item : sorted) {
    const double done = free_at.top() + item;
    free_at.pop();
    free_at.push(done);
    last = std::max(last, done);
  }
  return last;
}

Time combined(Time t) {
  const double work = t.work_s();
  t.total_s = work + t.transfer_s - kOverlap * std::min(work, t.transfer_s);
  return t;
}

}  // namespace redblue::model
