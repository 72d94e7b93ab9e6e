#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue::cli {

namespace {

struct Figure1Options {
  index_t n = 1024;
  index_t d = 32;
  index_t per_octave = 1;
  std::optional<index_t> from, to;
  std::string format = "json";
};

/// One schedule at one M, run on the counting machine.
struct Point {
  std::string schedule;
  Words io, peak;
};

struct Line {
  index_t M;
  std::vector<Point> points;  ///< printed_small, printed_large, repaired_small, repaired_large, best
  bound::Bound bound;
  double small_form, large_form;  ///< the forms of Table 1, without constants
};

const std::vector<std::string> kColumns = {"printed_small", "printed_large", "repaired_small", "repaired_large",
                                           "best"};

std::optional<Point> counted(const Problem& p, Words M, const std::string& schedule) {
  plan::Options o;
  o.M = M;
  o.schedule = schedule;
  try {
    const plan::Plan plan = plan::make_plan(p, o);
    const Measured m = count(plan);
    return Point{std::string(plan.row().schedule), m.io.total(), m.peak};
  } catch (const CapacityError&) {
    return std::nullopt;  // needs more than M words
  }
}

/// The cheapest schedule for large caches that fits, by its plan; then it is counted.
std::optional<Point> best_large(const Problem& p, Words M) {
  plan::Options o;
  o.M = M;
  const plan::Plan plan = plan::make_plan(p, o);
  for (const plan::Row& r : plan.rows)
    if (plan.may_choose(r) && !r.algorithm->traits.keeps_scores) return counted(p, M, std::string(r.schedule));
  return std::nullopt;
}

Line line_at(const Problem& p, index_t M) {
  Line line{M, {}, bound::best(bound::bounds_of(p.op, p.bound_problem(M))), 0, 0};
  // The figure of the paper compares these by name: printed, repaired, and the best of redblue.
  for (const auto& point : {counted(p, M, "algorithm_6"), counted(p, M, "algorithm_9"), counted(p, M, "6R"),
                            best_large(p, M), counted(p, M, "")})
    line.points.push_back(point.value_or(Point{}));
  const double n = static_cast<double>(p.n_q), d = static_cast<double>(p.d), m = static_cast<double>(M);
  line.small_form = (n * n * d + n * d * d) / std::sqrt(m);
  line.large_form = (n * n * d * d + n * d * d * d) / m;
  return line;
}

/// The last M at which `b` begins to move no more words than `a`; 0 if there is none, or `b` does so from the first M.
index_t crossover(const std::vector<Line>& lines, std::size_t a, std::size_t b) {
  index_t last = 0;
  bool before = false;  // did `a` win at the previous M?
  for (const Line& l : lines) {
    if (l.points[a].schedule.empty()) continue;
    const bool wins = !l.points[b].schedule.empty() && l.points[b].io <= l.points[a].io;
    if (wins && before) last = l.M;
    before = !wins;
  }
  return last;
}

void print_json(const Problem& p, const std::vector<Line>& lines) {
  Json list = Json::array();
  for (const Line& l : lines) {
    Json j{{"M", l.M}, {"M_over_d2", static_cast<double>(l.M) / static_cast<double>(p.d * p.d)}};
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const Point& x = l.points[i];
      if (x.schedule.empty())
        j[kColumns[i]] = nullptr;
      else
        j[kColumns[i]] = {{"schedule", x.schedule},
                          {"io", to_json(x.io)},
                          {"peak", to_json(x.peak)},
                          {"peak_over_M", x.peak.to_double() / static_cast<double>(l.M)}};
    }
    j["bound"] = to_json(l.bound);
    j["small_cache_form"] = l.small_form;
    j["large_cache_form"] = l.large_form;
    list.push_back(j);
  }
  const auto at = [&](std::size_t a, std::size_t b) {
    const index_t M = crossover(lines, a, b);
    return M == 0 ? Json(nullptr) : Json(M);
  };
  print({{"schema", "redblue.figure1/1"},
         {"source", "Li et al. 2410.09397, Figure 1 and Table 1"},
         {"problem", to_json(p)},
         {"counts", "executed on the counting machine"},
         {"table1",
          {{"small_cache",
            {{"condition", "M < d^2"}, {"form", "(n^2 d + n d^2) / sqrt(M)"}, {"algorithm", "algorithm_6"}}},
           {"large_cache",
            {{"condition", "M >= d^2"}, {"form", "(n^2 d^2 + n d^3) / M"}, {"algorithm", "algorithm_9"}}}}},
         {"crossover", {{"theory", p.d * p.d}, {"printed", at(0, 1)}, {"repaired", at(2, 3)}}},
         {"points", list}});
}

void print_csv(const std::vector<Line>& lines) {
  std::string head = "M";
  for (const std::string& c : kColumns) head += fmt::format(",{0},{0}_io,{0}_peak", c);
  fmt::print("{},bound,bound_io,small_cache_form,large_cache_form\n", head);
  for (const Line& l : lines) {
    std::string text = fmt::format("{}", l.M);
    for (const Point& x : l.points)
      text += x.schedule.empty() ? ",,," : fmt::format(",{},{},{}", x.schedule, x.io.str(), x.peak.str());
    fmt::print("{},{},{},{:.1f},{:.1f}\n", text, l.bound.name, l.bound.words.str(), l.small_form, l.large_form);
  }
}

}  // namespace

void add_figure1(Program& program) {
  const Command command = program.command(
      "figure1",
      "data of Figure 1 and Table 1 of Li et al. 2410.09397: words of dL/dX against M, from executed counts");
  command.footer("Examples:\n  redblue figure1\n  redblue figure1 --n 4096 --d 64 --per-octave 2 --format csv");
  auto o = std::make_shared<Figure1Options>();
  command.option("--n", o->n, "queries and keys").in_range(1, index_t{1} << 20);
  command.option("--d", o->d, "columns of A1, A2, A3, X and Y").in_range(1, index_t{1} << 14);
  command.option("--from", o->from, "smallest M (default d^2 / 64)");
  command.option("--to", o->to, "largest M (default n d)");
  command.option("--per-octave", o->per_octave, "values of M for each doubling").in_range(1, 64);
  command.option("--format", o->format, "json or csv").one_of({"json", "csv"});
  command.does([o] {
    Problem p;
    p.op = Operation::gradient_x;
    p.n_q = p.n_k = o->n;
    p.d = p.d_v = o->d;
    p.validate();
    // A power of two times 2^(k / per_octave), so that M = d^2 is among them where d is a power of two.
    const double from = static_cast<double>(o->from.value_or(std::max<index_t>(16, o->d * o->d / 64)));
    const double to = o->to
                          ? static_cast<double>(*o->to)
                          : std::max({from, static_cast<double>(o->n * o->d), 4.0 * static_cast<double>(o->d * o->d)});
    if (!(from >= 4 && from <= to))
      throw InvalidProblem(fmt::format("--from {} --to {}: give 4 <= from <= to", from, to));
    std::vector<Line> lines;
    for (int k = 0;; ++k) {
      const double M = from * std::exp2(static_cast<double>(k) / static_cast<double>(o->per_octave));
      if (M > to * (1 + 1e-9)) break;
      lines.push_back(line_at(p, static_cast<index_t>(std::llround(M))));
    }
    if (o->format == "json")
      print_json(p, lines);
    else
      print_csv(lines);
    return 0;
  });
}

}  // namespace redblue::cli
