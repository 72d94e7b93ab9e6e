#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "redblue/planner/widths.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/problem/text.hpp"
#include "redblue/runtime/outline.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

namespace {

using machine::LineKind;
using machine::Operand;
using machine::OutlineLine;
using machine::Position;

constexpr std::string_view kLoopNames = "ijlmrbe";  // no tile has such a name

/// The counter of the loop at this depth.
std::string loop_counter(std::size_t depth) {
  return depth < kLoopNames.size() ? std::string(1, kLoopNames[depth]) : fmt::format("i{}", depth);
}

/// What is nearest to 0 of all that differs from `step` by a multiple of `modulus`.
index_t nearest(index_t step, index_t modulus) {
  step %= modulus;
  return 2 * std::abs(step) <= modulus ? step : step - (step < 0 ? -modulus : modulus);
}

/// "64 i + 16 j" for a block inside `depth` loops; "(8 + j) mod 32" in a ring.
std::string position_of(const Position& p, std::size_t depth) {
  std::string text = p.first == 0 ? "" : fmt::format("{}", p.first);
  int terms = p.first == 0 ? 0 : 1;
  for (std::size_t level = depth; level-- > 0;) {
    const std::size_t from_inside = depth - 1 - level;
    index_t step = from_inside < p.steps.size() ? p.steps[from_inside] : 0;
    if (p.wraps) step = nearest(step, p.rows);
    if (step == 0) continue;
    ++terms;
    text += fmt::format("{}{}{}", text.empty() ? (step < 0 ? "-" : "") : (step < 0 ? " - " : " + "),
                        std::abs(step) == 1 ? "" : fmt::format("{} ", std::abs(step)), loop_counter(level));
  }
  if (text.empty()) return "0";
  if (!p.wraps) return text;
  return fmt::format("{} mod {}", terms > 1 ? fmt::format("({})", text) : text, p.rows);
}

/// An outline in columns.
class OutlineText {
 public:
  explicit OutlineText(const plan::Plan& plan) : plan_(plan) {}

  void add(const std::vector<OutlineLine>& lines, std::size_t depth) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].kind == LineKind::evict) {  // those that leave together share a line
        std::vector<std::string> names;
        std::size_t last = i;
        for (; last < lines.size() && lines[last].kind == LineKind::evict; ++last)
          names.push_back(lines[last].operands[0].tile);
        i = last - 1;
        print(depth, fmt::format("evict {}", fmt::join(names, ", ")), "", "", lines[i].resident.str());
      } else if (lines[i].kind == LineKind::loop) {
        print(depth, loop(lines[i], depth), "", "", "");
        add(lines[i].body, depth + 1);
      } else {
        const Words words = lines[i].reads + lines[i].writes;
        print(depth, operation(lines[i], depth), words == 0 ? "" : words.str(), words == 0 ? "" : lines[i].bytes.str(),
              lines[i].resident.str());
      }
    }
  }

  /// `bytes` is shown where the plan minimises bytes.
  void print(std::size_t depth, const std::string& what, const std::string& words, const std::string& bytes,
             const std::string& resident) {
    rows_.push_back({std::string(2 * depth, ' ') + what, words, bytes, resident});
  }

  std::string written() const {
    std::string result;
    std::array<std::size_t, 4> width{};
    const bool bytes = plan::minimises_bytes(plan_.options);
    for (const auto& row : rows_)
      for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    for (const auto& row : rows_) {
      const std::string in_bytes = bytes ? fmt::format("  {:>{}}", row[2], width[2]) : "";
      const std::string text =
          fmt::format("{:<{}}  {:>{}}{}  {:>{}}", row[0], width[0], row[1], width[1], in_bytes, row[3], width[3]);
      result += text.substr(0, text.find_last_not_of(' ') + 1) + '\n';
    }
    return result;
  }

 private:
  static std::string loop(const OutlineLine& l, std::size_t depth) {
    const std::string name = loop_counter(depth);
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
        return fmt::format("alloc {} ({}{})", operands[0], sides(l.operands[0]), l.below ? ", in the level below" : "");
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
  std::vector<std::array<std::string, 4>> rows_;
};

struct Moved {
  Words words, bytes;
};
Moved moved_in(const std::vector<OutlineLine>& lines) {
  Moved all;
  for (const OutlineLine& l : lines) {
    const Moved inside = moved_in(l.body);
    all.words += l.reads + l.writes + inside.words;
    all.bytes += l.bytes + inside.bytes;
  }
  return all;
}

/// What words of outputs that are written unfinished take beyond a last one: as many are written so as are read.
Words bytes_of_unfinished_writes(const plan::Plan& plan) {
  const Operation op = plan.problem.op;
  Words bytes;
  for (const SlowArray a : plan::outputs_of(op))
    bytes += plan.row().io.reads[index_of(a)] *
             (plan::unfinished_width(plan.options, op, a) - plan.options.width[index_of(a)]);
  return bytes;
}

/// What scales of int8 keys and values take beside their words.
Words bytes_of_scales(const plan::Plan& plan) {
  Words bytes;
  for (const SlowArray a : {SlowArray::K, SlowArray::V})
    bytes += plan::scale_bytes(plan.options, a, plan.row().io.reads[index_of(a)]);
  return bytes;
}

}  // namespace

std::string outline_text(const plan::Plan& plan) { return outline_text(plan, machine::Scratch::resident); }

std::string outline_text(const plan::Plan& plan, machine::Scratch scratch) {
  const plan::Row& row = plan.row();
  const bool bytes = plan.options.memory.has_value();
  std::string result = fmt::format("{}: {}\n", plan::text_of(row), row.algorithm->idea);
  OutlineText text(plan);
  const Problem& p = plan.problem;
  const Sizes x = p.sizes();
  result += fmt::format(
      "each of {} instances ({} batches x {} key-value heads): {} rows of queries, {} keys, d {}, d_v {}{}\n",
      p.instances(), p.batch, p.kv_heads.value_or(p.heads), x.n_q, x.n_k, x.d, x.d_v, mask_text(p));
  if (p.group() > 1)
    result += fmt::format("row r of Q and its like: query r/{0} of head r mod {0} of the group\n", p.group());
  if (p.several())
    result += fmt::format(
        "{}: each is attention of its own, below one after another; the mask is that of each\n",
        p.cu_seqlens_q.empty() ? "padded batches" : fmt::format("{} packed sequences", p.cu_seqlens_q.size() - 1));
  if (p.dilation > 1)
    result +=
        fmt::format("queries and keys of each residue modulo {} are taken together, and numbered so: {} sequences\n",
                    p.dilation, x.sequences->list.size());
  else if (p.patterns.empty() && x.sequences != nullptr && x.sequences->reordered())
    result += "queries and keys that no pair has are taken last, and numbered so\n";
  if (!p.patterns.empty() && x.sequences != nullptr)
    result += fmt::format("a pattern says who sees whom: {} pairs in {} parts, each attention of its own{}\n",
                          visible_pairs(x).str(), x.sequences->list.size(),
                          p.order == PatternOrder::natural ? "" : ", " + phrase(p.order));
  if (!x.mask.full()) {
    const auto beside = [](index_t n) {
      return n == 0 ? std::string("i") : fmt::format("i {} {}", n < 0 ? '-' : '+', std::abs(n));
    };
    const auto from = x.mask.lo == -Mask::kFar ? "" : fmt::format("{} <= ", beside(x.mask.lo));
    const auto to = x.mask.hi == Mask::kFar ? "" : fmt::format(" < {}", beside(x.mask.hi));
    result +=
        fmt::format("query i sees the keys {}j{}{}: kernels mask the scores of others, loops leave hidden blocks out\n",
                    from, to, x.mask.prefix > 0 ? fmt::format(", and those before {}", x.mask.prefix) : "");
  }
  if (plan.options.double_buffer)
    result += fmt::format("second buffers for what arrives in the innermost loop take {} {} more\n",
                          row.prefetch_bytes.value_or(row.prefetch).str(), bytes ? "bytes" : "words");
  text.print(0, "", "words moved", "bytes moved", bytes ? "bytes resident" : "words resident");
  const std::vector<OutlineLine> lines = outline(plan, scratch);
  text.add(lines, 0);
  const Moved moved = moved_in(lines);
  const Words wider = plan::minimises_bytes(plan.options) ? bytes_of_unfinished_writes(plan) : 0;
  if (wider > 0) text.print(0, "outputs stored to be read again are wider than above", "", wider.str(), "");
  const Words scales = plan::minimises_bytes(plan.options) ? bytes_of_scales(plan) : 0;
  if (scales > 0) text.print(0, "scales of keys and values are read with them", "", scales.str(), "");
  text.print(0, "sum of these lines", moved.words.str(), (moved.bytes + wider + scales).str(), "");
  text.print(0, "formula and footprint", row.io.total().str(), row.bytes.value_or(0).str(),
             row.footprint_bytes.value_or(row.footprint).str());
  return result + text.written();
}

}  // namespace redblue
