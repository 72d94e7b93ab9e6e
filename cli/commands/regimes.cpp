#include "redblue/methods/regimes.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>

#include "commands/commands.hpp"
#include "options/options.hpp"
#include "redblue/language/error.hpp"
#include "redblue/methods/kernels/polynomial.hpp"
#include "report/json.hpp"

namespace redblue::cli {

namespace {

struct RegimesOptions {
  std::string n = "65536", d = "16,32,64", M = "1024,16384,262144";
  std::optional<std::string> degrees;
  std::string op = "forward";
  bool causal = false;
  double tolerance = 1e-2;
  std::optional<double> range;
  std::optional<std::string> format;
  bool json = false;
};

struct Line {
  plan::Regime regime;
  double range;  ///< the largest one of this degree
};

const char* regime_of(const plan::Regime& r) {
  if (!r.exact && !r.approximate) return "none";
  return r.approximation_wins() ? "polynomial" : "exact";
}

double ratio(Words a, Words b) { return a.to_double() / b.to_double(); }

/// The degrees of --degrees, or with --range the least one that proves the tolerance.
std::vector<index_t> degrees_of(const RegimesOptions& o) {
  if (o.range && o.degrees) throw InvalidProblem("--range and --degrees: give one of them; --range finds the degree");
  if (o.range) return {plan::least_degree(*o.range, o.tolerance)};
  return parse_list("--degrees", o.degrees.value_or("2,3,4"));
}

std::vector<Line> lines_of(const RegimesOptions& o) {
  std::map<index_t, double> ranges;
  for (const index_t degree : degrees_of(o)) ranges[degree] = plan::largest_range(degree, o.tolerance);
  std::vector<Line> lines;
  for (const index_t n : parse_list("--n", o.n))
    for (const index_t d : parse_list("--d", o.d))
      for (const auto& [degree, range] : ranges)
        for (const index_t M : parse_list("--M", o.M)) {
          Problem p;
          p.op = o.op == "backward" ? Operation::backward : Operation::forward;
          p.n_q = p.n_k = n;
          p.d = p.d_v = d;
          p.causal = o.causal;
          p.validate();
          lines.push_back({plan::regime(p, M, degree), range});
        }
  return lines;
}

Json moved_to_json(const std::optional<plan::Moved>& x) {
  return x ? Json{{"schedule", x->schedule}, {"io", to_json(x->words)}} : Json(nullptr);
}

void print_json(const RegimesOptions& o, const std::vector<Line>& lines) {
  Json list = Json::array();
  for (const auto& [r, range] : lines) {
    const bool both = r.approximate && r.exact;
    list.push_back({{"n", r.problem.n_q},
                    {"d", r.problem.d},
                    {"M", to_json(r.M)},
                    {"degree", r.degree},
                    {"monomials", to_json(r.monomials)},
                    {"largest_range", range},
                    {"approximate", moved_to_json(r.approximate)},
                    {"exact", moved_to_json(r.exact)},
                    {"ratio", both ? Json(ratio(r.approximate->words, r.exact->words)) : Json(nullptr)},
                    {"bound", r.approximate ? to_json(r.bound) : Json(nullptr)},
                    {"break_even_n", r.break_even ? Json(*r.break_even) : Json(nullptr)},
                    {"regime", regime_of(r)}});
  }
  print({{"schema", "redblue.regimes/1"},
         {"operation", o.op},
         {"causal", o.causal},
         {"tolerance", o.tolerance},
         {"tolerance_is", "the largest relative error of a weight, proved for scores of at most largest_range"},
         {"regimes", list}});
}

void print_csv(const std::vector<Line>& lines) {
  fmt::print(
      "n,d,M,degree,monomials,largest_range,approximate,approximate_io,exact,exact_io,bound,bound_io,break_even_n,"
      "regime\n");
  const auto moved = [](const auto& x) { return x ? fmt::format("{},{}", x->schedule, x->words.str()) : ","; };
  for (const auto& [r, range] : lines)
    fmt::print("{},{},{},{},{},{},{},{},{},{},{}\n", r.problem.n_q, r.problem.d, r.M.str(), r.degree, r.monomials.str(),
               range, moved(r.approximate), moved(r.exact),
               r.approximate ? fmt::format("{},{}", r.bound.name, r.bound.words.str()) : ",",
               r.break_even ? fmt::format("{}", *r.break_even) : "", regime_of(r));
}

void print_table(const RegimesOptions& o, const std::vector<Line>& lines) {
  fmt::print("{:>10} {:>5} {:>9} {:>6} {:>9} {:>8}  {:>16} {:<21} {:>16} {:<18} {:>9} {:>7} {:>12}  {}\n", "n", "d",
             "M", "degree", "monomials", "|z| to", "polynomial", "schedule", "exact", "schedule", "ratio", "/bound",
             "from n", "fewer words");
  const auto moved = [](const auto& x, int width) {
    return x ? fmt::format("{:>16} {:<{}}", x->words.str(), x->schedule, width)
             : fmt::format("{:>16} {:<{}}", "-", "", width);
  };
  for (const auto& [r, range] : lines)
    fmt::print("{:>10} {:>5} {:>9} {:>6} {:>9} {:>8.3g}  {} {} {:>9} {:>7} {:>12}  {}\n", r.problem.n_q, r.problem.d,
               r.M.str(), r.degree, r.monomials.str(), range, moved(r.approximate, 21), moved(r.exact, 18),
               r.approximate && r.exact ? fmt::format("{:.3g}", ratio(r.approximate->words, r.exact->words)) : "-",
               r.approximate ? fmt::format("{:.2f}", ratio(r.approximate->words, r.bound.words)) : "-",
               r.break_even ? fmt::format("{}", *r.break_even) : "-", regime_of(r));
  fmt::print(
      "Words of {}{} with one head, d_v = d, without lse. |z| to: every weight is proved to be off by at most {:.3g} "
      "of itself for "
      "scores up to this.\n"
      "/bound: over the bound of schedules with one state of all monomials. From n: where the polynomial begins to "
      "move no more words.\n",
      o.op, o.causal ? ", causal" : "", o.tolerance);
}

}  // namespace

void add_regimes(Program& program) {
  const Command command =
      program.command("regimes", "where polynomial attention moves fewer words than exact attention");
  command.footer(
      "Lists are as 16,32,64; every combination is a line.\nExamples:\n  redblue regimes\n  redblue regimes --d 64 --M "
      "16384 --n 1024,65536 --degrees 1,2,3\n  redblue regimes --d 64 --tolerance 1e-3 --range 1 --json");
  auto o = std::make_shared<RegimesOptions>();
  command.option("--n", o->n, "queries and keys (default 65536)").type_name("LIST");
  command.option("--d", o->d, "head sizes (default 16,32,64)").type_name("LIST");
  command.option("--M", o->M, "words of fast memory (default 1024,16384,262144)").type_name("LIST");
  command.option("--degrees", o->degrees, "of the polynomial (default 2,3,4)").type_name("LIST");
  command.option("--op", o->op, "forward or backward").one_of({"forward", "backward"});
  command.flag("--causal", o->causal, "with a causal mask");
  command.option("--tolerance", o->tolerance, "largest relative error of a weight (default 0.01)");
  command.option("--range", o->range, "scores up to this: takes the least degree that proves the tolerance for them");
  command.option("--format", o->format, "table, csv or json").one_of({"table", "csv", "json"});
  command.flag("--json", o->json, "the same as --format json");
  command.does([o] {
    if (o->json && o->format) throw InvalidProblem("--json and --format: give one of them");
    const std::string format = o->json ? "json" : o->format.value_or("table");
    const std::vector<Line> lines = lines_of(*o);
    if (format == "json")
      print_json(*o, lines);
    else if (format == "csv")
      print_csv(lines);
    else
      print_table(*o, lines);
    return 0;
  });
}

}  // namespace redblue::cli
