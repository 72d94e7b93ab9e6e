#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>

#include "commands/commands.hpp"
#include "files/random_arrays.hpp"
#include "options/options.hpp"
#include "redblue/hardware/hardware.hpp"
#include "redblue/hardware/isa.hpp"
#include "redblue/language/word_type.hpp"
#include "report/bench_report.hpp"

namespace redblue::cli {

namespace {

struct BenchFlags {
  ProblemOptions problem;  ///< its n, n_q, n_k, d and d_v come from the lists
  std::optional<std::string> n, n_q, n_k, d, d_v;
  std::optional<index_t> threads;
  index_t repetitions = 5;
  double min_time = 0.2;

  void add_to(const Command& command) {
    const auto list = [&](const char* name, std::optional<std::string>& to, const char* what) {
      return command.option(name, to, what).type_name("LIST");
    };
    list("--n", n, "queries and keys, where --nq or --nk does not say otherwise; 512,2048: a grid");
    list("--nq", n_q, "queries");
    list("--nk", n_k, "keys");
    list("--d", d, "head dimension of queries and keys; 64,128: a grid").required();
    list("--dv", d_v, "head dimension of values (default: --d)");
    problem.add_without_sizes(command, true, 2);  // forward and backward
    command.option("--threads", threads, "threads (default: as for run)");
    command.option("--repetitions", repetitions, "number of timed repetitions; the median is printed");
    command.option("--min-time", min_time,
                   "least seconds of one repetition, which consists of as many runs as that takes");
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// One plan with its tensors.
class Bench {
 public:
  Bench(plan::Plan plan, DType dtype, const RunOptions& options) : options_(options) {
    cell_.plan = std::move(plan);
    cell_.dtype = dtype;
    cell_.compute = options.compute;
    const Problem& p = cell_.plan.problem;
    for (const SlowArray a : inputs_of(p))
      if (!comes_from_forward(a)) tensors_[a] = arrays_.normal(shape_of(p, a), dtype);
    if (follows_forward(p.op) && p.forward_given) run_forward();
    for (const SlowArray a : outputs_of(p))
      if (cell_.plan.row().io.writes[index_of(a)] > 0) tensors_[a] = output(p, a);
  }

  BenchCell measure(index_t repetitions, double min_time) {
    double once = time(1).real_seconds;  // a warm-up for pages, caches and threads
    if (once < min_time) once = time(1).real_seconds;
    cell_.iterations = static_cast<int>(std::clamp(std::ceil(min_time / once), 1.0, 1e9));
    for (index_t i = 0; i < repetitions; ++i) {
      const double peak = sample_peak(*isa_from_name(cell_.measured.kernels), type_of_products());
      cell_.repetitions.push_back(time(cell_.iterations));
      cell_.repetitions.back().peak = peak;
    }
    cell_.bytes = bytes_moved();
    return cell_;
  }

 private:
  static bool comes_from_forward(SlowArray a) { return a == SlowArray::O || a == SlowArray::lse; }
  Tensor output(const Problem& p, SlowArray a) {
    return arrays_.zeros(shape_of(p, a), is_statistic(a) ? word_of(cell_.dtype) : cell_.dtype);
  }
  void run_forward() {
    const Problem forward = cell_.plan.problem.forward();
    Tensors tensors = tensors_;
    for (const SlowArray a : outputs_of(forward)) tensors[a] = tensors_[a] = output(forward, a);
    run(plan::make_plan(forward, {.M = cell_.plan.options.M}), tensors, options_);
  }
  DType type_of_products() const {
    if (options_.compute != DType::bf16) return options_.compute;
    const Isa isa = isa_from_name(cell_.measured.kernels).value_or(Isa::portable);
    return facts_of(isa).multiplies_bf16 ? DType::bf16 : DType::f32;
  }
  Repetition time(int iterations) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    for (int i = 0; i < iterations; ++i) cell_.measured = run(cell_.plan, tensors_, options_);
    const double n = iterations;
    return {seconds_since(start) / n, static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC / n};
  }
  Words bytes_moved() const {
    const auto bytes_of = [&](const Io& io, const plan::Plan& plan) {
      plan::Options widths = plan.options;
      if (!plan::has_widths(widths)) set_widths(widths, plan.problem, cell_.dtype, word_of(options_.compute), {});
      return plan::bytes_of(io, widths, plan.problem.op).total();
    };
    const plan::Plan& plan = cell_.plan;
    if (plan.forward == nullptr) return bytes_of(cell_.measured.io, plan);
    return bytes_of(plan.forward->row().io, *plan.forward) + bytes_of(plan.row().io, plan);
  }

  RunOptions options_;
  RandomArrays arrays_;
  Tensors tensors_;
  BenchCell cell_;
};

/// The list, or one that leaves it open.
std::vector<std::optional<index_t>> choices(const char* option, const std::optional<std::string>& text) {
  if (!text) return {std::nullopt};
  const std::vector<index_t> list = parse_list(option, *text);
  return {list.begin(), list.end()};
}

/// Throws MemoryError where tensors of the plan's problem are more than the machine can hold.
void require_memory(const Problem& p, DType dtype) {
  Words bytes;
  for (const auto& list : {inputs_of(p), outputs_of(p)})
    for (const SlowArray a : list) {
      const auto [batch, heads, rows, cols] = shape_of(p, a);
      bytes += Words(batch) * heads * rows * cols * size_of(is_statistic(a) ? word_of(dtype) : dtype);
    }
  if (const Words have = describe_hardware().levels.back().bytes; bytes > have)
    throw MemoryError(
        fmt::format(
            "not enough memory: the tensors for n_q = {}, n_k = {}, d = {} take {} bytes, and this machine has {}",
            p.n_q, p.n_k, p.d, bytes.str(), have.str()),
        bytes, have);
}

int bench(const BenchFlags& flags) {
  constexpr index_t kMostRepetitions = 1'000'000;
  if (flags.repetitions < 1 || flags.repetitions > kMostRepetitions)
    throw InvalidProblem(
        fmt::format("--repetitions {}: give a number from 1 to {}", flags.repetitions, kMostRepetitions));
  if (!(flags.min_time >= 0 && flags.min_time <= 3600))
    throw InvalidProblem(fmt::format("--min-time {}: give seconds from 0 to 3600", flags.min_time));
  ProblemOptions problem = flags.problem;
  if (problem.planner.flags.given("keys_per_scale"))
    throw Unsupported("--keys-per-scale: bench runs on arrays of --dtype; plan, count and explain take it");
  const DType dtype = parse_dtype("--dtype", problem.dtype);
  RunOptions options;
  options.compute = problem.compute();
  options.threads = threads_of(flags.threads);
  problem.objective.choose_for_run(problem.memory);
  if (problem.objective.words() && !problem.memory.given()) problem.memory.memory = assumed_memory();

  std::vector<plan::Plan> plans;  // all before the first run: what is wrong shows at once
  for (const auto n : choices("--n", flags.n))
    for (const auto n_q : choices("--nq", flags.n_q))
      for (const auto n_k : choices("--nk", flags.n_k))
        for (const index_t d : parse_list("--d", *flags.d))
          for (const auto d_v : choices("--dv", flags.d_v)) {
            problem.n = n;
            problem.n_q = n_q;
            problem.n_k = n_k;
            problem.d = d;
            problem.d_v = d_v;
            const Problem p = problem.problem();
            if (p.op != Operation::forward && p.op != Operation::backward && !has_directions(p.op))
              throw Unsupported(
                  fmt::format("bench --op {}: choose from forward, backward, tangent, second", redblue::name_of(p.op)));
            require_memory(p, dtype);
            plans.push_back(problem.plan(options, options.threads > 0 ? options.threads : default_pool().size()));
          }

  BenchContext context;
  context.clock = sample_clock();
  std::vector<BenchCell> cells;
  for (plan::Plan& plan : plans) {
    cells.push_back(Bench(std::move(plan), dtype, options).measure(flags.repetitions, flags.min_time));
    if (problem.json) continue;
    if (cells.size() == 1) print_header(context, plan::minimises_bytes(cells.back().plan.options));
    print_line(cells.back());
  }
  if (problem.json) print(to_json(context, cells));
  return 0;
}

}  // namespace

void add_bench(Program& program) {
  const Command command = program.command("bench", "time plans on random data, beside their exact words");
  command.footer(
      "Random normal inputs; a warm-up, then medians. GFLOP/s: 2 (d + d_v) flops for each pair of a query and a\n"
      "key that it sees, 2.5 times that backward, 2 (3 d + 2 d_v) for tangent, 2 (10 d + 5 d_v) for second; with\n"
      "--approximate those of the schedule. Of peak: share of a loop of multiply-adds on as many cores, measured\n"
      "right before. With --M or --memory plans move the fewest words, else they have the least modelled time on\n"
      "this machine, which is measured if redblue doctor has not done it;\n"
      "--objective overrides this.\n"
      "Examples:\n"
      "  redblue bench --n 512,2048 --d 64,128 --heads 8 --threads 1\n"
      "  redblue bench --op backward --n 2048 --d 64 --heads 8 --causal --M 65536 --schedule two_pass --json\n"
      "  redblue bench --nq 1 --nk 131072 --d 128 --heads 8 --dtype bf16");
  auto flags = std::make_shared<BenchFlags>();
  flags->add_to(command);
  command.does([flags] { return bench(*flags); });
}

}  // namespace redblue::cli
