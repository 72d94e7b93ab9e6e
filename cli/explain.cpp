#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "redblue/core/documents.hpp"
#include "redblue/machine/outline.hpp"

namespace redblue::cli {

namespace {

using machine::LineKind;
using machine::Operand;
using machine::OutlineLine;
using machine::Position;

constexpr std::string_view kLoopNames = "ijlmrbe";  // no tile has such a name

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

/// An outline in columns.
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

  void write() const {
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
    const std::string name = counter(depth);
    if (l.fewest == l.most)
      return fmt::format("for {} in 0..{}{}:", name, l.most - 1, l.independent && l.most > 1 ? ", in any order" : "");
    return fmt::format("for {} from 0 on, {} rounds{}:", name,
                       l.rounds.regular ? position_of(l.rounds, depth) : fmt::format("{} to {}", l.fewest, l.most),
                       l.rounds.regular ? "" : " as the mask leaves");
  }

  static std::string text_of(Shape s) { return fmt::format("{} x {}", s.rows, s.cols); }

  static std::string sides(const Operand& o) {
    return fmt::format("{}{}{}", o.first == o.usual ? "" : fmt::format("first {}, then ", text_of(o.first)),
                       text_of(o.usual), o.last == o.usual ? "" : fmt::format(", last {}", text_of(o.last)));
  }

  std::string text_of(const Operand& o, std::size_t depth) const {
    const auto range = [&](const Position& p, index_t size, index_t whole) {
      const std::string from = p.regular ? position_of(p, depth) : "..";
      return from == "0" && size == whole ? ":" : size == 1 ? from : fmt::format("{} : +{}", from, size);
    };
    const bool tile = !o.tile.empty();
    const Shape all = tile ? o.whole : plan::matrix_of(plan_.problem.op, plan_.problem.sizes(), o.array).shape;
    const std::string row = range(o.row, o.usual.rows, all.rows), col = range(o.col, o.usual.cols, all.cols);
    if (tile && row == ":" && col == ":") return o.tile;
    return fmt::format("{}[{}, {}]", tile ? o.tile : name_of(o.array), row, col);
  }

  std::string operation(const OutlineLine& l, std::size_t depth) const {
    std::vector<std::string> operands;
    operands.reserve(l.operands.size());
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
    const auto far = [](const auto& p) { return std::isinf(p.second); };
    const bool masked = std::ranges::count_if(l.parameters, far) < 2;  // of lo and hi
    for (const auto& p : l.parameters)
      if (p.second != 0 && !far(p) && (masked || p.first != "group"))
        parameters.push_back(fmt::format("{}={:.6g}", p.first, p.second));
    return fmt::format("{} {}({}){}", l.kind == LineKind::update ? "update" : "compute", l.kernel,
                       fmt::join(operands, ", "),
                       parameters.empty() ? "" : fmt::format(" with {}", fmt::join(parameters, ", ")));
  }

  const plan::Plan& plan_;
  std::vector<std::array<std::string, 3>> rows_;
};

std::vector<OutlineLine> walked(const plan::Plan& plan) {
  const Heartbeat heartbeat("walking through the schedule");
  return outline(plan);
}

Words words_of(const std::vector<OutlineLine>& lines) {
  Words words;
  for (const OutlineLine& l : lines) words += l.reads + l.writes + words_of(l.body);
  return words;
}

void print_outline(const plan::Plan& plan) {
  const plan::Row& row = plan.row();
  const bool bytes = plan.options.memory.has_value();
  fmt::print("{} {}: {}\n", row.schedule, plan::text_of(row.tiling), row.algorithm->idea);
  Text text(plan);
  const Problem& p = plan.problem;
  const Sizes x = p.sizes();
  fmt::print("each of {} instances ({} batches x {} key-value heads): {} rows of queries, {} keys, d {}, d_v {}\n",
             p.instances(), p.batch, p.kv_heads.value_or(p.heads), x.n_q, x.n_k, x.d, x.d_v);
  if (p.group() > 1) fmt::print("row r of Q and its like: query r/{0} of head r mod {0} of the group\n", p.group());
  if (p.several())
    fmt::print(
        "{}: each is attention of its own, below one after another; the mask is that of each\n",
        p.cu_seqlens_q.empty() ? "padded batches" : fmt::format("{} packed sequences", p.cu_seqlens_q.size() - 1));
  if (!p.patterns.empty() && x.documents != nullptr)
    fmt::print("a pattern says who sees whom: {} pairs in {} parts, each attention of its own{}\n",
               visible_pairs(x).str(), x.documents->list.size(),
               p.order == PatternOrder::natural ? "" : fmt::format(", in {} order", name_of(p.order)));
  if (!x.mask.full()) {
    const auto from = x.mask.lo == -Mask::kFar ? "" : fmt::format("i + {} <= ", x.mask.lo);
    const auto to = x.mask.hi == Mask::kFar ? "" : fmt::format(" < i + {}", x.mask.hi);
    fmt::print("query i sees the keys {}j{}{}: kernels mask the scores of others, loops leave hidden blocks out\n",
               from, to, x.mask.prefix > 0 ? fmt::format(", and those before {}", x.mask.prefix) : "");
  }
  if (plan.options.double_buffer)
    fmt::print("second buffers for what arrives in the innermost loop take {} {} more\n",
               row.prefetch_bytes.value_or(row.prefetch).str(), bytes ? "bytes" : "words");
  text.print(0, "", "words moved", bytes ? "bytes resident" : "words resident");
  const std::vector<OutlineLine> lines = walked(plan);
  text.add(lines, 0);
  text.print(0, "sum of these lines", words_of(lines).str(), "");
  text.print(0, "formula and footprint", row.io.total().str(), row.footprint_bytes.value_or(row.footprint).str());
  text.write();
}

Json json_of(const Position& p) { return {{"first", p.first}, {"steps", p.steps}, {"regular", p.regular}}; }

Json json_of(const Operand& o) {
  const auto shape = [](Shape s) { return Json::array({s.rows, s.cols}); };
  Json j{{"array", std::string(name_of(o.array))},
         {"shape", shape(o.usual)},
         {"first_shape", shape(o.first)},
         {"last_shape", shape(o.last)},
         {"row", json_of(o.row)},
         {"col", json_of(o.col)}};
  if (!o.tile.empty()) j.update({{"tile", o.tile}, {"whole", shape(o.whole)}});
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
                {"rounds", json_of(l.rounds)},
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
      "Q[64 i : +64, :] is 64 rows from row 64 i on, all columns; q[i, :] is a row of the tile q; .. depends on the\n"
      "mask. lse, lse2, lse3 hold statistics of rows: the maximum, then lse, and sums. load and alloc make a tile\n"
      "resident, evict drops it. A block among the arguments of a kernel streams past, one word at a time. Words\n"
      "moved are those of all rounds.\n"
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
             {"lines", json_of(walked(plan))}};
      if (plan.forward) j["forward"] = json_of(walked(*plan.forward));
      print(j);
      return 0;
    }
    if (plan.forward) {
      fmt::print("first, for O and lse: ");
      print_outline(*plan.forward);
      fmt::print("\nthen: ");
    }
    print_outline(plan);
    return 0;
  });
}

}  // namespace redblue::cli
