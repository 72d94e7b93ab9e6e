#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/commands.hpp"
#include "options/graph.hpp"
#include "options/options.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/referee.hpp"
#include "redblue/pebbling/search/partition.hpp"
#include "redblue/pebbling/search/solver.hpp"
#include "report/json.hpp"
#include "report/moves.hpp"
#include "report/partition.hpp"
#include "report/progress.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {
namespace {

using pebbling::Certificate;
using pebbling::Optimum;

struct SolveOptions {
  GraphOptions graph;
  RulesOptions rules;
  std::optional<index_t> M;
  double seconds = 60;
  std::string max_memory = "4GiB";
  std::optional<std::string> output;
  bool partition = false;
  bool moves = false;
  bool json = false;
};

/// Tells the bracket on standard error, at most once in a progress_period().
class Brackets {
 public:
  explicit Brackets(std::size_t M) : M_(M), told_(std::chrono::steady_clock::now()) {}
  void tell(std::size_t lower, std::size_t upper) {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < progress_period()) return;
    told_ = now;
    note(fmt::format("M = {}: the least I/O is {} to {}", M_, lower, upper));
  }

 private:
  std::size_t M_;
  std::chrono::steady_clock::time_point told_;
};

/// The play that was found, with what is known of it.
Certificate certificate_of(const pebbling::NamedGraph& named, const pebbling::Rules& rules, std::size_t M,
                           const Optimum& optimum) {
  Certificate c{
      .schedule = optimum.proved() ? "optimal" : fmt::format("best known; no play moves fewer than {}", optimum.lower),
      .graph_text = named.text,
      .problem = named.problem,
      .rules = rules,
      .M = M,
      .graph = named.graph,
      .moves = optimum.moves};
  pebbling::Referee referee(c.graph, rules, M);
  for (const pebbling::Move& move : c.moves) referee.play(move);
  c.cost = referee.cost();
  return c;
}

}  // namespace

void add_solve(Program& program) {
  const Command command =
      program.command("solve", "the least I/O of a small graph in the red-blue pebble game, proved");
  command.footer(
      "Without --M: every M from the least to the one at which only inputs and outputs move.\n"
      "Examples:\n  redblue solve --graph attention --nq 2 --nk 3 --d 1 --M 5 --once --output best.txt\n  redblue "
      "solve "
      "--hdag graph.hdag --rules partial --json");
  auto options = std::make_shared<SolveOptions>();
  options->graph.add_to(command);
  options->rules.add_to(command);
  command.option("--M", options->M, "red pebbles").words();
  command.option("--seconds", options->seconds, "processor time for each M; then the answer is a bracket");
  command.option("--max-memory", options->max_memory, "what the search may hold; then the answer is a bracket")
      .type_name("BYTES");
  command.option("--output", options->output, "the play as a certificate; with --M").type_name("FILE");
  command.flag("--partition", options->partition, "the 2M-partition of the play, checked, and the bound M (P(2M) - 1)");
  command.flag("--moves", options->moves, "prints each move of the play; with --M");
  command.flag("--json", options->json, "JSON");
  command.does([options] {
    const pebbling::NamedGraph named = options->graph.graph();
    const pebbling::Rules rules = options->rules.rules();
    if (options->M && *options->M < 0) throw Error(fmt::format("--M {}: give a number of pebbles", *options->M));
    if (options->output && !options->M) throw Error("--output writes one play: say its --M");
    if (options->moves && !options->M) throw Error("--moves prints one play: say its --M");
    if (options->moves && options->json)
      throw Error("--moves prints lines of text; with --json write the play by --output");
    if (!(options->seconds >= 0)) throw Error(fmt::format("--seconds {}: give a time of 0 or more", options->seconds));
    pebbling::SolverLimits limits;
    limits.seconds = options->seconds;
    limits.bytes = static_cast<std::size_t>(parse_bytes("--max-memory", options->max_memory).value());
    const std::size_t unavoidable = pebbling::unavoidable_io(named.graph, rules);
    const std::string obstacle = why_not_searched(named.graph, rules);
    const bool search = obstacle.empty() || rules.compute == pebbling::Rules::Compute::partial;
    if (!search && !options->M)
      throw Unsupported(obstacle + "; with --M a larger graph gets a bracket without a search");
    // What would fail in the end fails before a long search.
    if (options->partition) pebbling::partition_of(named.graph, rules, 1, {});
    std::optional<file::AtomicFile> output;
    if (options->output) {
      pebbling::check_names(named.graph);
      output.emplace(*options->output);
    }
    Json results = Json::array();
    std::size_t M = options->M ? static_cast<std::size_t>(*options->M) : least_memory(named.graph, rules);
    for (bool more = true; more; ++M) {
      Brackets brackets(M);
      limits.progress = [&](std::size_t lower, std::size_t upper) { brackets.tell(lower, upper); };
      const Optimum optimum = search ? solve(named.graph, rules, M, limits) : bracket(named.graph, rules, M);
      const Certificate c = certificate_of(named, rules, M, optimum);
      if (output) {
        output->write(to_text(c));
        output->commit();
      }
      std::optional<PartitionReport> partition;
      if (options->partition)
        partition = report_of(named.graph, M, pebbling::partition_of(named.graph, rules, M, optimum.moves));
      more = !options->M && optimum.upper > unavoidable;
      if (options->json) {
        results.push_back({{"M", Int128(M)},
                           {"lower", Int128(optimum.lower)},
                           {"upper", Int128(optimum.upper)},
                           {"proved", optimum.proved()},
                           {"reads", Int128(c.cost.reads)},
                           {"writes", Int128(c.cost.writes)},
                           {"peak", Int128(c.cost.peak)},
                           {"moves", Int128(c.moves.size())},
                           {"positions", Int128(optimum.positions)},
                           {"seconds", optimum.seconds}});
        if (!search) results.back()["no_search"] = obstacle;
        if (partition) results.back()["partition"] = to_json(*partition, named.graph, M);
        continue;
      }
      if (results.empty())
        fmt::print("{}, rules '{}': {} words are unavoidable\n", named.text, to_text(rules), unavoidable);
      results.push_back(Json());
      const std::string words = optimum.proved()
                                    ? fmt::format("{} words is the least", optimum.upper)
                                    : fmt::format("the least is {} to {} words", optimum.lower, optimum.upper);
      fmt::print("M = {}: {}; {} reads and {} writes; {} positions, {:.2f} s\n", M, words, c.cost.reads, c.cost.writes,
                 optimum.positions, optimum.seconds);
      if (!search) fmt::print("  no search: {}\n", obstacle);
      if (partition) print(*partition, named.graph, M);
      if (options->moves) print_moves(named.graph, optimum.moves);
    }
    if (options->json)
      print(Json{{"schema", "redblue.solve/1"},
                 {"graph", named.text},
                 {"problem", named.problem},
                 {"rules", to_text(rules)},
                 {"unavoidable", Int128(unavoidable)},
                 {"results", results}});
    return 0;
  });
}

}  // namespace redblue::cli
