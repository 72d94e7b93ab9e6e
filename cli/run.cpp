#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "redblue/verify.hpp"
#include "tensors.hpp"

namespace redblue::cli {

namespace {

struct RunFlags {
  std::string op = "forward";
  FileOptions files;
  MemoryOptions memory;
  PlannerOptions planner;
  bool causal = false;
  std::optional<index_t> causal_offset;
  std::optional<double> scale;
  std::optional<std::string> compute_dtype;
  bool verify = false;
  bool json = false;
  bool quiet = false;

  void add_to(CLI::App& app) {
    app.add_option("--op", op, "operation: forward")->type_name("NAME");
    app.add_option("--input", files.input, "safetensors file with q [batch, heads, n_q, d], k, v")->type_name("FILE");
    app.add_option("--output", files.output, "safetensors file to write o and lse to")->type_name("FILE");
    app.add_option("--name", files.names, "name of a tensor in these files: q=query (repeatable; q k v o lse)")
        ->type_name("TENSOR=NAME");
    app.add_option("--q", files.q, "queries, .npy [n, d], [heads, n, d] or [batch, heads, n, d]")->type_name("FILE");
    app.add_option("--k", files.k, "keys, .npy")->type_name("FILE");
    app.add_option("--v", files.v, "values, .npy")->type_name("FILE");
    app.add_option("--o", files.o, "output, .npy")->type_name("FILE");
    app.add_option("--lse", files.lse, "log of the row sums, .npy")->type_name("FILE");
    memory.add_to(app);
    planner.add_to(app, false);  // a run knows the widths of its files
    app.add_flag("--causal", causal, "query i sees keys j <= i + offset");
    app.add_option("--causal-offset", causal_offset, "default n_k - n_q (the last query sees all keys)");
    app.add_option("--scale", scale, "factor of the scores (default 1 / sqrt(d))");
    app.add_option("--compute-dtype", compute_dtype,
                   "arithmetic in f64 or f32 (default: f64 if an input is f64, else f32)");
    app.add_flag(
        "--verify", verify,
        "compare with attention in fp64, row by row; the output is written either way, exit code 1 says it differs");
    app.add_flag("--json", json, "print JSON");
    app.add_flag("--quiet", quiet, "print nothing but errors");
  }
};

Problem problem_of(const RunFlags& flags, const Inputs& in) {
  Problem p;
  p.batch = in.q.shape[0];
  p.heads = in.q.shape[1];
  p.kv_heads = in.k.shape[1];
  p.n_q = in.q.shape[2];
  p.n_k = in.k.shape[2];
  p.d = in.q.shape[3];
  p.d_v = in.v.shape[3];
  p.causal = flags.causal || flags.causal_offset.has_value();
  p.causal_offset = flags.causal_offset;
  p.scale = flags.scale;
  p.lse_required = flags.files.output.has_value() || flags.files.lse.has_value();
  for (const auto& [name, t] : {std::pair("q", in.q), std::pair("k", in.k), std::pair("v", in.v)})
    for (const index_t size : t.shape)
      if (size < 1)
        throw InvalidProblem(
            fmt::format("{} is [{}]: every dimension must be at least 1", name, fmt::join(t.shape, ", ")));
  const auto disagree = [&](const char* what, const char* a, const Tensor& x, const char* b, const Tensor& y) {
    return InvalidProblem(fmt::format("{} [{}] and {} [{}] disagree in {}", a, fmt::join(x.shape, ", "), b,
                                      fmt::join(y.shape, ", "), what));
  };
  if (in.k.shape[0] != p.batch) throw disagree("batch size (dimension 0)", "q", in.q, "k", in.k);
  if (in.v.shape[0] != p.batch) throw disagree("batch size (dimension 0)", "q", in.q, "v", in.v);
  if (in.v.shape[1] != in.k.shape[1]) throw disagree("heads (dimension 1)", "k", in.k, "v", in.v);
  if (in.v.shape[2] != in.k.shape[2]) throw disagree("number of keys (dimension 2)", "k", in.k, "v", in.v);
  if (in.k.shape[3] != p.d) throw disagree("head dimension (dimension 3)", "q", in.q, "k", in.k);
  p.validate();
  return p;
}

Json deviation_to_json(const Deviation& d) {
  return {{"error", d.error},
          {"naive_error", d.naive_error},
          {"tolerance", d.tolerance},
          {"nan_mismatches", d.nan_mismatches},
          {"ok", d.ok()}};
}

Json verification_to_json(const Verification& v) {
  return {{"ok", v.ok()},
          {"o", deviation_to_json(v.o)},
          {"lse", deviation_to_json(v.lse)},
          {"nan_inputs", {{"q", v.nan_inputs[0]}, {"k", v.nan_inputs[1]}, {"v", v.nan_inputs[2]}}},
          {"nan_outputs", v.nan_outputs}};
}

void print_text(const Verification& v, bool with_lse) {
  std::vector outputs{std::pair("o", v.o)};
  if (with_lse) outputs.emplace_back("lse", v.lse);
  for (const auto& [name, d] : outputs)
    fmt::print("verify {:<4} error {:.2e}, tolerance {:.2e} (plain attention in the compute type: {:.2e}): {}\n", name,
               d.error, d.tolerance, d.naive_error, d.ok() ? "ok" : "WRONG");
  if (v.nan_inputs[0] + v.nan_inputs[1] + v.nan_inputs[2] + v.nan_outputs > 0)
    fmt::print("verify: NaN in the inputs (q {}, k {}, v {} entries) and the outputs ({} entries): FAILED\n",
               v.nan_inputs[0], v.nan_inputs[1], v.nan_inputs[2], v.nan_outputs);
}

void print_text(const plan::Plan& plan, const Measured& m, double seconds) {
  const plan::Row& row = plan.row();
  std::string tiling;
  for (const schedule::Knob& k : row.tiling) tiling += fmt::format(" {}={}", k.name, k.value);
  fmt::print("{}{}: {}\n", row.schedule, tiling, plan.reason);
  fmt::print("{:<14} {:>20} {:>20} {:>20}\n", "", "moved", "formula", "bound");
  const auto line = [](const char* what, Words a, Words b, const std::string& c) {
    fmt::print("{:<14} {:>20} {:>20} {:>20}\n", what, a.str(), b.str(), c);
  };
  line("words", m.io.total(), row.io.total(), fmt::format("{} ({})", plan.bound.words.str(), plan.bound.name));
  line("  read", m.io.total_reads(), row.io.total_reads(), "");
  line("  written", m.io.total_writes(), row.io.total_writes(), "");
  line("fast memory", m.peak, row.footprint, fmt::format("M = {}", plan.options.M.str()));
  if (row.ratio) fmt::print("{:<14} {:>20.4f}\n", "ratio", *row.ratio);
  fmt::print("{:<14} {:>20.3f} s, {:.2f} GFLOP/s\n", "time", seconds, m.flops.to_double() / seconds * 1e-9);
  if (m.staging_words > 0 || m.converted_words > 0)
    fmt::print("beside fast memory: {} staging words, {} output words held in the compute type\n",
               m.staging_words.str(), m.converted_words.str());
}

int run_command(const RunFlags& flags) {
  require_forward(flags.op);
  flags.files.validate();
  const LoadedInputs loaded = load_inputs(flags.files);
  const Inputs in = loaded.views();
  const Problem problem = problem_of(flags, in);
  const bool any_f64 = in.q.dtype == DType::f64 || in.k.dtype == DType::f64 || in.v.dtype == DType::f64;
  RunOptions options;
  options.compute = flags.compute_dtype ? parse_dtype("--compute-dtype", *flags.compute_dtype)
                    : any_f64           ? DType::f64
                                        : DType::f32;
  if (options.compute != DType::f32 && options.compute != DType::f64)
    throw Unsupported(fmt::format("--compute-dtype {}: arithmetic is f32 or f64", *flags.compute_dtype));
  plan::Options planner = flags.planner.options(flags.memory.words(options.compute));
  const plan::Plan plan = plan::make_plan(problem, planner);

  OutputFiles outputs(flags.files, problem, in.q.dtype, any_f64 ? DType::f64 : DType::f32, loaded.rank);
  const auto start = std::chrono::steady_clock::now();
  Measured measured;
  {
    Progress progress(flags.quiet);
    options.progress = progress.callback();
    measured = run(plan, in, outputs.views(), options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::optional<Verification> verification;
  if (flags.verify) verification = verify(problem, in, outputs.views(), options.compute);
  outputs.commit();

  const plan::Row& row = plan.row();
  if (flags.json) {
    Json j{{"schema", "redblue.run/1"},
           {"problem", to_json(problem)},
           {"M", to_json(plan.options.M)},
           {"schedule", std::string(row.schedule)},
           {"tiling", to_json(row.tiling)},
           {"compute_dtype", std::string(name_of(options.compute))},
           {"moved", counts_to_json(measured.io, measured.peak, measured.flops)},
           {"formula", counts_to_json(row.io, row.footprint, row.flops)},
           {"bound", to_json(plan.bound)},
           {"ratio", row.ratio ? Json(*row.ratio) : Json(nullptr)},
           {"staging_words", to_json(measured.staging_words)},
           {"converted_words", to_json(measured.converted_words)},
           {"seconds", seconds},
           {"reason", plan.reason}};
    if (verification) j["verify"] = verification_to_json(*verification);
    print(j);
  } else if (!flags.quiet) {
    print_text(plan, measured, seconds);
    if (verification) print_text(*verification, outputs.views().lse.data != nullptr);
  }
  return verification && !verification->ok() ? 1 : 0;
}

}  // namespace

void add_run(CLI::App& program, int& exit_code) {
  auto* app = program.add_subcommand("run", "compute attention on files, with every word counted");
  app->footer(
      "Examples:\n"
      "  redblue run --M 4096 --input X.safetensors --output Y.safetensors --verify\n"
      "  redblue run --memory 64KiB --q Q.npy --k K.npy --v V.npy --o O.npy --lse L.npy --causal --compute-dtype f64");
  auto flags = std::make_shared<RunFlags>();
  flags->add_to(*app);
  app->callback([flags, &exit_code] { exit_code = run_command(*flags); });
}

}  // namespace redblue::cli
