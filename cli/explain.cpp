#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "redblue/machine/outline.hpp"

namespace redblue::cli {

namespace {

using machine::LineKind;
using machine::Operand;
using machine::OutlineLine;
using machine::Position;

constexpr std::string_view kLoopNames = "ijuwxyz";

/// The counter of the loop at this depth.
std::string counter(std::size_t depth) {
  return depth < kLoopNames.size() ? std::string(1, kLoopNames[depth]) : fmt::format("i{}", depth);
}

/// "64 i + 16 j" for a block inside `depth` loops.
std::string position_of(const Position& p, std::size_t depth) {
  std::string text = p.first == 0 ? "" : fmt::format("{}", p.first);
  for (std::size_t level = depth; level-- > 0;) {
    const std::size_t from_inside = depth - 1 - level;
    const index_t step = from_inside < p.steps.size() ? p.steps[from_inside] : 0;
    if (step == 0) continue;
    text += fmt::format("{}{}{}", text.empty() ? (step < 0 ? "-" : "") : (step < 0 ? " - " : " + "),
                        std::abs(step) == 1 ? "" : fmt::format("{} ", std::abs(step)), counter(level));
  }
  return text.empty() ? "0" : text;
}

class Text {
 public:
  explicit Text(const plan::Plan& plan) : plan_(plan) {}

  void add(const std::vector<OutlineLine>& lines, std::size_t depth) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].kind == LineKind::evict) {  // those that leave together share a line
        std::vector<std::string> names;
        std::size_t last = i;
        for (; last < lines.size() && lines[last].kind == LineKind::evict; ++last)
          names.push_back(lines[last].operands[0].tile);
        i = last - 1;
        print(depth, fmt::format("evict {}", fmt::join(names, ", ")), "", lines[i].resident.str());
      } else if (lines[i].kind == LineKind::loop) {
        print(depth, loop(lines[i], depth), "", "");
        add(lines[i].body, depth + 1);
      } else {
        const Words words = lines[i].reads + lines[i].writes;
        print(depth, operation(lines[i], depth), words == 0 ? "" : words.str(), lines[i].resident.str());
      }
    }
  }

  void print(std::size_t depth, const std::string& what, const std::string& words, const std::string& resident) {
    rows_.push_back({std::string(2 * depth, ' ') + what, words, resident});
  }

  /// In columns.
  ~Text() {
    std::array<std::size_t, 3> width{};
    for (const auto& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    for (const auto& row : rows_) {
      const std::string text =
          fmt::format("{:<{}}  {:>{}}  {:>{}}", row[0], width[0], row[1], width[1], row[2], width[2]);
      fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
    }
  }

 private:
  static std::string loop(const OutlineLine& l, std::size_t depth) {
    const std::string rounds = l.fewest == l.most
                                   ? fmt::format("{} in 0..{}", counter(depth), l.most - 1)
                                   : fmt::format("{} from 0 on, {} to {} rounds", counter(depth), l.fewest, l.most);
    return fmt::format("for {}{}:", rounds, l.independent && l.most > 1 ? ", in any order" : "");
  }

  std::string sides(const Operand& o) const {
    return fmt::format("{} x {}{}", o.first.rows, o.first.cols,
                       o.first == o.last ? "" : fmt::format(", last {} x {}", o.last.rows, o.last.cols));
  }

  std::string text_of(const Operand& o, std::size_t depth) const {
    if (!o.tile.empty()) return o.tile;
    const Shape all = plan::matrix_of(plan_.problem.op, plan_.problem.sizes(), o.array).shape;
    const auto range = [&](const Position& p, index_t size, index_t whole) {
      const std::string from = position_of(p, depth);
      return from == "0" && size == whole ? ":" : size == 1 ? from : fmt::format("{} : +{}", from, size);
    };
    return fmt::format("{}[{}, {}]", name_of(o.array), range(o.row, o.first.rows, all.rows),
                       range(o.col, o.first.cols, all.cols));
  }

  std::string operation(const OutlineLine& l, std::size_t depth) const {
    std::vector<std::string> operands;
    for (const Operand& o : l.operands) operands.push_back(text_of(o, depth));
    switch (l.kind) {
      case LineKind::alloc:
        return fmt::format("alloc {} ({})", operands[0], sides(l.operands[0]));
      case LineKind::load:
      case LineKind::refill:
        return fmt::format("{} {} = {} ({})", l.kind == LineKind::load ? "load" : "refill", operands[0], operands[1],
                           sides(l.operands[1]));
      case LineKind::store:
        return fmt::format("store {} = {} ({})", operands[0], operands[1], sides(l.operands[0]));
      default:
        break;
    }
    std::vector<std::string> parameters;
    for (const auto& [name, value] : l.parameters)
      if (value != 0) parameters.push_back(fmt::format("{}={:.6g}", name, value));
    return fmt::format("{} {}({}){}", l.kind == LineKind::update ? "update" : "compute", l.kernel,
                       fmt::join(operands, ", "),
                       parameters.empty() ? "" : fmt::format(" with {}", fmt::join(parameters, ", ")));
  }

  const plan::Plan& plan_;
  std::vector<std::array<std::string, 3>> rows_;
};

Words words_of(const std::vector<OutlineLine>& lines) {
  Words words;
  for (const OutlineLine& l : lines) words += l.reads + l.writes + words_of(l.body);
  return words;
}

void print_outline(const plan::Plan& plan) {
  const plan::Row& row = plan.row();
  fmt::print("{} {}: {}\n", row.schedule, plan::text_of(row.tiling), row.algorithm->idea);
  Text text(plan);
  const bool bytes = plan.options.memory.has_value();
  text.print(0,
             fmt::format("batch {}, {} key-value heads", plan.problem.batch,
                         plan.problem.kv_heads.value_or(plan.problem.heads)),
             "words moved", bytes ? "bytes resident" : "words resident");
  const std::vector<OutlineLine> lines = [&] {
    const Heartbeat heartbeat("walking through the schedule");
    return outline(plan);
  }();
  text.add(lines, 0);
  text.print(0, "sum of these lines", words_of(lines).str(), "");
  text.print(0, "formula and footprint", row.io.total().str(), row.footprint_bytes.value_or(row.footprint).str());
}

Json json_of(const Operand& o) {
  const auto position = [](const Position& p) { return Json{{"first", p.first}, {"steps", p.steps}}; };
  const auto shape = [](Shape s) { return Json::array({s.rows, s.cols}); };
  Json j{{"array", std::string(name_of(o.array))}, {"shape", shape(o.first)}, {"last_shape", shape(o.last)}};
  if (!o.tile.empty())
    j["tile"] = o.tile;
  else
    j.update({{"row", position(o.row)}, {"col", position(o.col)}});
  return j;
}

Json json_of(const std::vector<OutlineLine>& lines) {
  constexpr std::array<std::string_view, 8> kKinds = {"loop",  "alloc",   "load",   "refill",
                                                      "store", "compute", "update", "evict"};
  Json list = Json::array();
  for (const OutlineLine& l : lines) {
    Json j{{"kind", std::string(kKinds[static_cast<std::size_t>(l.kind)])}};
    if (l.kind == LineKind::loop) {
      j.update({{"independent", l.independent},
                {"fewest_rounds", l.fewest},
                {"most_rounds", l.most},
                {"body", json_of(l.body)}});
    } else {
      if (!l.kernel.empty()) j["kernel"] = l.kernel;
      Json operands = Json::array();
      for (const Operand& o : l.operands) operands.push_back(json_of(o));
      j.update({{"operands", operands},
                {"times", to_json(l.times)},
                {"reads", to_json(l.reads)},
                {"writes", to_json(l.writes)},
                {"multiply_adds", to_json(l.macs)},
                {"resident", to_json(l.resident)}});
    }
    list.push_back(j);
  }
  return list;
}

}  // namespace

void add_explain(Program& program) {
  const Command command =
      program.command("explain", "the loop nest of the chosen schedule, with this problem's numbers in it");
  command.footer(
      "Q[64 i : +64, :] is 64 rows from row 64 i on, all columns. load and alloc make a tile resident, evict drops it. "
      "A\n"
      "block among the arguments of a kernel streams past, one word at a time. Words moved are those of all rounds.\n"
      "Examples:\n"
      "  redblue explain --n 4096 --d 64 --M 16384\n"
      "  redblue explain --n 8192 --d 128 --heads 32 --kv-heads 8 --causal --dtype bf16 --memory 64KiB --multiple "
      "q=16,k=16\n"
      "  redblue explain --op backward --n 4096 --d 64 --M 16384 --schedule spilled");
  auto options = std::make_shared<ProblemOptions>();
  options->add_to(command);
  command.does([options] {
    const plan::Plan plan = options->plan();
    if (options->json) {
      Json j{{"schema", "redblue.explain/1"},
             {"problem", to_json(plan.problem)},
             {"schedule", to_json(plan.row())},
             {"lines", json_of(outline(plan))}};
      if (plan.forward) j["forward"] = json_of(outline(*plan.forward));
      print(j);
      return 0;
    }
    if (plan.forward) print_outline(*plan.forward);
    print_outline(plan);
    return 0;
  });
}

}  // namespace redblue::cli
