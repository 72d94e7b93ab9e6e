#include "redblue/methods/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "commands/commands.hpp"
#include "files/nan.hpp"
#include "files/tensors.hpp"
#include "files/unused.hpp"
#include "options/options.hpp"
#include "report/certificate.hpp"
#include "report/json.hpp"
#include "report/standard_output.hpp"

namespace redblue::cli {

namespace {

struct CompareFlags {
  FileOptions files;
  MemoryOptions memory;
  bool causal = false;
  std::optional<double> scale;
  std::optional<std::string> compute_dtype;
  std::optional<index_t> threads;
  std::vector<std::string> methods;
  SequenceOptions sequences;
  index_t repetitions = 3, seeds = 1;
  bool per_head = false, all = false;
  std::optional<std::string> format;
  bool json = false;
};

/// Compares two errors for sorting: a NaN is the largest.
bool is_less(double a, double b) { return std::isnan(a) ? false : std::isnan(b) || a < b; }

double median(const std::vector<HeadError>& heads, double HeadError::* error) {
  std::vector<double> all;
  all.reserve(heads.size());
  for (const HeadError& h : heads) all.push_back(h.*error);
  std::sort(all.begin(), all.end(), is_less);
  return (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
}
const HeadError& worst(const std::vector<HeadError>& heads, double HeadError::* error) {
  return *std::max_element(heads.begin(), heads.end(),
                           [=](const HeadError& a, const HeadError& b) { return is_less(a.*error, b.*error); });
}

Json heads_to_json(const std::vector<HeadError>& heads) {
  Json list = Json::array();
  for (const HeadError& h : heads)
    list.push_back({{"batch", h.batch},
                    {"head", h.head},
                    {"frobenius", h.frobenius},
                    {"max", h.largest},
                    {"frobenius_worst", h.most_frobenius},
                    {"max_worst", h.most_largest},
                    {"proved", std::isfinite(h.proved) ? Json(h.proved) : Json(nullptr)}});
  return list;
}

void print_json(const Comparisons& found, Words M, const std::vector<std::string>& unused) {
  Json methods = Json::array();
  const Words exact = found.methods.front().words;
  for (const Compared& x : found.methods) {
    Json row{{"method", x.contender.method}, {"setting", x.contender.setting}};
    if (!x.contender.refused.empty()) {
      row["refused"] = x.contender.refused;
    } else {
      row["schedule"] = x.schedule;
      row["footprint"] = to_json(x.footprint);
      row["io"] = to_json(x.words);
      row["io_over_exact"] = x.words.to_double() / exact.to_double();
      row["seconds"] = x.seconds;
      row["seeds"] = x.seeds;
      row["heads"] = heads_to_json(x.heads);
      if (x.certificate) row["certificate"] = to_json(*x.certificate, x.contender.problem, {});
    }
    methods.push_back(row);
  }
  print({{"schema", "redblue.compare/1"},
         {"problem", to_json(found.methods.front().contender.problem)},
         {"M", to_json(M)},
         {"errors",
          "frobenius: |o - exact| / |exact|; max: max|o - exact| / max|exact|; of several seeds the mean, "
          "and _worst the largest; proved: no max is above it, by the certificate; o in the type of q, exact attention "
          "in fp64"},
         {"methods", methods},
         {"unused", unused},
         {"mean_of_values", heads_to_json(found.mean_of_values)}});
}

/// A line for each head of each method.
void print_csv(const Comparisons& found) {
  fmt::print(
      "method,setting,schedule,footprint,io,seconds,seeds,batch,head,frobenius,max,frobenius_worst,max_worst,proved,"
      "refused\n");
  const auto lines = [](const std::string& front, const std::vector<HeadError>& heads) {
    for (const HeadError& h : heads)
      fmt::print("{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{},\n", front, h.batch, h.head, h.frobenius, h.largest,
                 h.most_frobenius, h.most_largest, std::isfinite(h.proved) ? fmt::format("{:.6g}", h.proved) : "");
  };
  for (const Compared& x : found.methods) {
    const std::string name = fmt::format("{},\"{}\"", x.contender.method, x.contender.setting);
    if (!x.contender.refused.empty())
      fmt::print("{},,,,,,,,,,,,,\"{}\"\n", name, x.contender.refused);
    else
      lines(
          fmt::format("{},{},{},{},{:.6g},{}", name, x.schedule, x.footprint.str(), x.words.str(), x.seconds, x.seeds),
          x.heads);
  }
  lines("mean of v,,,,,,", found.mean_of_values);
}

/// "polynomial (3), smyrf": names that follow each other, with how often they do.
std::string counted_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0, n = 0; i < names.size(); i += n) {
    for (n = 1; i + n < names.size() && names[i + n] == names[i];) ++n;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", names[i], n > 1 ? fmt::format(" ({})", n) : "");
  }
  return text;
}

/// `all`: with a line for each method that is not run, too.
void print_table(const Comparisons& found, Words M, bool per_head, bool all) {
  const Words exact = found.methods.front().words;
  const bool several_seeds =
      std::any_of(found.methods.begin(), found.methods.end(), [](const Compared& x) { return x.seeds > 1; });
  fmt::print("{:<14} {:<42} {:<20} {:>10} {:>14} {:>9} {:>10}  {:>9} {:>16}  {:>9} {:>16} {:>9}\n", "method", "setting",
             "schedule", "footprint", "words", "/ exact", "ms", "Frobenius", "worst (head)", "max", "worst (head)",
             "proved");
  const auto errors = [&](const std::vector<HeadError>& heads) {
    const auto pair = [&](double HeadError::* e, double HeadError::* most) {
      const HeadError& w = worst(heads, most);
      return fmt::format("{:>9.3g} {:>16}", median(heads, e), fmt::format("{:.3g} ({}.{})", w.*most, w.batch, w.head));
    };
    const double proved = worst(heads, &HeadError::proved).proved;
    return fmt::format("{}  {} {:>9}", pair(&HeadError::frobenius, &HeadError::most_frobenius),
                       pair(&HeadError::largest, &HeadError::most_largest),
                       std::isfinite(proved) ? fmt::format("{:.3g}", proved) : "-");
  };
  const auto heads = [&](const std::vector<HeadError>& list) {
    if (!per_head) return;
    for (const HeadError& h : list)
      fmt::print("{:>57} {:<66} {:>9.3g} {:>16}  {:>9.3g}\n", "", fmt::format("head {}.{}", h.batch, h.head),
                 h.frobenius, "", h.largest);
  };
  std::vector<std::string> not_run;
  for (const Compared& x : found.methods) {
    const std::string front = fmt::format("{:<14} {:<42}", x.contender.method, x.contender.setting);
    if (!x.contender.refused.empty()) {
      if (all)
        fmt::print("{} not run: {}\n", front, x.contender.refused);
      else
        not_run.push_back(x.contender.method);
      continue;
    }
    fmt::print("{} {:<20} {:>10} {:>14} {:>9.3g} {:>10.3f}  {}\n", front, x.schedule, x.footprint.str(), x.words.str(),
               x.words.to_double() / exact.to_double(), 1e3 * x.seconds, errors(x.heads));
    heads(x.heads);
  }
  fmt::print("{:<14} {:<42} {:<20} {:>10} {:>14} {:>9} {:>10}  {}\n", "mean of v", "no scores: a yardstick", "-", "-",
             "-", "-", "-", errors(found.mean_of_values));
  heads(found.mean_of_values);
  if (const std::string names = counted_names(not_run); !names.empty())
    fmt::print("not run, for M is too small or for another reason that --all gives: {}\n", names);
  fmt::print(
      "M = {} words. Words are of all heads, without lse. Errors of o in the type of q, as run writes it, against "
      "exact "
      "attention in fp64: Frobenius |o - exact| / |exact|, and max|o - exact| / max|exact|; median over heads, and the "
      "worst (batch.head){}. Proved: the max of no head is above it.\n",
      M.str(), several_seeds ? "; of several seeds the mean for each head, and the worst seed" : "");
}

void require_files(const FileOptions& files) {
  const auto given = [&](const char* name) { return files.npy.at(name).has_value(); };
  const bool all = given("q") && given("k") && given("v"), any = given("q") || given("k") || given("v");
  if (files.input ? any : !all)
    throw InvalidProblem("give the tensors q, k and v: --input X.safetensors (or .npz), or --q --k --v as .npy files");
  if (!files.input && !files.names.empty())
    throw InvalidProblem(fmt::format("--name {}: .npy files hold one tensor without a name", files.names[0]));
  require_names(files.names, {"q", "k", "v"});
}

int compare_command(const CompareFlags& flags) {
  if (flags.json && flags.format) throw InvalidProblem("--json and --format: give one of them");
  Problem kind;
  kind.causal = flags.causal;
  kind.lse_required = false;
  kind.scale = flags.scale;
  flags.sequences.apply_to(kind);
  require_files(flags.files);
  const std::unique_ptr<Archive> archive = flags.files.opened();
  const LoadedInputs loaded(flags.files, kind, archive.get());
  const Problem problem = loaded.problem(kind);
  problem.validate();
  std::vector<std::string> unused;
  if (archive != nullptr) {
    std::set<std::string> given;
    if (flags.causal) given.insert("--causal");
    if (flags.scale) given.insert("--scale");
    if (flags.sequences.seqlens) given.insert("--seqlens");
    if (flags.sequences.seqused_k) given.insert("--seqused-k");
    unused = unused_names(flags.files, *archive, loaded.used(), problem, given, false);
    if (!unused.empty()) note(unused_text(flags.files, unused));
  }
  const Tensors& tensors = loaded.tensors();
  const Inputs inputs{tensors[SlowArray::Q], tensors[SlowArray::K], tensors[SlowArray::V]};
  CompareOptions options;
  options.run.compute = compute_of(flags.compute_dtype, loaded.any_f64());
  options.run.threads = threads_of(flags.threads);
  options.repetitions = flags.repetitions;
  options.seeds = flags.seeds;
  const Words M = flags.memory.words(options.run.compute);
  options.M = M;
  const auto list =
      flags.methods.empty() ? contenders(problem, inputs, options.run.compute) : contenders(problem, flags.methods);
  const Comparisons found = compare(list, inputs, options);
  const std::string format = flags.json ? "json" : flags.format.value_or("table");
  if (format == "json")
    print_json(found, M, unused);
  else if (format == "csv")
    print_csv(found);
  else
    print_table(found, M, flags.per_head, flags.all || !flags.methods.empty());
  return 0;
}

}  // namespace

void add_compare(Program& program) {
  const Command command =
      program.command("compare", "error, words and time of approximate attention beside exact attention, on files");
  command.footer(
      "Runs every method that redblue has, or those of --approximate, on the q, k and v of the files, each planned for "
      "the fewest words under M.\n"
      "Examples:\n  redblue compare --input X.safetensors --M 16384\n  redblue compare --input X.safetensors --M 65536 "
      "--causal --format csv\n  redblue compare --input X.safetensors --M 16384 --approximate performer:128 "
      "--approximate "
      "smyrf:cluster=32");
  auto flags = std::make_shared<CompareFlags>();
  FileOptions& files = flags->files;
  for (const std::string& name : all_names()) files.npy[name] = std::nullopt;
  command.option("--input", files.input, "safetensors or .npz file with q [batch, heads, n_q, d], k, v")
      .type_name("FILE");
  for (const char* name : {"q", "k", "v"})
    command.option(fmt::format("--{}", name), files.npy[name], fmt::format("{}, .npy", name)).type_name("FILE");
  add_names_and_layout(command, files.names, files.layout);
  add_unused(command, files);
  flags->memory.add_to(command, true);
  command
      .option(
          "--approximate", flags->methods,
          "a method to run, as run and plan take it, in place of all (repeatable); exact attention and the mean of v "
          "are always shown")
      .type_name("METHOD");
  command.flag("--causal", flags->causal, "with a causal mask");
  flags->sequences.add_to(command);
  command.option("--scale", flags->scale, "factor of the scores (default 1 / sqrt(d))");
  add_compute_dtype(command, flags->compute_dtype);
  command.option("--threads", flags->threads, "threads (default: as many as the work is worth)");
  command.option("--repetitions", flags->repetitions, "timed runs of each method (default 3); the median is shown");
  command.option("--seeds", flags->seeds,
                 "seeds of each method that draws random numbers, its own and those after it (default 1): the mean of "
                 "their errors is shown, and the largest as the worst");
  command.flag("--per-head", flags->per_head,
               "the errors of every head, too, in the table; CSV and JSON always have them");
  command.flag(
      "--all", flags->all,
      "a line for each method that is not run, too, with the reason, in the table; CSV and JSON always have them");
  command.option("--format", flags->format, "table, csv or json").one_of({"table", "csv", "json"});
  command.flag("--json", flags->json, "the same as --format json");
  command.does([flags] { return compare_command(*flags); });
}

}  // namespace redblue::cli
