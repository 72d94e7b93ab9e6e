#include "commands/run_ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "commands/commands.hpp"
#include "files/nan.hpp"
#include "mpi.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/ranks/channel.hpp"
#include "redblue/ranks/in_process.hpp"
#include "redblue/ranks/whole.hpp"
#include "redblue/verify/verify.hpp"
#include "report/json.hpp"
#include "report/ranks.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {
namespace {

/// Throws InvalidProblem for an option that a run over ranks does not heed.
void require_heeded(const RanksRun& run) {
  const auto refuse = [](bool given, std::string_view option, std::string_view instead) {
    if (given) throw InvalidProblem(fmt::format("{} with --ranks: {}", option, instead));
  };
  constexpr std::string_view kOwnWork = "each rank plans its own work, for --M words of fast memory or least time";
  refuse(run.memory.memory.has_value(), "--memory", kOwnWork);
  refuse(run.objective.objective.has_value(), "--objective", kOwnWork);
  refuse(run.objective.machine.has_value(), "--machine", kOwnWork);
  refuse(!run.planner.multiple.empty(), "--multiple", kOwnWork);
  refuse(run.planner.order != "auto", "--order", kOwnWork);
  refuse(run.planner.max_workspace.has_value(), "--max-workspace", kOwnWork);
  option::for_each(plan::plan_options(), [&](const auto& option) {
    if (!option.about.flag.empty()) refuse(run.planner.flags.given(option.name), option.about.flag, kOwnWork);
  });
  refuse(run.files.with_forward, "--with-forward", "run the forward pass first, and give its o and lse");
}

constexpr int kMostThreads = 64;  // as ranks of one process

/// What all ranks did, as rank 0 knows it.
struct Report {
  ranks::Ran ran;                   ///< of rank 0
  std::optional<ranks::Ran> alone;  ///< its messages, without work
  ranks::Crossing formula;          ///< of rank 0
  double seconds = 0;
  std::string carried_by;
  std::optional<Verification> verification;
};

ranks::How how_of(const RanksRun& run, int threads) {
  ranks::How how;
  how.compute = run.options.compute;
  how.threads = threads;
  if (run.memory.M) how.plan.M = *run.memory.M;
  return how;
}

/// Outputs of the whole where rank 0 has them; other ranks know their shapes.
Tensors with_outputs(const RanksRun& run, const OutputFiles* files, DType dtype) {
  Tensors whole = run.inputs;
  if (files != nullptr) {
    RunOptions unused;
    files->add_to(whole, unused);
    return whole;
  }
  const Tensors shapes = contiguous_tensors(run.problem, dtype);
  for (const SlowArray a : facts_of(run.problem.op).writes)
    if (a != SlowArray::lse || run.problem.lse_required) whole[a] = shapes[a];
  return whole;
}

/// The layout of a plan. Processes that mpirun started all take part.
ranks::Layout layout_for(const Problem& problem, const ranks::Wanted& wanted, bool all_take_part) {
  const ranks::LayoutPlan plan = plan_layout(problem, wanted);
  for (const ranks::LayoutRow& row : plan.rows)
    if (row.cost.layout.reproducible == wanted.reproducible &&
        (!all_take_part || row.cost.layout.ranks() == wanted.ranks))
      return row.cost.layout;
  throw InvalidProblem(
      fmt::format("--ranks {}: no layout of this number of ranks goes with this problem; give --grid, or another "
                  "number",
                  wanted.ranks));
}

/// On rank 0: the NaN of the first rank that has one in its own rows.
std::string nan_of_ranks(const RanksRun& run, const ranks::World& world, ranks::Transport& transport,
                         std::chrono::milliseconds patience) {
  constexpr std::size_t kSize = 160;
  std::string words = nan_text(run.problem, run.inputs, [&](SlowArray a) {
    if (is_of_modifiers(a)) return std::vector<Range>();
    const auto own = world.rows_of(side_of(a), transport.rank()).ranges();
    return std::vector<Range>(own.begin(), own.end());
  });
  words.resize(kSize);
  const auto wait = [&](ranks::Transport::Pending& message, int rank) {
    if (!message.wait(patience)) throw Error(fmt::format("rank {} has not said whether its inputs hold NaN", rank));
  };
  if (transport.rank() != 0) {
    wait(*transport.send(0, ranks::kAgreement, std::as_bytes(std::span(words))), 0);
    return "";
  }
  for (int r = 1; r < world.ranks(); ++r) {
    std::string others(kSize, 0);
    wait(*transport.receive(r, ranks::kAgreement, std::as_writable_bytes(std::span(others))), r);
    if (words[0] == 0) words = others;
  }
  return words.substr(0, words.find('\0'));
}

Report in_threads(const RanksRun& run, const ranks::World& world, const Tensors& whole) {
  std::vector<std::unique_ptr<ranks::OwnRows>> own;
  std::vector<Tensors> tensors;
  for (int r = 0; r < world.ranks(); ++r) {
    own.push_back(std::make_unique<ranks::OwnRows>(world, r, whole));
    tensors.push_back(own.back()->tensors());
  }
  if (!run.quiet)
    if (const std::string nan = nan_text(run.problem, run.inputs); !nan.empty()) note(nan);
  ranks::How how = how_of(run, 1);
  how.messages_alone = true;
  std::optional<ranks::Ran> alone;
  if (run.ranks.overlap) alone = run_in_process(world, tensors, how)[0];
  how.messages_alone = false;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ranks::Ran> all = run_in_process(world, tensors, how);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& rows : own) rows->write_to(whole);
  return {all[0], alone, crossing_of(world, 0), seconds, "threads of this process", {}};
}

Report over_mpi(const RanksRun& run, const ranks::World& world, ranks::Transport& transport, const Tensors& whole) {
  ranks::How how = how_of(run, run.options.threads == 0 ? 1 : run.options.threads);
  const ranks::OwnRows own(world, transport.rank(), whole);
  if (!run.quiet)
    if (const std::string nan = nan_of_ranks(run, world, transport, how.patience); !nan.empty()) note(nan);
  how.messages_alone = true;
  std::optional<ranks::Ran> alone;
  if (run.ranks.overlap) alone = ranks::run(world, transport, own.tensors(), how);
  how.messages_alone = false;
  const auto start = std::chrono::steady_clock::now();
  const ranks::Ran ran = ranks::run(world, transport, own.tensors(), how);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  collect(world, transport, own, whole, how.patience);
  return {ran, alone, crossing_of(world, transport.rank()), seconds, "MPI", {}};
}

Json traffic_to_json(const ranks::Traffic& t) {
  return {{"inputs", to_json(t.inputs)}, {"partials", to_json(t.partials)}, {"messages", to_json(t.messages)}};
}

double seconds_in(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

void print_report(const RanksRun& run, const ranks::World& world, const Report& r) {
  const bool ok = !r.verification || r.verification->ok();
  const double overlap = r.alone ? overlap_of(r.ran, *r.alone).value_or(-1) : -1;  // -1: there is none
  if (run.json) {
    Json j{
        {"schema", "redblue.run_ranks/1"},
        {"problem", to_json(run.problem)},
        {"ranks", world.ranks()},
        {"layout", ranks::shape_text(world.layout())},
        {"transfer", std::string(name_of(world.layout().transfer))},
        {"ownership", std::string(name_of(world.layout().ownership))},
        {"reproducible", world.layout().reproducible > 0 ? Json(world.layout().reproducible) : Json(nullptr)},
        {"carried_by", r.carried_by},
        {"rank_0",
         {{"received", traffic_to_json(r.ran.crossed.received)},
          {"sent", traffic_to_json(r.ran.crossed.sent)},
          {"formula", {{"received", traffic_to_json(r.formula.received)}, {"sent", traffic_to_json(r.formula.sent)}}},
          {"bytes_received", to_json(r.ran.bytes_received)},
          {"bytes_sent", to_json(r.ran.bytes_sent)},
          {"words_between_fast_and_slow_memory", to_json(r.ran.io)},
          {"held_bytes", to_json(r.ran.held_bytes)},
          {"staging_bytes", to_json(r.ran.staging_bytes)},
          {"waited_seconds", seconds_in(r.ran.waited)},
          {"messages_alone_seconds", r.alone ? Json(seconds_in(r.alone->waited)) : Json(nullptr)},
          {"overlap", overlap >= 0 ? Json(overlap) : Json(nullptr)}}},
        {"seconds", r.seconds},
        {"verified", r.verification ? Json(ok) : Json(nullptr)}};
    return print(j);
  }
  fmt::print("{} over {} ranks, {}: {} as head groups x rows x columns, {}, rows {}{}\n", name_of(run.problem.op),
             world.ranks(), r.carried_by, ranks::shape_text(world.layout()), name_of(world.layout().transfer),
             name_of(world.layout().ownership),
             world.layout().reproducible > 0
                 ? fmt::format(", reproducible in blocks of {} rows", world.layout().reproducible)
                 : "");
  fmt::print("{:<18} {:>16} {:>16}\n", "rank 0", "moved", "formula");
  const auto line = [](const char* what, Words a, Words b) {
    fmt::print("{:<18} {:>16} {:>16}\n", what, a.str(), b.str());
  };
  line("inputs received", r.ran.crossed.received.inputs, r.formula.received.inputs);
  line("partials received", r.ran.crossed.received.partials, r.formula.received.partials);
  line("inputs sent", r.ran.crossed.sent.inputs, r.formula.sent.inputs);
  line("partials sent", r.ran.crossed.sent.partials, r.formula.sent.partials);
  line("messages sent", r.ran.crossed.sent.messages, r.formula.sent.messages);
  fmt::print("time {:.3g} s, of which rank 0 waited {:.3g} s for messages\n", r.seconds, seconds_in(r.ran.waited));
  if (r.alone)
    fmt::print("its messages alone take {:.3g} s: {}\n", seconds_in(r.alone->waited),
               overlap >= 0 ? fmt::format("{:.0f} % of what its work could hide is hidden", 100 * overlap)
                            : "there is too little to hide");
  if (r.verification)
    for (const Deviation& d : r.verification->outputs)
      fmt::print("verify {:<4} error {:.2e}, tolerance {:.2e}: {}\n", d.name, d.error, d.tolerance,
                 d.ok() ? "ok" : "WRONG");
}

}  // namespace

int run_over_ranks(const RanksRun& run) {
  require_heeded(run);
  const std::unique_ptr<ranks::Transport> mpi = ranks_of_mpirun();
  const DType dtype = run.inputs[SlowArray::Q].dtype;
  const ranks::Wanted wanted = run.ranks.wanted(dtype, run.options.compute, {});
  if (mpi != nullptr && mpi->ranks() != wanted.ranks)
    throw InvalidProblem(fmt::format("--ranks {}: mpirun started {}; give as many", wanted.ranks, mpi->ranks()));
  if (mpi == nullptr && wanted.ranks > kMostThreads)
    throw InvalidProblem(
        fmt::format("--ranks {} as threads of one process: give {} at most, or start this under mpirun", wanted.ranks,
                    kMostThreads));
  if (mpi == nullptr && run.options.threads > 1)
    throw InvalidProblem(fmt::format("--threads {}: ranks are threads of one process here, one each; leave it out",
                                     run.options.threads));
  const ranks::World world(run.problem, layout_for(run.problem, wanted, mpi != nullptr));
  const bool writes = mpi == nullptr || mpi->rank() == 0;
  std::optional<OutputFiles> outputs;
  if (writes)
    outputs.emplace(run.files, run.problem, dtype, run.loaded.any_f64() ? DType::f64 : DType::f32, run.loaded.layout());
  const Tensors whole = with_outputs(run, writes ? &*outputs : nullptr, dtype);
  Report report = mpi == nullptr ? in_threads(run, world, whole) : over_mpi(run, world, *mpi, whole);
  if (!writes) return 0;
  if (run.verify)  // sums of as many parts as there are ranks, each of which rounds lse once
    report.verification = verify(run.problem, whole, run.options.compute,
                                 {.additions = 64 + world.ranks(), .lse = index_t{2} * world.ranks()});
  outputs->commit();
  if (!run.quiet) print_report(run, world, report);
  const bool as_planned = report.ran.crossed == report.formula;
  if (!as_planned) note("rank 0 moved other words than the formula has: a fault of redblue, please report it");
  return as_planned && (!report.verification || report.verification->ok()) ? 0 : 1;
}

}  // namespace redblue::cli
