#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "commands/commands.hpp"
#include "commands/over_files.hpp"
#include "commands/run_ranks.hpp"
#include "files/huge_rows.hpp"
#include "files/nan.hpp"
#include "files/slopes.hpp"
#include "files/tensors.hpp"
#include "files/unused.hpp"
#include "options/options.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/problem/text.hpp"
#include "redblue/verify/verify.hpp"
#include "report/approximations.hpp"
#include "report/json.hpp"
#include "report/progress.hpp"
#include "report/ram.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {

namespace {

struct RunFlags {
  OperationOptions operation;
  FileOptions files;
  MemoryOptions memory;
  PlannerOptions planner;
  ObjectiveOptions objective;
  MaskOptions mask;
  ProblemFlags flags;
  RanksOptions ranks;
  ResumeOptions resume;
  std::optional<double> scale;
  std::optional<std::string> compute_dtype;
  std::optional<index_t> threads;
  std::optional<double> tolerance;
  std::optional<std::string> certificate;
  bool verify = false;
  bool json = false;
  bool quiet = false;

  void add_to(const Command& command) {
    operation.add_to(command, flags);
    files.add_to(command);
    memory.add_to_run(command);
    resume.add_to(command);
    planner.add_to(command, false);  // a run knows the widths of its files
    objective.add_to(command);
    mask.add_to(command, flags);
    add_modifiers(command, flags);
    flags.add(command, "accumulate");
    flags.add_others(command, false);
    command.option("--scale", scale, "factor of the scores (default 1 / sqrt(d); 1 with X and Y)");
    add_compute_dtype(command, compute_dtype);
    command.option("--threads", threads,
                   "threads, each with fast memory of M words (default: as many as the work is worth, at most one for "
                   "each CPU or what the environment variable REDBLUE_THREADS says)");
    command
        .option("--tolerance", tolerance,
                "polynomial attention whose output is proved to be within this many max|V| of exact attention, of the "
                "least degree that proves it, or by rows; or exact attention, where it costs no more: 1e-3; "
                "forward")
        .type_name("EPS");
    command
        .option("--certificate", certificate,
                "with --tolerance or --approximate: file to write what is proved to, JSON, for "
                "scripts/check_certificate.py")
        .type_name("FILE");
    ranks.add_to(command, RanksOptions::For::runs);
    command.flag("--verify", verify,
                 "compare with attention or its gradients in fp64, row by row, and gradients with central differences; "
                 "writes the output in any case; the exit code is 1 if it differs");
    command.flag("--json", json, "print JSON");
    command.flag("--quiet", quiet, "print nothing but errors");
  }
};

Json deviation_to_json(const Deviation& d) {
  return {{"error", d.error},
          {"naive_error", d.naive_error},
          {"tolerance", d.tolerance},
          {"nan_mismatches", d.nan_mismatches},
          {"ok", d.ok()}};
}

Json verification_to_json(const Verification& v) {
  Json j{{"ok", v.ok()}};
  for (const Deviation& d : v.outputs) j[d.name] = deviation_to_json(d);
  Json given = Json::object(), differences = Json::object(), nan = Json::object();
  for (const GivenInput& g : v.given) given[g.name] = {{"error_over_allowed", g.error}, {"ok", g.ok()}};
  for (const Difference& d : v.differences)
    differences[d.name] = {
        {"gradient", d.gradient}, {"difference", d.difference}, {"tolerance", d.tolerance}, {"ok", d.ok()}};
  for (const auto& [name, n] : v.nan_inputs) nan[name] = n;
  if (v.nearness)
    j["nearness"] = {{"largest_score", v.nearness->largest_score},
                     {"range", v.nearness->range},
                     {"distance", v.nearness->distance},
                     {"relative", v.nearness->relative},
                     {"proved", v.nearness->in_range() ? Json(v.nearness->proved) : Json(nullptr)},
                     {"ok", v.nearness->in_range() ? Json(v.nearness->ok()) : Json(nullptr)}};
  if (!v.given.empty()) j["given"] = given;
  if (!v.differences.empty()) j["central_differences"] = differences;
  j["nan_inputs"] = nan;
  j["nan_outputs"] = v.nan_outputs;
  return j;
}

/// How far o is from exact attention, and what is proved of that.
void print_text(const Nearness& n) {
  if (!(n.relative <= 0))  // NaN, too
    fmt::print("verify: o is {:.3g} max|V| from exact attention, {:.3g} of its Frobenius norm at most\n", n.distance,
               n.relative);
  if (n.range == 0) return;
  if (!n.in_range())
    fmt::print("verify: {}\n", n.by_rows ? fmt::format("nothing is proved of that: {}", n.unproved)
                                         : fmt::format("scores reach {:.4g}, the polynomial is for {} at most: nothing "
                                                       "is proved of its error",
                                                       n.largest_score, n.range));
  else if (n.distance > 0)
    fmt::print("verify: {}, proved {:.3g} max|V|: {}\n",
               n.by_rows ? "whatever the scores" : fmt::format("scores reach {:.4g} of {}", n.largest_score, n.range),
               n.proved, n.ok() ? "ok" : "WRONG");
}

void print_text(const Verification& v) {
  for (const Deviation& d : v.outputs)
    fmt::print("verify {:<4} error {:.2e}, tolerance {:.2e} (plain attention in the compute type: {:.2e}): {}\n",
               d.name, d.error, d.tolerance, d.naive_error, d.ok() ? "ok" : "WRONG");
  for (const GivenInput& g : v.given)
    fmt::print("verify {:<4} as given: error {:.2f} of what its rounding allows: {}\n", g.name, g.error,
               g.ok() ? "ok" : "WRONG");
  for (const Difference& d : v.differences)
    fmt::print("verify {:<4} along a random direction {:.6e}, central differences {:.6e}, tolerance {:.1e}: {}\n",
               d.name, d.gradient, d.difference, d.tolerance, d.ok() ? "ok" : "WRONG");
  if (v.nearness) print_text(*v.nearness);
  std::string inputs;
  for (const auto& [name, n] : v.nan_inputs) inputs += fmt::format("{}{} {}", inputs.empty() ? "" : ", ", name, n);
  if (!inputs.empty() || v.nan_outputs > 0)
    fmt::print("verify: NaN in the inputs ({} entries) and the outputs ({} entries): FAILED\n",
               inputs.empty() ? "0" : inputs, v.nan_outputs);
}

/// Verifies what a run wrote. The outputs of a forward pass that it keeps come first.
Verification verified(const plan::Plan& plan, const Tensors& tensors, const Tensors& given, const RunOptions& options) {
  if (plan.problem.accumulate || plan.problem.op == Operation::merge)
    return verify(plan.problem, tensors, given, options.compute, roundings_of(plan));
  Verification v = verify(plan.problem, tensors, options.compute, roundings_of(plan));
  if (options.forward.o.data == nullptr && options.forward.lse.data == nullptr) return v;
  const Verification forward = verify(plan.problem.forward(), tensors, options.compute, roundings_of(*plan.forward));
  v.outputs.insert(v.outputs.begin(), forward.outputs.begin(), forward.outputs.end());
  v.nan_outputs += forward.nan_outputs;
  return v;
}

/// Did a run move what its formula says? Where data decide, the formula is of the most that any data cost.
bool is_formula(const Measured& m, const plan::Plan& plan) {
  return m.decisions.asked > 0 ? m.io.total() <= plan.io().total() : m.io == plan.io();
}

void print_text(const plan::Plan& plan, const Measured& m, double seconds, const std::string& layout) {
  const plan::Row& row = plan.row();
  const Problem& p = plan.problem;
  fmt::print("{} as {}: batch {}, heads {} ({} key-value), {} queries, {} keys, d {}, d_v {}\n",
             tensor_name(inputs_of(p).front()), layout, p.batch, p.heads, p.kv_heads.value_or(p.heads), p.n_q, p.n_k,
             p.d, p.d_v);
  if (const std::string more = mask_text(p); !more.empty()) fmt::print("with {}\n", more.substr(2));
  if (plan.forward) fmt::print("{} computes o and lse first, its words are counted\n", plan.forward->row().schedule);
  fmt::print("{}: {}\n", plan::text_of(row), plan.reason);
  const Io io = plan.io();
  fmt::print("{:<14} {:>20} {:>20} {:>20}\n", "", "moved", "formula", "bound");
  const auto line = [](const char* what, Words a, Words b, const std::string& c) {
    fmt::print("{:<14} {:>20} {:>20} {:>20}\n", what, a.str(), b.str(), c);
  };
  line("words", m.io.total(), io.total(), fmt::format("{} ({})", plan.bound.words.str(), plan.bound.name));
  line("  read", m.io.total_reads(), io.total_reads(), "");
  line("  written", m.io.total_writes(), io.total_writes(), "");
  if (plan::minimises_bytes(plan.options))
    fmt::print("{:<14} {:>20} {:>20} {:>20}\n", "in bytes", "", plan::bytes_of(plan).total().str(),
               plan::least_bytes(plan).str());
  line("fast memory", m.peak, plan.footprint(), fmt::format("M = {}", plan.options.M.str()));
  if (m.decisions.asked > 0)
    fmt::print("{:<14} {:>20} of {}; the formula is of the most that any data cost, all {}\n", "exact rows",
               m.decisions.worst, m.decisions.asked, m.decisions.asked);
  if (row.ratio) fmt::print("{:<14} {:>20.4f}\n", "ratio", *row.ratio);
  fmt::print("{:<14} {:>20.3g} s, {:.2f} GFLOP/s with {} kernels, {}\n", "time", seconds,
             m.flops.to_double() / seconds * 1e-9, m.kernels,
             m.threads == 1 ? "1 thread"
                            : fmt::format("{} threads, of which none moved more than {} words", m.threads,
                                          m.most_per_thread.str()));
  if (row.time) fmt::print("{:<14} {:>20.3g} s\n", "modelled", row.time->total_s);
  if (plan.options.cap)
    fmt::print("{:<14} {:>20} {:>20} beside inputs and outputs, of at most {}\n", "bytes", m.bytes.str(), "",
               plan.options.cap->most.str());
  if (m.staging_words > 0 || m.converted_words > 0)
    fmt::print("beside fast memory: {} staging words, {} output words held in the compute type\n",
               m.staging_words.str(), m.converted_words.str());
}

void print_report(const RunFlags& flags, const std::string& layout, const plan::Plan& plan, const Measured& measured,
                  double seconds, const std::optional<Verification>& verification, const Proof& proof, DType compute,
                  const std::vector<std::string>& unused, const Ram& ram, const OverFiles& over_files) {
  const plan::Row& row = plan.row();
  if (flags.json) {
    Json j{{"schema", "redblue.run/1"},
           {"problem", to_json(plan.problem)},
           {"layout", layout},
           {"M", to_json(plan.options.M)},
           {"schedule", std::string(row.schedule)},
           {"tiling", to_json(row.tiling)},
           {"own_tilings", own_tilings_to_json(row.tiling)},
           {"compute_dtype", std::string(name_of(compute))},
           {"moved", counts_to_json(measured.io, measured.peak, measured.flops)},
           {"formula", counts_to_json(plan.io(), plan.footprint(), plan.flops())},
           {"bound", to_json(plan.bound)},
           {"ratio", row.ratio ? Json(*row.ratio) : Json(nullptr)},
           {"decisions", {{"asked", measured.decisions.asked}, {"worst", measured.decisions.worst}}},
           {"kernels", std::string(measured.kernels)},
           {"threads", measured.threads},
           {"most_words_per_thread", to_json(measured.most_per_thread)},
           {"staging_words", to_json(measured.staging_words)},
           {"padding_words", to_json(measured.padding_words)},
           {"converted_words", to_json(measured.converted_words)},
           {"workspace_bytes", to_json(measured.bytes)},
           {"seconds", seconds},
           {"modelled_time", row.time ? to_json(*row.time) : Json(nullptr)},
           {"work", work_to_json(row)},
           {"reason", plan.reason},
           {"ram", ram.json()},
           {"unused", unused}};
    if (plan.forward) j["forward"] = to_json(plan.forward->row());
    if (verification) j["verify"] = verification_to_json(*verification);
    proof.add_to(j, plan.problem);
    over_files.add_to(j, seconds);
    print(j);
  } else if (!flags.quiet) {
    print_text(plan, measured, seconds, layout);
    over_files.print(seconds);
    if (verification) print_text(*verification);
    proof.print();
  }
}

/// Throws InvalidProblem where --tolerance or --certificate do not go with the rest.
void require_provable(const RunFlags& flags, const Problem& kind) {
  if (flags.tolerance) require_tolerance(*flags.tolerance);
  if (flags.tolerance && kind.method_kind() != MethodKind::exact)
    throw InvalidProblem("--tolerance and --approximate: give one of them; --tolerance finds the degree");
  if (flags.certificate && !flags.tolerance && kind.method_kind() == MethodKind::exact)
    throw InvalidProblem("--certificate is for --tolerance or --approximate: exact attention has nothing to prove");
  std::vector<std::optional<std::string>> others{flags.files.input, flags.files.output};
  others.reserve(2 + flags.files.npy.size());
  for (const auto& [name, path] : flags.files.npy) others.push_back(path);
  for (const auto& path : others)
    if (flags.certificate && path && file::same_file(*path, *flags.certificate))
      throw InvalidProblem(
          fmt::format("--certificate {} is also a file of tensors: choose another file", *flags.certificate));
  if ((flags.tolerance || flags.certificate) && kind.op != Operation::forward)
    throw InvalidProblem(
        fmt::format("--tolerance and --certificate are for --op forward: nothing is proved of {}", name_of(kind.op)));
}

/// Where an approximation of finite inputs has its first output that is not finite, as "o has a NaN at [0, 0, 3, 5]".
std::optional<std::string> not_finite(const Problem& p, const Tensors& t) {
  const auto first_of = [&](const std::vector<SlowArray>& arrays) -> std::optional<std::string> {
    for (const SlowArray a : arrays) {
      if (a == SlowArray::lse || t[a].data == nullptr) continue;  // lse is -inf where a query sees no key
      if (const auto where = first_unwanted(t[a], Unwanted::nan_or_infinite))
        return fmt::format("{} has {}", tensor_name(a), *where);
    }
    return std::nullopt;
  };
  if (p.method_kind() == MethodKind::exact) return std::nullopt;
  const auto found = first_of(outputs_of(p));
  return found && !first_of(inputs_of(p)) ? found : std::nullopt;
}

/// The run, and how many queries have gradients that are not those of the maths.
std::pair<Measured, index_t> run_and_judge(const plan::Plan& plan, Tensors tensors, RunOptions options) {
  const Problem& p = plan.problem;
  std::vector<double> own;
  if (p.forward_first() && p.bias && options.forward.lse.data == nullptr) {
    const auto shape = shape_of(p, SlowArray::lse);
    own.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
    options.forward.lse = Tensor(own.data(), options.compute == DType::f64 ? DType::f64 : DType::f32, shape);
  }
  const Measured measured = run(plan, tensors, options);
  if (p.forward_first()) tensors[SlowArray::lse] = options.forward.lse;
  return {measured, huge_rows(p, tensors, options.compute)};
}

/// The tensors of --input that a run does not read.
std::vector<std::string> unused_by(const RunFlags& flags, const Archive* archive, const LoadedInputs& loaded,
                                   const Problem& kind) {
  if (archive == nullptr) return {};
  const PatternOptions& pattern = flags.mask.pattern;
  std::set<std::string> given;
  for (const auto& [option, is_given] : {std::pair{"--mask", pattern.mask || pattern.blocks || pattern.csr},
                                         {"--bias", flags.files.npy.at("bias").has_value()},
                                         {"--slopes", flags.files.npy.at("slopes").has_value()},
                                         {"--sinks", flags.files.npy.at("sinks").has_value()},
                                         {"--scale", flags.scale.has_value()},
                                         {"--softcap", kind.softcap > 0},
                                         {"--dropout", kind.dropout > 0},
                                         {"--causal", kind.causal},
                                         {"--window", flags.mask.window.has_value()},
                                         {"--seqlens", flags.mask.sequences.seqlens.has_value()},
                                         {"--seqused-k", flags.mask.sequences.seqused_k.has_value()}})
    if (is_given) given.insert(option);
  return unused_names(flags.files, *archive, loaded.used(), kind, given, true);
}

int run_command(const RunFlags& flags) {
  Problem kind;
  flags.operation.apply_to(kind, flags.flags);
  require_provable(flags, kind);
  if (flags.quiet && flags.json) throw InvalidProblem("--quiet and --json: give one of them");
  if (!flags.quiet) require_standard_output();
  progress_period();  // throws where the environment is wrong
  flags.mask.apply_to(kind, flags.flags);
  const std::unique_ptr<Archive> archive = flags.files.opened();
  flags.files.add_modifiers_to(kind, archive.get());
  flags.files.validate(kind);
  kind.scale = flags.scale;
  kind.lse_required = is_forward(kind.op) && kind.has_statistics() && flags.files.wants("lse");
  OverFiles over_files(flags.ranks.given() ? MemoryOptions{} : flags.memory, flags.resume);
  over_files.require_heeded(kind, flags.planner, flags.objective, flags.files, flags.verify,
                            flags.tolerance || flags.certificate);
  const LoadedInputs loaded(flags.files, kind, archive.get(), over_files.map());
  Problem problem = loaded.problem(kind);
  const std::vector<std::string> unused = unused_by(flags, archive.get(), loaded, kind);
  flags.mask.apply_patterns(problem, flags.planner);
  flags.planner.apply_to(problem);
  if (over_files.asked() && flags.planner.order == "auto" && !problem.patterns.empty())
    problem.take_order(PatternOrder::in_place);  // rows that move would be copied one by one
  problem.validate();
  RunOptions options;
  options.compute = compute_of(flags.compute_dtype, loaded.any_f64());
  if (flags.verify && options.compute == DType::bf16)
    throw Unsupported("--verify with --compute-dtype bf16: there is no tolerance for it yet; verify with f32 or f64");
  options.threads = threads_of(flags.threads);

  if (flags.planner.flags.given("keys_per_scale"))
    throw Unsupported(
        "--keys-per-scale: run reads keys and values of floats; plan, count and explain take it, and int8 arrays run "
        "in "
        "C++, C and Python");
  ObjectiveOptions objective = flags.objective;
  objective.choose_for_run(flags.memory);
  Tensors tensors = loaded.tensors();
  std::vector<double> slopes;
  std::vector<float> rounded;
  if (problem.alibi && tensors[SlowArray::slopes].data == nullptr) {
    slopes = alibi_slopes(problem.heads);
    rounded.assign(slopes.begin(), slopes.end());
    const auto shape = shape_of(problem, SlowArray::slopes);
    tensors[SlowArray::slopes] = options.compute == DType::f64 ? Tensor(slopes, shape) : Tensor(rounded, shape);
  }
  if (problem.bias_gradient && tensors[SlowArray::bias].dtype == DType::boolean)
    throw InvalidProblem("--bias-gradient: bias is of bool and has no gradient; leave it out, or give floats");
  const auto readable = [&](SlowArray a) { return tensors[a].data != nullptr && !over_files.holds(tensors[a]); };
  if (!flags.quiet)
    for (const SlowArray a : {SlowArray::bias, SlowArray::slopes, SlowArray::sinks})
      if (over_files.holds(tensors[a]))
        note(fmt::format("{} lies in a file: it is not searched for NaN, infinite and huge numbers", tensor_name(a)));
  for (const auto& [a, unwanted] : {std::pair{SlowArray::bias, Unwanted::nan_or_plus_inf},
                                    {SlowArray::slopes, Unwanted::nan_or_infinite},
                                    {SlowArray::sinks, Unwanted::nan_or_plus_inf}})
    if (const auto where = readable(a) ? first_unwanted(tensors[a], unwanted) : std::nullopt)
      throw InvalidProblem(fmt::format("{} has {}, and all rows that take it would be NaN{}", tensor_name(a), *where,
                                       a == SlowArray::bias ? "; to hide a key give -inf, or a mask" : ""));
  if (options.compute != DType::f64)
    for (const SlowArray a : {SlowArray::bias, SlowArray::slopes, SlowArray::sinks})
      if (const auto where = readable(a) ? first_beyond_f32(tensors[a]) : std::nullopt)
        throw InvalidProblem(fmt::format("{} has {}: compute in f64, which takes it", tensor_name(a), *where));
  if (flags.ranks.given()) {
    if (!flags.quiet && !unused.empty()) note(unused_text(flags.files, unused));
    if (flags.tolerance || flags.certificate)
      throw InvalidProblem("--tolerance and --certificate with --ranks: ranks share exact attention; leave them out");
    return run_over_ranks({flags.ranks, flags.files, flags.memory, flags.planner, flags.objective, loaded, problem,
                           tensors, options, flags.verify, flags.json, flags.quiet});
  }
  flags.ranks.require_none();
  if (!flags.quiet && !over_files.asked())
    if (const std::string nan = nan_text(problem, tensors); !nan.empty()) note(nan);
  const DType dtype = tensors[inputs_of(problem).front()].dtype;
  const auto plan_of = [&](const Problem& p, const Tensors& t) {
    return objective.plan(p, flags.planner.options(t, options), flags.memory, options.compute, dtype,
                          options.threads > 0 ? options.threads : default_pool().size());
  };
  Proof proof;
  if (flags.tolerance || flags.certificate)
    proof.settle(flags.tolerance, flags.files.npy.at("lse").has_value(), problem, tensors, options.compute,
                 [&](const Problem& p) { return plan_of(p, contiguous_tensors(p, dtype)); });
  file::partial::PartialRun* const partial = over_files.begin(flags.files, loaded, problem, flags.mask.pattern);
  OutputFiles outputs(flags.files, problem, dtype, loaded.any_f64() ? DType::f64 : DType::f32, loaded.layout(), partial,
                      over_files.map());
  outputs.add_to(tensors, options);
  outputs.copy_given(problem, loaded.tensors());
  std::optional<file::AtomicFile> certificate;
  if (flags.certificate) certificate.emplace(*flags.certificate);
  const plan::Plan plan = over_files.asked()
                              ? over_files.plan(problem, flags.planner.options(tensors, options), tensors, options)
                              : plan_of(problem, tensors);
  if (over_files.were_computed(plan, options)) {
    note("all was computed before; the outputs have their names now");
    if (flags.json) print(Json{{"schema", "redblue.run/1"}, {"problem", to_json(problem)}, {"computed_before", true}});
    return 0;
  }
  if (!flags.quiet && !unused.empty()) note(unused_text(flags.files, unused));
  const Ram ram{memory_of_run(plan, tensors, options)};
  if (!flags.quiet && !over_files.asked() && ram.worth_saying()) note("this run takes " + ram.text());

  const auto start = std::chrono::steady_clock::now();
  Measured measured;
  index_t huge = 0;
  {
    Progress progress(flags.quiet, over_files.bytes_of(plan, options.compute));
    options.progress = progress.callback();
    if (over_files.asked())
      measured = over_files.run(plan, tensors, options);
    else
      std::tie(measured, huge) = run_and_judge(plan, tensors, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::optional<Verification> verification;
  if (flags.verify) verification = verified(plan, tensors, loaded.tensors(), options);
  proof.compare(verification);
  const std::optional<std::string> lost = over_files.asked() ? std::nullopt : not_finite(problem, tensors);
  outputs.commit();
  if (certificate) {
    certificate->write(proof.certificate(problem, flags.tolerance).dump(1) + "\n");
    certificate->commit();
  }

  if (lost)
    note(
        fmt::format("{}, though all inputs are finite: a number in the approximation is too large for its type. Do not "
                    "use these outputs. Multiply k and divide q by one number, so that both have ordinary sizes, or "
                    "leave the approximation out{}",
                    *lost, options.compute == DType::f64 ? "" : ", or try --compute-dtype f64"));
  if (huge > 0)
    note(fmt::format(
        "the bias of {} queries, of all heads, holds nothing but huge numbers, beside which lse does not keep "
        "how many keys they see: their gradients take each weight of n equal keys for 1, not 1 / n. Set "
        "their rows of do to 0, or give a bias of bool",
        huge));
  std::string failure;
  try {
    print_report(flags, loaded.layout().name(), plan, measured, seconds, verification, proof, options.compute, unused,
                 ram, over_files);
    failure = output_failure();
  } catch (const std::exception& e) {  // the library that prints throws what standard output did not take
    failure = e.what();
  }
  if (!failure.empty()) {
    note(fmt::format("the files are written, but not the report to standard output: {}", failure));
    return kReportLost;
  }
  const bool equal = is_formula(measured, plan);
  if (!equal)
    note(fmt::format("the run moved {} words and the formula has {}: a fault of redblue, please report it",
                     measured.io.total().str(), plan.io().total().str()));
  return !equal || (verification && !verification->ok()) || !proof.ok() || lost ? 1 : 0;
}

}  // namespace

void add_run(Program& program) {
  const Command command = program.command("run", "compute attention on files, with every word counted");
  command.footer(
      "Examples:\n"
      "  redblue run --M 4096 --input X.safetensors --output Y.safetensors --verify\n"
      "  redblue run --op backward --M 16384 --input X.safetensors --output G.safetensors --verify\n"
      "  redblue run --op scores --M 4096 --input X.safetensors --output S.safetensors --causal\n"
      "  redblue run --ranks 4 --input X.safetensors --output Y.safetensors --verify\n"
      "  redblue run --partial --M 4096 --input Part.safetensors --output Y.safetensors\n"
      "  redblue run --op gradient-x --M 65536 --input A.safetensors --output G.safetensors\n"
      "  redblue run --memory 64MiB --q Q.npy --k K.npy --v V.npy --o O.npy --lse L.npy --causal --compute-dtype f64");
  auto flags = std::make_shared<RunFlags>();
  flags->add_to(command);
  command.does([flags] { return run_command(*flags); });
}

}  // namespace redblue::cli
