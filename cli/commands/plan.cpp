#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "commands/commands.hpp"
#include "options/levels.hpp"
#include "options/options.hpp"
#include "options/ranks.hpp"
#include "redblue/problem/text.hpp"
#include "report/approximations.hpp"
#include "report/json.hpp"
#include "report/levels.hpp"
#include "report/plan_formats.hpp"
#include "report/ram.hpp"
#include "report/ranks.hpp"
#include "report/ranks_diagram.hpp"

namespace redblue::cli {

namespace {

/// Fast memory, and what its words take.
std::string memory_text(const plan::Plan& plan) {
  if (!plan.options.memory) return fmt::format("M = {} words", plan.options.M.str());
  const Residence& fast = plan.options.memory->fast;
  std::string text = fmt::format("fast memory of {} bytes", plan.options.memory->bytes.str());
  std::map<index_t, std::string> by_width;
  for (const SlowArray a : plan::arrays_of(plan.problem.op))
    if (const Shape s = plan::matrix_of(plan.problem.op, plan.problem.sizes(), a).shape; s.rows > 0 && s.cols > 0)
      by_width[fast.width[index_of(a)]] += fmt::format(" {}", name_of(a));
  for (const auto& [width, names] : by_width) text += fmt::format("; {} per word of{}", width, names);
  if (fast.row_multiple > 1) text += fmt::format("; rows padded to multiples of {}", fast.row_multiple);
  if (fast.row_extra > 0) text += fmt::format("; {} free after each row", fast.row_extra);
  return text;
}

/// Do words differ in width, in slow memory or in fast?
bool widths_differ(const plan::Plan& plan) {
  std::set<index_t> widths;
  for (const SlowArray a : plan::arrays_of(plan.problem.op)) {
    widths.insert(plan.options.width[index_of(a)]);
    if (plan.options.memory) widths.insert(plan.options.memory->fast.width[index_of(a)]);
  }
  return widths.size() > 1;
}

/// Bytes of a word of an array that the plan moves: "2", or "2, 4 unfinished" where it is read again before it is
/// finished.
std::string width_text(const plan::Plan& plan, SlowArray a) {
  const index_t width = plan.options.width[index_of(a)];
  for (const plan::Plan* p = &plan; p != nullptr; p = p->forward.get())
    if (const index_t unfinished = plan::unfinished_width(p->options, p->problem.op, a);
        unfinished > width && p->row().io.reads[index_of(a)] > 0)
      return fmt::format("{}, {} unfinished", width, unfinished);
  return fmt::format("{}", width);
}

/// The bytes that the chosen plan moves, by array.
void print_bytes(const plan::Plan& plan) {
  const Io bytes = plan::bytes_of(plan);
  fmt::print("\n  bytes moved by {:<12} {:>18} {:>18} {:>18}\n", plan.row().schedule, "read", "written", "per word");
  for (std::size_t a = 0; a < kSlowArrays; ++a)
    if (bytes.reads[a] + bytes.writes[a] > 0)
      fmt::print("  {:<27} {:>18} {:>18} {:>18}\n", kSlowArrayNames[a], bytes.reads[a].str(), bytes.writes[a].str(),
                 width_text(plan, static_cast<SlowArray>(a)));
  fmt::print("  {:<27} {:>18} in all\n", "", bytes.total().str());
}

std::string title(const Problem& p) {
  if (p.approximation != nullptr) return fmt::format("{} {}", name_of(p.op), p.approximation->title(p.n_k));
  const std::string score = p.score == Score::softmax ? "attention" : fmt::format("{} attention", name_of(p.score));
  const std::string sources = p.sources == Sources::distinct ? "" : fmt::format(", sources {}", name_of(p.sources));
  return fmt::format("{} {}{}", name_of(p.op), score, sources);
}

/// What a printed algorithm takes, over what there is.
double times_too_large(const plan::Plan& plan, const plan::Row& r) {
  if (plan.options.memory) return r.footprint_bytes->to_double() / plan.options.memory->bytes.to_double();
  return r.footprint.to_double() / plan.options.M.to_double();
}

/// Why a row may stand here for comparison only.
std::string_view note_on(const plan::Row& r) {
  if (!r.algorithm->traits.stable) return "  (unstable)";
  if (!r.algorithm->traits.own_softmax) return "";
  return r.io.reads[index_of(SlowArray::lse)] > 0 ? "  (reads no o)" : "  (reads no o, lse)";
}

/// Modelled milliseconds of every row; causes overlap, so they add up to more than the total.
void print_times(const plan::Plan& plan, std::size_t name) {
  fmt::print("\n  {:<{}} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "modelled, ms", name, "total", "compute", "exp",
             "passes", "transfer");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const model::Time& t = *plan.rows[i].time;
    fmt::print("{} {:<{}} {:>12.4g} {:>12.4g} {:>12.4g} {:>12.4g} {:>12.4g}\n", i == plan.chosen ? '*' : ' ',
               plan.rows[i].schedule, name, 1e3 * t.total_s, 1e3 * t.compute_s, 1e3 * t.exp_s, 1e3 * t.pass_s,
               1e3 * t.transfer_s);
  }
}

/// What every row would read and hold to know the pattern.
void print_index_words(const plan::Plan& plan, std::size_t name) {
  fmt::print("\n  {:<{}} {:>18} {:>18}\n", "index words", name, "read", "resident");
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const plan::Row& r = plan.rows[i];
    fmt::print("{} {:<{}} {:>18} {:>18}\n", i == plan.chosen ? '*' : ' ', r.schedule, name, r.index.reads.str(),
               r.index.resident.str());
  }
}

void print_table(const plan::Plan& plan) {
  const Problem& p = plan.problem;
  fmt::print("{}: batch {}, heads {} ({} key-value), n_q {}, n_k {}, d {}, d_v {}{}; {}\n", title(p), p.batch, p.heads,
             p.kv_heads.value_or(p.heads), p.n_q, p.n_k, p.d, p.d_v, mask_text(p), memory_text(plan));
  const bool bytes = plan::minimises_bytes(plan.options);
  fmt::print("bound: {} words{} ({})\n\n", plan.bound.words.str(),
             bytes ? fmt::format(", {} bytes", plan::least_bytes(plan).str()) : "", theorem_of(plan.bound));
  print_what_is_proved(p);
  if (plan.forward) {
    const plan::Row& f = plan.forward->row();
    const std::string index = has_index_words(plan) ? fmt::format(", index words {} (resident {})", f.index.reads.str(),
                                                                  f.index.resident.str())
                                                    : "";
    fmt::print("first {} for O and lse: {} words{}, footprint {}{}; ratios below include it\n\n", f.schedule,
               f.io.total().str(), bytes ? fmt::format(", {} bytes", f.bytes->str()) : "", f.footprint.str(), index);
  }
  std::size_t name = std::string_view("schedule").size();
  for (const plan::Row& r : plan.rows) name = std::max(name, r.schedule.size());
  for (const plan::Refusal& r : plan.refused) name = std::max(name, r.schedule.size());
  const auto moved = [bytes](const std::string& text) { return bytes ? fmt::format(" {:>18}", text) : ""; };
  fmt::print("  {:<{}} {:>18} {:>18} {:>18}{} {:>8} {:>6} {:>12} {:>14}  {}\n", "schedule", name, "reads", "writes",
             "I/O words", moved("bytes moved"), "ratio", "work", plan.options.memory ? "bytes held" : "footprint",
             "workspace", "tiling");
  const auto numbers = [&](const plan::Row& r, const std::string& ratio, const std::string& work) {
    fmt::print("{:<{}} {:>18} {:>18} {:>18}{} {:>8} {:>6} {:>12} {:>14}  {}", r.schedule, name,
               r.io.total_reads().str(), r.io.total_writes().str(), r.io.total().str(),
               moved(r.bytes.value_or(0).str()), ratio, work, r.footprint_bytes.value_or(r.footprint).str(),
               r.workspace.str(), plan::text_of(r.tiling));
  };
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const plan::Row& r = plan.rows[i];
    if (!plan.may_choose(r) && plan.may_choose(plan.rows[i - 1])) fmt::print("for comparison:\n");
    fmt::print("{} ", i == plan.chosen ? '*' : ' ');
    numbers(r, r.ratio ? fmt::format("{:.3f}", *r.ratio) : "-", fmt::format("{:.2f}", r.work));
    fmt::print("{}{}\n", note_on(r), r.fits ? "" : fmt::format("  (needs {:.2f} M)", times_too_large(plan, r)));
  }
  if (plan.dense) {
    fmt::print("forming all pairs and masking them:\n  ");
    numbers(*plan.dense, "-", "-");
    fmt::print("\n");
  }
  for (const plan::Refusal& r : plan.refused) fmt::print("- {:<{}} {}\n", r.schedule, name, r.why);
  if (has_index_words(plan)) print_index_words(plan, name);
  if (plan.row().time) print_times(plan, name);
  if (widths_differ(plan)) print_bytes(plan);
  fmt::print("\n{}\n", plan.reason);
}

struct PlanFlags {
  ProblemOptions problem;
  std::optional<std::string> format;
  std::optional<double> tolerance, range;
  RanksOptions ranks;
  LevelsOptions levels;
  bool steps = false, draw = false;

  void add_to(const Command& command) {
    problem.add_to(command);
    command
        .option("--format,--emit", format,
                "table, json (as --json), csv, markdown, or c-header (header): the chosen tiles as macros to paste")
        .one_of({"table", "json", "csv", "markdown", "c-header", "header"});
    command
        .option("--tolerance", tolerance,
                "with --range: polynomial attention of the least degree whose output is proved to be within this many "
                "max|V| of exact attention, or exact attention, where it costs no more; forward")
        .type_name("EPS");
    command.option("--range", range, "no |scale q.k| is larger").type_name("B");
    ranks.add_to(command, RanksOptions::For::plans);
    levels.add_to(command);
    command.flag("--steps", steps, "with --ranks: print what each rank does, step by step, as JSON");
    command.flag("--draw", draw,
                 "with --ranks: print the messages and work of all ranks as a sequence diagram (Mermaid)");
  }
  /// The plan of exact attention, or of the polynomial that --tolerance finds; what was decided goes to `decided`.
  plan::Plan plan(std::optional<PlanWithin>& decided) const {
    if (tolerance.has_value() != range.has_value())
      throw InvalidProblem("--tolerance and --range: give both; redblue run takes the range from its files");
    if (!tolerance) return problem.plan();
    require_tolerance(*tolerance);
    if (!(*range > 0)) throw InvalidProblem(fmt::format("--range {}: give a number above 0", *range));
    Problem kind;
    problem.operation.apply_to(kind, problem.flags);
    if (kind.approximation != nullptr)
      throw InvalidProblem("--tolerance and --approximate: give one of them; --tolerance finds the degree");
    if (kind.op != Operation::forward)
      throw InvalidProblem(fmt::format("--tolerance is for --op forward: nothing is proved of {}", name_of(kind.op)));
    decided = plan_within(
        *tolerance, *range, [&] { return problem.plan(); },
        [&](const std::string& text) {
          ProblemOptions approximate = problem;
          approximate.operation.approximate = text;
          return approximate.plan();
        });
    return decided->plan;
  }
};

/// What a run of this plan on tensors of these types would take, on this machine; nothing where it would be refused.
std::optional<Ram> ram_of_run(const PlanFlags& flags, const plan::Plan& plan) {
  RunOptions run;
  run.compute = flags.problem.compute();
  try {
    return Ram{memory_of_run(plan, contiguous_tensors(plan.problem, parse_dtype("--dtype", flags.problem.dtype)), run)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Steps of more ranks than these make more JSON than anyone reads: a list of 64 ranks is some megabytes.
constexpr int kMostRanksWithSteps = 256;
/// A picture of more ranks is wider than a screen.
constexpr int kMostRanksDrawn = 16;

/// Refuses --steps and --draw where they make too much, or do not go with the rest.
void require_steps(const PlanFlags& flags, int ranks) {
  for (const auto& [asked, name, most] :
       {std::tuple(flags.steps, "--steps", kMostRanksWithSteps), {flags.draw, "--draw", kMostRanksDrawn}}) {
    if (!asked) continue;
    if (ranks > most) throw InvalidProblem(fmt::format("{} with --ranks {}: give {} ranks at most", name, ranks, most));
    if (flags.problem.memory.M)
      throw InvalidProblem(fmt::format("--M with {}: steps need no fast memory; give one of them", name));
  }
  if (flags.draw && (flags.steps || flags.problem.json))
    throw InvalidProblem("--draw prints a diagram: give it without --steps and --json");
}

/// The plan of --ranks, as a table, as JSON, or the steps of the chosen layout.
void plan_ranks(const PlanFlags& flags, const std::string& format) {
  const ProblemOptions& o = flags.problem;
  require_for_ranks(o);
  if (flags.tolerance || flags.range)
    throw InvalidProblem("--tolerance and --range with --ranks: ranks share exact attention; leave them out");
  if (format != "table" && format != "json")
    throw InvalidProblem(fmt::format("--format {} with --ranks: choose from table, json", format));
  std::optional<bool> by_time;
  if (const auto& objective = o.objective.objective) {
    if (*objective != "words" && *objective != "time")
      throw InvalidProblem(fmt::format("--objective {}: choose from words, time", *objective));
    by_time = *objective == "time";
  }
  ranks::Wanted wanted = flags.ranks.wanted(parse_dtype("--dtype", o.dtype), o.compute(), by_time);
  if (o.memory.M) wanted.M = o.memory.words(o.compute());
  require_steps(flags, wanted.ranks);
  const Problem p = o.problem();
  require_arithmetic(o.compute(), p, contiguous_tensors(p, parse_dtype("--dtype", o.dtype)));
  const ranks::LayoutPlan plan = ranks::plan_layout(p, wanted);
  if (flags.draw)
    fmt::print("{}", diagram_of(ranks::World(p, plan.rows.front().cost.layout)));
  else if (flags.steps)
    print(steps_to_json(ranks::World(p, plan.rows.front().cost.layout)));
  else if (format == "json")
    print(layouts_to_json(p, wanted, plan));
  else
    print_layouts(p, wanted, plan);
}

/// The plan of --levels, as a table or as JSON.
void plan_levels(const PlanFlags& flags, const std::string& format) {
  if (flags.ranks.given())
    throw InvalidProblem("--levels and --ranks: give one of them; --ranks with --M says what moves inside a rank");
  flags.ranks.require_none();
  if (flags.tolerance || flags.range || flags.steps || flags.draw)
    throw InvalidProblem("--levels goes without --tolerance, --range, --steps and --draw: leave these out");
  if (format != "table" && format != "json")
    throw InvalidProblem(fmt::format("--format {} with --levels: choose from table, json", format));
  const levels::Nest nest = flags.levels.nest(flags.problem);
  if (format == "json") return print(to_json(nest));
  const Problem& p = nest.outer.problem;
  fmt::print("{}: batch {}, heads {} ({} key-value), n_q {}, n_k {}, d {}, d_v {}{}\n", title(p), p.batch, p.heads,
             p.kv_heads.value_or(p.heads), p.n_q, p.n_k, p.d, p.d_v, mask_text(p));
  print_nest(nest);
}

}  // namespace

void add_plan(Program& program) {
  const Command command =
      program.command("plan", "rank schedules and tilings by exact words moved, or by modelled time");
  command.footer(
      "Examples:\n"
      "  redblue plan --n 4096 --d 64 --M 16384\n"
      "  redblue plan --op backward --n 4096 --d 64 --M 16384\n"
      "  redblue plan --op gradient-x --n 4096 --d 64 --M 16384 --sources self\n"
      "  redblue plan --n 4096 --d 64 --heads 8 --objective time --machine tests/data/hardware.json\n"
      "  redblue plan --nq 1 --nk 131072 --d 128 --heads 32 --kv-heads 8 --dtype bf16 --memory 256KiB --json\n"
      "  redblue plan --n 8192 --d 128 --dtype bf16 --memory 64KiB --multiple q=16,k=16 --format c-header\n"
      "  redblue plan --n 4096 --d 256 --M 4096 --no-workspace --multiple q=16,k=16\n"
      "  redblue plan --n 1048576 --d 128 --heads 32 --kv-heads 4 --dtype bf16 --ranks 64 --network 5us,50GB/s\n"
      "  redblue plan --n 1048576 --d 128 --heads 32 --kv-heads 4 --dtype bf16 --ranks 64 --M 65536\n"
      "  redblue plan --n 1048576 --d 64 --levels disk,256MiB,1MiB,32KiB");
  auto flags = std::make_shared<PlanFlags>();
  flags->add_to(command);
  command.does([flags] {
    const bool json = flags->problem.json;
    if (json && flags->format && *flags->format != "json")
      throw InvalidProblem(fmt::format("--json and --format {}: give one of them", *flags->format));
    const std::string format = flags->format.value_or(json ? "json" : "table");
    if (flags->levels.given()) {
      plan_levels(*flags, format);
      return 0;
    }
    if (flags->ranks.given()) {
      plan_ranks(*flags, format);
      return 0;
    }
    flags->ranks.require_none();
    if (flags->draw) throw InvalidProblem("--draw is for --ranks: give that, too");
    if (flags->steps) throw InvalidProblem("--steps is for --ranks: give that, too; redblue trace has those of one");
    std::optional<PlanWithin> decided;
    const plan::Plan plan = flags->plan(decided);
    if (format == "json") {
      Json j = to_json(plan);
      if (decided) j["tolerance"] = decided->json;
      const auto ram = ram_of_run(*flags, plan);
      j["ram"] = ram ? ram->json() : Json(nullptr);
      print(j);
    } else if (format == "csv")
      print_csv(plan);
    else if (format == "markdown")
      print_markdown(plan);
    else if (format == "c-header" || format == "header")
      print_c_header(plan);
    else
      print_table(plan);
    if (format == "table")
      if (const auto ram = ram_of_run(*flags, plan); ram && ram->worth_saying())
        fmt::print("a run takes {}\n", ram->text());
    if (decided && format == "table") fmt::print("tolerance {:g}: {}\n", *flags->tolerance, decided->reason);
    return 0;
  });
}

}  // namespace redblue::cli
