#include "redblue/planner/time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "redblue/language/error.hpp"
#include "redblue/language/word_type.hpp"

namespace redblue::model {

namespace {

/// Cycles from a multiply-add to its result, on every processor with FMA of the last ten years; and from a product of
/// matrix tiles.
constexpr double kLatency = 4, kTileLatency = 52;
/// Rows and columns of a matrix tile.
constexpr int kTile = 16;

double share_with_lanes_along(const Rates& r, index_t along, index_t across) {
  const bool tiles = r.tile_rows > 1;
  const index_t vectors = ceil_div(along, r.lanes), rows = ceil_div(across, r.tile_rows);
  const double full = static_cast<double>(along) * static_cast<double>(across) /
                      static_cast<double>(vectors * r.lanes * rows * r.tile_rows);
  const double sums =
      static_cast<double>(std::min(rows, tiles ? 1 : kRegisterRows) * std::min(vectors, kRegisterVectors));
  return full * std::min(1.0, sums / ((tiles ? kTileLatency : kLatency) * r.vectors_per_cycle));
}

}  // namespace

std::size_t Rates::private_level() const {
  std::size_t level = 0;
  while (level + 2 < levels.size() && levels[level + 1].cores == 1) ++level;
  return level;
}

Rates Rates::without_bf16() const {
  Rates r = *this;
  if (!multiplies_bf16) return r;
  r.multiplies_bf16 = false;
  r.macs = f32_macs;
  r.vectors_per_cycle = f32_vectors_per_cycle;
  r.tile_rows = 1;
  return r;
}

double Rates::missing(std::size_t level, double bytes) const {
  if (level + 1 == levels.size()) return 0;
  const double share = level <= private_level() ? kPrivateShare : kSharedShare;
  return std::clamp(bytes / (share * static_cast<double>(levels[level].bytes)) - 1, 0.0, 1.0);
}

double Rates::seconds_per_byte(double bytes, std::size_t first) const {
  double seconds = 0, share = 1;
  for (std::size_t i = first; i < levels.size(); ++i) {
    const double beyond = missing(i, bytes);
    seconds += share * (1 - beyond) / levels[i].read_bandwidth;
    share *= beyond;
  }
  return seconds;
}

Isa largest_isa(const Hardware& hardware) {
  Isa largest = Isa::portable;
  for (const Peak& p : hardware.peaks) largest = includes(p.isa, largest) ? p.isa : largest;
  return largest;
}

Rates rates_of(const Hardware& hardware, Isa isa, DType dtype) {
  const auto find = [&](const auto& get, DType type) -> decltype(get(isa, type)) {
    for (std::optional<Isa> i = isa; i; i = next_smaller(*i))
      if (const auto* found = get(*i, type)) return found;
    return nullptr;
  };
  const auto peak = [&](Isa i, DType t) { return hardware.peak(i, t); };
  const auto exp_rate = [&](Isa i, DType t) { return hardware.exp_rate(i, t); };
  const DType arithmetic = word_of(dtype);
  const Peak* p = find(peak, dtype);
  if (p == nullptr) p = find(peak, arithmetic);
  const ExpRate* const e = find(exp_rate, arithmetic);
  if (p == nullptr || e == nullptr)
    throw InvalidProblem(fmt::format("the hardware file has no {} of {} for {} or any smaller instruction set",
                                     p == nullptr ? "peak" : "exp rate", name_of(arithmetic), name_of(isa)));
  Rates r;
  r.isa = p->isa;
  r.dtype = dtype;
  r.multiplies_bf16 = p->dtype == DType::bf16;
  r.macs = p->flops / 2 * (p->isa == Isa::amx_bf16 ? kTileShare : 1);
  r.tile_rows = p->isa == Isa::amx_bf16 ? kTile : 1;
  r.lanes = p->isa == Isa::amx_bf16 ? kTile : p->dtype == DType::bf16 ? p->macs_per_vector / 2 : p->macs_per_vector;
  r.vectors_per_cycle = p->vectors_per_cycle;
  r.exps = e->elements;
  const Peak* const f32 = find(peak, arithmetic);
  r.f32_macs = f32 != nullptr ? f32->flops / 2 : r.macs;
  r.f32_vectors_per_cycle = f32 != nullptr ? f32->vectors_per_cycle : r.vectors_per_cycle;
  const Peak* const plain = hardware.peak(Isa::portable, arithmetic);
  const ExpRate* const plain_exp = hardware.exp_rate(Isa::portable, arithmetic);
  r.portable_macs = plain != nullptr ? std::min(kPlainShare * plain->flops / 2, r.macs) : r.macs;
  r.portable_exps = plain_exp != nullptr ? std::min(plain_exp->elements, r.exps) : r.exps;
  r.word_bytes = static_cast<double>(size_of(word_of(dtype)));
  r.levels = hardware.levels;
  r.all_cores_bandwidth = hardware.all_cores_bandwidth;
  return r;
}

double register_share(const Rates& r, index_t rows, index_t cols, Lanes lanes) {
  const double in_rows = share_with_lanes_along(r, cols, rows);
  return lanes == Lanes::rows ? in_rows : std::max(in_rows, share_with_lanes_along(r, rows, cols));
}

double product_seconds(const Rates& r, index_t rows, index_t cols, double depth, double held_bytes, Lanes lanes,
                       double share) {
  if (rows == 0 || cols == 0) return 0;
  const double results = static_cast<double>(rows) * static_cast<double>(cols);
  if (r.tile_rows > 1) depth = std::ceil(depth / (2 * kTile)) * (2 * kTile);  // a matrix tile has as many pairs as rows
  return share * results * depth / (r.macs * register_share(r, rows, cols, lanes)) +
         pass_seconds(r, 2 * results, held_bytes);
}

double pass_seconds(const Rates& r, double words, double held_bytes) {
  return words * r.word_bytes * r.seconds_per_byte(held_bytes);
}

double transfer_seconds(const Rates& r, const Traffic& t, double cores) {
  const std::size_t memory = r.levels.size() - 1;
  const double per_byte_of_memory = 1 / std::min(cores * r.levels[memory].read_bandwidth, r.all_cores_bandwidth);
  // The bandwidth of caches grows with the cores at work, that of main memory up to the bandwidth of all cores.
  const auto seconds = [&](double bytes, double working_set, std::size_t first) {
    double beyond = 1;
    for (std::size_t i = first; i < memory; ++i) beyond *= r.missing(i, working_set);
    const double cached = r.seconds_per_byte(working_set, first) - beyond / r.levels[memory].read_bandwidth;
    return bytes * (cached / cores + beyond * per_byte_of_memory);
  };
  // Words that leave fast memory come back from the levels beyond it, as far as they hold what a head works on.
  std::size_t beyond = 0;
  while (beyond < memory && static_cast<double>(r.levels[beyond].bytes) <= t.fast_bytes) ++beyond;
  const bool cold = memory == 0 || r.missing(memory - 1, t.distinct_bytes) > 0;
  const double once = cold ? std::min(t.bytes, t.distinct_bytes) : 0;
  // So do the words of tiles that the private cache does not hold, each time a kernel uses them.
  const std::size_t own = r.private_level();
  const double spilled = memory == 0 ? 0 : r.missing(own, t.held_bytes) * t.touched_bytes;
  return once * per_byte_of_memory + seconds(t.bytes - once, t.instance_bytes, beyond) +
         (spilled > 0 ? seconds(spilled, t.held_bytes, own + 1) : 0);
}

double least_copy_seconds(const Rates& rates, const Traffic& traffic, double cores) {
  return traffic.bytes * rates.missing(rates.private_level(), traffic.distinct_bytes) / (kCopyRate * cores);
}

double makespan(std::span<const double> items, index_t copies, int workers) {
  double all = 0;
  for (const double item : items) all += item;
  all *= static_cast<double>(copies);
  const double count = static_cast<double>(items.size()) * static_cast<double>(copies);
  if (workers == 1 || count >= 32.0 * workers) return all / workers;  // the last item hardly matters
  // The number of items of each length.
  std::map<double, index_t, std::greater<>> longest_first;
  for (const double item : items) longest_first[item] += copies;
  std::map<double, index_t> free_at{{0, workers}};  // when workers become free, and how many
  double last = 0;
  for (auto [item, left] : longest_first)
    while (left > 0) {
      auto& [now, idle] = *free_at.begin();
      const index_t starting = std::min(idle, left);
      const double done = now + item;
      idle -= starting;
      left -= starting;
      if (idle == 0) free_at.erase(free_at.begin());
      free_at[done] += starting;
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
