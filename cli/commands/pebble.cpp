#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "commands/commands.hpp"
#include "commands/pebble_schedule.hpp"
#include "options/graph.hpp"
#include "redblue/files/atomic_file.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/graphs/dot.hpp"
#include "redblue/pebbling/graphs/hdag.hpp"
#include "redblue/pebbling/osp.hpp"
#include "redblue/pebbling/referee.hpp"
#include "report/json.hpp"
#include "report/moves.hpp"
#include "report/partition.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {
namespace {

struct PebbleOptions {
  GraphOptions graph;
  RulesOptions rules;
  ScheduleOptions schedule;
  std::optional<index_t> M;
  std::optional<std::string> to_hdag;
  std::optional<std::string> to_dot;
  std::optional<std::string> check;
  std::optional<std::string> osp;
  std::optional<std::string> to_osp;
  std::optional<std::string> parts;
  bool partition = false;
  bool json = false;
};

void write_text(const std::string& path, const std::string& text) {
  file::AtomicFile file(path);
  file.write(text);
  file.commit();
}

/// What a graph has, and what a game on it needs.
void describe_graph(const pebbling::NamedGraph& named, const PebbleOptions& options) {
  const pebbling::Graph& g = named.graph;
  const pebbling::Rules rules = options.rules.rules();
  std::size_t outputs = 0;
  std::map<std::string, std::size_t> nodes_of;
  for (pebbling::Node v = 0; v < g.size(); ++v) {
    outputs += g.is_output(v) ? 1 : 0;
    ++nodes_of[std::string(name_of(g.op(v)))];
  }
  const std::size_t least = least_memory(g, rules);
  if (options.json) {
    Json j{{"schema", "redblue.pebble/1"}, {"graph", named.text}, {"problem", named.problem}};
    j["nodes"] = Int128(g.size());
    j["edges"] = Int128(g.edges());
    j["inputs"] = Int128(nodes_of["input"]);
    j["outputs"] = Int128(outputs);
    for (const auto& [op, number] : nodes_of) j["operations"][op] = Int128(number);
    j["largest_in_degree"] = Int128(largest_in_degree(g));
    j["rules"] = to_text(rules);
    j["least_M"] = Int128(least);
    print(j);
    return;
  }
  fmt::print("{}\n{} nodes, {} edges, {} inputs, {} outputs\n", named.text, g.size(), g.edges(), nodes_of["input"],
             outputs);
  for (const auto& [op, number] : nodes_of) fmt::print("  {:<14}{}\n", op, number);
  fmt::print("under the rules '{}' it needs M = {} or more\n", to_text(rules), least);
}

/// The schedule's play, on a graph of its own. Returns the exit code.
int play_schedule(const PebbleOptions& options) {
  if (options.graph.given() || options.to_hdag || options.to_dot || options.to_osp || options.osp)
    throw Error(
        "--schedule makes the graph of its kernels: give no --graph, --hdag, --dot or --osp; --output writes the play, "
        "and `redblue pebble --check` of it --to-hdag, --to-dot and --to-osp");
  pebbling::Arguments sizes;
  for (const pebbling::Parameter& p : pebbling::parameters())
    if (const auto value = options.graph.value(p.name)) sizes.emplace(p.name, *value);
  return options.schedule.play(sizes, options.rules.rules("slide"), options.M, options.json);
}

void require_no_moves_in_json(const PebbleOptions& options) {
  if (options.json && options.schedule.moves()) throw Error("--moves prints lines of text; give it without --json");
}

void write_graph(const pebbling::Graph& g, const PebbleOptions& options) {
  if (options.to_hdag) write_text(*options.to_hdag, pebbling::to_hdag(g));
  if (options.to_dot) write_text(*options.to_dot, pebbling::to_dot(g));
}

/// Says what a legal play is and costs, and writes what the options ask for.
void report_play(const pebbling::Certificate& c, const PebbleOptions& options) {
  std::optional<PartitionReport> partition;
  if (options.partition) partition = report_of(c.graph, c.M, pebbling::partition_of(c.graph, c.rules, c.M, c.moves));
  write_graph(c.graph, options);
  if (options.to_osp) write_text(*options.to_osp, pebbling::to_osp(c));
  if (options.json) {
    Json j{{"schema", "redblue.pebble_check/1"},
           {"schedule", c.schedule},
           {"graph", c.graph_text},
           {"problem", c.problem},
           {"rules", to_text(c.rules)},
           {"M", Int128(c.M)},
           {"moves", Int128(c.moves.size())},
           {"reads", Int128(c.cost.reads)},
           {"writes", Int128(c.cost.writes)},
           {"io", Int128(c.cost.io())},
           {"computed", Int128(c.cost.computed)},
           {"peak", Int128(c.cost.peak)}};
    if (partition) j["partition"] = to_json(*partition, c.graph, c.M);
    print(j);
    return;
  }
  fmt::print("{} on {}, rules '{}', M = {}: legal, {} reads + {} writes = {} words, peak {}\n", c.schedule,
             c.graph_text, to_text(c.rules), c.M, c.cost.reads, c.cost.writes, c.cost.io(), c.cost.peak);
  if (partition) print(*partition, c.graph, c.M);
  if (options.schedule.moves()) print_moves(c.graph, c.moves);
}

/// What f makes of a text; its errors name the file.
template <class F>
auto of_file(const std::string& path, const F& f) {
  const std::string text = read_text(path);
  try {
    return f(text);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", path, e.what()));
  }
}

/// Plays a certificate. Returns the exit code.
int check_certificate(const PebbleOptions& options) {
  const pebbling::Certificate c = of_file(*options.check, pebbling::parse_certificate);
  try {
    verify(c);
  } catch (const Error& e) {
    note(fmt::format("{}: {}", *options.check, e.what()));
    return 1;
  }
  report_play(c, options);
  return 0;
}

/// Plays a schedule of OneStopParallel on a graph. Returns the exit code.
int play_osp(const PebbleOptions& options) {
  pebbling::NamedGraph named = options.graph.graph();
  pebbling::Rules rules = options.rules.rules();
  const auto [processors, moves] =
      of_file(*options.osp, [&](const std::string& text) { return pebbling::parse_osp(named.graph, text); });
  if (rules.processors > 1 && rules.processors != processors)
    throw Error(fmt::format("--processors {}: {} is for {}", rules.processors, *options.osp, processors));
  rules.processors = processors;
  const std::size_t most = options.M ? static_cast<std::size_t>(*options.M) : named.graph.size();
  if (options.M) check_memory(named.graph, rules, most);
  pebbling::Certificate c{
      "a schedule of OneStopParallel", named.text, named.problem, rules, most, std::move(named.graph), moves, {}};
  pebbling::Referee referee(c.graph, rules, most);
  try {
    for (const pebbling::Move& move : c.moves) referee.play(move);
    referee.finish();
  } catch (const Error& e) {
    note(fmt::format("{}: {}", *options.osp, e.what()));
    return 1;
  }
  c.cost = referee.cost();
  if (!options.M) c.M = c.cost.peak;
  report_play(c, options);
  if (options.schedule.output()) write_certificate(c, *options.schedule.output());
  return 0;
}

/// Checks a partition that a file states. Returns the exit code.
int check_given_partition(const PebbleOptions& options) {
  if (!options.M || *options.M < 1) throw Error("--parts brings a 2M-partition: give --M, of at least 1");
  const pebbling::NamedGraph named = options.graph.graph();
  const auto M = static_cast<std::size_t>(*options.M);
  const pebbling::Partition partition =
      of_file(*options.parts, [&](const std::string& text) { return pebbling::parse_partition(named.graph, text); });
  std::optional<PartitionReport> report;
  try {
    report = report_of(named.graph, M, partition);
  } catch (const Unsupported&) {
    throw;
  } catch (const Error& e) {
    note(fmt::format("{}: {}", *options.parts, e.what()));
    return 1;
  }
  write_graph(named.graph, options);
  if (options.json) {
    Json j{{"schema", "redblue.pebble_partition/1"}, {"graph", named.text}, {"M", Int128(M)}};
    j["partition"] = to_json(*report, named.graph, M);
    print(j);
    return 0;
  }
  fmt::print("{}: a 2M-partition of {} parts for M = {}\n", named.text, report->partition.parts.size(), M);
  print(*report, named.graph, M);
  return 0;
}

}  // namespace

void add_pebble(Program& program) {
  const Command command = program.command("pebble", "the red-blue pebble game: graphs, and plays that are checked");
  command.footer(
      "Examples:\n  redblue pebble --graph attention --nq 2 --nk 3 --d 1\n  redblue pebble --graph backward --nq 2 "
      "--nk 2 "
      "--d 1 --to-dot backward.dot\n  redblue pebble --hdag graph.hdag --rules slide --M 4\n  redblue pebble "
      "--schedule flash --nq 3 --nk 3 --d 1 --M 6 --optimum --output flash.txt\n  redblue pebble --check flash.txt");
  auto options = std::make_shared<PebbleOptions>();
  options->graph.add_to(command);
  options->rules.add_to(command);
  options->schedule.add_to(command);
  command.option("--M", options->M, "red pebbles; with fewer than a game needs, the answer is 'infeasible'").words();
  command.option("--to-hdag", options->to_hdag, "writes the graph as HyperDAG_DB does").type_name("FILE");
  command.option("--to-dot", options->to_dot, "writes the graph for Graphviz").type_name("FILE");
  command.option("--check", options->check, "plays this certificate; - is standard input").type_name("FILE");
  command.option("--osp", options->osp, "plays this schedule of OneStopParallel on the graph; - is standard input")
      .type_name("FILE");
  command.option("--to-osp", options->to_osp, "writes the play of --check or --osp as OneStopParallel does")
      .type_name("FILE");
  command.flag("--partition", options->partition,
               "the 2M-partition of the play of --check or --osp, checked, and the bound M (P(2M) - 1)");
  command
      .option("--parts", options->parts,
              "checks this partition of the graph, a line of nodes for each part; with --M; - is standard input")
      .type_name("FILE");
  command.flag("--json", options->json, "JSON");
  command.does([options] {
    if (options->partition && !options->check && !options->osp)
      throw Error("--partition cuts a play: give --osp, or --check of what --output has written");
    if (options->parts && (options->check || options->osp || options->schedule.given()))
      throw Error("--parts brings a partition of a graph: give it no play");
    if (options->check) {
      options->schedule.require_none(false);
      if (options->graph.given() || options->schedule.given() || options->M || options->osp)
        throw Error("--check takes graph, rules and M from the certificate: give it no graph, schedule or M");
      require_no_moves_in_json(*options);
      return check_certificate(*options);
    }
    if (options->schedule.given()) return play_schedule(*options);
    if (options->M && *options->M < 0) throw Error(fmt::format("--M {}: give a number of pebbles", *options->M));
    if (options->osp) {
      options->schedule.require_none(false, false);
      require_no_moves_in_json(*options);
      return play_osp(*options);
    }
    options->schedule.require_none();
    if (options->to_osp) throw Error("--to-osp writes a play: give --check or --osp");
    if (options->parts) return check_given_partition(*options);
    const pebbling::NamedGraph graph = options->graph.graph();
    if (options->M) check_memory(graph.graph, options->rules.rules(), static_cast<std::size_t>(*options->M));
    write_graph(graph.graph, *options);
    describe_graph(graph, *options);
    return 0;
  });
}

}  // namespace redblue::cli
