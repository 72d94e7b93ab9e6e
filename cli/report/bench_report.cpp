#include "report/bench_report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "redblue/hardware/hardware.hpp"
#include "redblue/hardware/isa.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/version.hpp"
#include "redblue_commit.hpp"

namespace redblue::cli {

double BenchCell::flops() const {
  const Problem& p = plan.problem;
  if (p.method_kind() != MethodKind::exact) return plan.flops().to_double();
  const Sizes x = p.sizes();
  const Words pairs = visible_pairs(x) * (p.instances() / batches_of(x));
  const double forward = 2 * (pairs * (Words(p.d) + p.d_v)).to_double();
  if (p.op == Operation::forward) return forward;
  const double first = p.forward_given ? 0 : forward, d = static_cast<double>(p.d), d_v = static_cast<double>(p.d_v);
  if (p.op == Operation::tangent) return first + 2 * pairs.to_double() * (3 * d + 2 * d_v);
  if (p.op == Operation::second) return first + 2 * pairs.to_double() * (10 * d + 5 * d_v);
  return first + 2.5 * forward;
}

double median(const BenchCell& cell, const std::function<double(const Repetition&)>& value) {
  std::vector<double> all(cell.repetitions.size());
  std::transform(cell.repetitions.begin(), cell.repetitions.end(), all.begin(), value);
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  return (all[(n - 1) / 2] + all[n / 2]) / 2;
}

namespace {

/// Standard deviation over mean; 0 for a single repetition.
double variation(const BenchCell& cell, const std::function<double(const Repetition&)>& value) {
  const auto n = static_cast<double>(cell.repetitions.size());
  double sum = 0, squares = 0;
  for (const Repetition& r : cell.repetitions) sum += value(r);
  const double mean = sum / n;
  for (const Repetition& r : cell.repetitions) squares += (value(r) - mean) * (value(r) - mean);
  return n < 2 ? 0 : std::sqrt(squares / (n - 1)) / mean;
}

std::string name_of(const BenchCell& cell) {
  const Problem& p = cell.plan.problem;
  std::string name = fmt::format("{}/batch:{}/heads:{}/nq:{}/nk:{}/d:{}/dv:{}", redblue::name_of(p.op), p.batch,
                                 p.heads, p.n_q, p.n_k, p.d, p.d_v);
  if (p.kv_heads) name += fmt::format("/kv_heads:{}", *p.kv_heads);
  if (p.causal) name += "/causal";
  if (p.window_left || p.window_right)
    name += fmt::format("/window:{},{}", p.window_left.value_or(-1), p.window_right.value_or(-1));
  if (p.prefix > 0) name += fmt::format("/prefix:{}", p.prefix);
  if (p.dilation > 1) name += fmt::format("/dilation:{}", p.dilation);
  if (!p.forward_given) name += "/with_forward";
  return name + fmt::format("/{}/compute:{}/threads:{}", redblue::name_of(cell.dtype), redblue::name_of(cell.compute),
                            cell.measured.threads);
}

/// The part of an entry that is the same in all repetitions of a cell.
void add_counters(Json& entry, const BenchCell& cell) {
  entry["words"] = to_json(cell.measured.io.total());
  entry["bytes"] = to_json(cell.bytes);
  entry["bound_words"] = to_json(cell.plan.bound.words);
  if (plan::minimises_bytes(cell.plan.options)) entry["bound_bytes"] = to_json(plan::least_bytes(cell.plan));
  if (cell.plan.row().ratio) entry["ratio"] = *cell.plan.row().ratio;
  entry["footprint"] = to_json(cell.plan.footprint());
  entry["M"] = to_json(cell.plan.options.M);
  entry["label"] = plan::text_of(cell.plan.row());
}

constexpr double kMilli = 1e3;

/// The figures of a cell that differ between repetitions, each summarised by `of`.
template <class Of>
void add_figures(Json& entry, const Of& of, double time_scale) {
  entry["real_time"] = of([](const Repetition& r) { return r.real_seconds; }) * time_scale;
  entry["cpu_time"] = of([](const Repetition& r) { return r.cpu_seconds; }) * time_scale;
  entry["time_unit"] = "ms";
}
template <class Of>
void add_rates(Json& entry, const BenchCell& cell, const Of& of, double scale) {
  entry["GFLOPS"] = of([&](const Repetition& r) { return cell.gflops(r); });
  entry["peak_share"] = of([&](const Repetition& r) { return cell.peak_share(r); });
  entry["peak_GFLOPS"] = of([](const Repetition& r) { return r.peak; }) * scale;
}

Json head(const BenchCell& cell, std::size_t family, const std::string& suffix, const char* run_type) {
  return {{"name", name_of(cell) + suffix},  {"family_index", family}, {"per_family_instance_index", 0},
          {"run_name", name_of(cell)},       {"run_type", run_type},   {"repetitions", cell.repetitions.size()},
          {"threads", cell.measured.threads}};
}

/// The entries of a cell: one for each repetition, their median, their coefficient of variation.
void add_entries(Json& list, const BenchCell& cell, std::size_t family) {
  for (std::size_t i = 0; i < cell.repetitions.size(); ++i) {
    const auto this_one = [&](const auto& value) { return value(cell.repetitions[i]); };
    Json entry = head(cell, family, "", "iteration");
    entry["repetition_index"] = i;
    entry["iterations"] = cell.iterations;
    add_figures(entry, this_one, kMilli);
    add_rates(entry, cell, this_one, 1e-9);
    add_counters(entry, cell);
    list.push_back(std::move(entry));
  }
  const auto add = [&](const char* name, const char* unit, const auto& of, double time_scale, double rate_scale) {
    Json entry = head(cell, family, fmt::format("_{}", name), "aggregate");
    entry["aggregate_name"] = name;
    entry["aggregate_unit"] = unit;
    entry["iterations"] = cell.repetitions.size();
    add_figures(entry, of, time_scale);
    add_rates(entry, cell, of, rate_scale);
    return entry;
  };
  Json middle = add("median", "time", [&](const auto& value) { return median(cell, value); }, kMilli, 1e-9);
  add_counters(middle, cell);
  list.push_back(std::move(middle));
  list.push_back(add("cv", "percentage", [&](const auto& value) { return variation(cell, value); }, 1, 1));
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

void print_header(const BenchContext& context, bool bytes) {
  fmt::print("{}, {:.2f} GHz measured; redblue {} ({}), {}\n\n", describe_hardware().cpu, context.clock * 1e-9,
             kVersion, REDBLUE_COMMIT, redblue::name_of(best_isa()));
  fmt::print("{:<8} {:>5} {:>7} {:>7} {:>5} {:>5} {:>6} {:>4} {:>12} {:>10} {:>8} {:>15} {:>15} {:>8} {:>10}  {}\n",
             "op", "heads", "n_q", "n_k", "d", "d_v", "causal", "thr", "median ms", "GFLOP/s", "of peak",
             bytes ? "bytes moved" : "words", bytes ? "bound, bytes" : "bound", "ratio",
             bytes ? "bytes held" : "footprint", "schedule");
}

void print_line(const BenchCell& cell) {
  const Problem& p = cell.plan.problem;
  const plan::Row& row = cell.plan.row();
  const bool bytes = plan::minimises_bytes(cell.plan.options);
  // Words of a run have one width in fast memory.
  const index_t width = bytes ? static_cast<index_t>(size_of(word_of(cell.compute))) : 1;
  fmt::print(
      "{:<8} {:>5} {:>7} {:>7} {:>5} {:>5} {:>6} {:>4} {:>12.4f} {:>10.1f} {:>7.1f}% {:>15} {:>15} {:>8} {:>10}  {}\n",
      redblue::name_of(p.op), p.batch * p.heads, p.n_q, p.n_k, p.d, p.d_v, p.causal ? "yes" : "no",
      cell.measured.threads, median(cell, [](const Repetition& r) { return r.real_seconds; }) * kMilli,
      median(cell, [&](const Repetition& r) { return cell.gflops(r); }),
      median(cell, [&](const Repetition& r) { return cell.peak_share(r); }) * 100,
      (bytes ? cell.bytes : cell.measured.io.total()).str(),
      (bytes ? plan::least_bytes(cell.plan) : cell.plan.bound.words).str(),
      row.ratio ? fmt::format("{:.4f}", *row.ratio) : "-", (width * cell.plan.footprint()).str(), plan::text_of(row));
  std::fflush(stdout);
}

Json to_json(const BenchContext& context, const std::vector<BenchCell>& cells) {
  const Hardware hardware = describe_hardware();
  Json caches = Json::array(), load = Json::array(), list = Json::array();
  for (const MemoryLevel& l : hardware.levels)
    if (l.name.starts_with('L'))
      caches.push_back({{"type", l.name == "L1" ? "Data" : "Unified"},
                        {"level", std::atoi(l.name.c_str() + 1)},
                        {"size", l.bytes},
                        {"num_sharing", l.cores}});
  double averages[3];
  for (int i = 0, n = getloadavg(averages, 3); i < n; ++i) load.push_back(averages[i]);
  const std::time_t date = std::chrono::system_clock::to_time_t(context.date);
  for (std::size_t i = 0; i < cells.size(); ++i) add_entries(list, cells[i], i);
  return {{"context",
           {{"date", fmt::format("{:%FT%TZ}", fmt::gmtime(date))},
            {"host_name", host_name()},
            {"executable", "redblue bench"},
            {"num_cpus", std::thread::hardware_concurrency()},
            {"mhz_per_cpu", std::llround(context.clock * 1e-6)},
            {"cpu_scaling_enabled", false},
            {"caches", caches},
            {"load_avg", load},
            {"library_version", std::string(kVersion)},
            {"library_commit", REDBLUE_COMMIT},
            {"compiler", __VERSION__},
            {"cpu", hardware.cpu},
            {"isa", std::string(redblue::name_of(best_isa()))},
            {"REDBLUE_ISA", environment("REDBLUE_ISA")},
            {"json_schema_version", 1}}},
          {"benchmarks", list}};
}

}  // namespace redblue::cli
