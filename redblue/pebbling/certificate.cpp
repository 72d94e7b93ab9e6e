#include "redblue/pebbling/certificate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <unordered_set>

#include "redblue/files/atomic_file.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/referee.hpp"

namespace redblue::pebbling {
namespace {

void require_one_line(std::string_view field, const std::string& text) {
  if (text.empty() || text.find_first_of("\n\r") != std::string::npos)
    throw Error(fmt::format("a certificate's {} is one line of text, not '{}'", field, file::printable(text)));
}

void append_node(std::string& text, const Graph& g, Node v) {
  if (std::isnan(g.constant(v))) throw Error(fmt::format("the constant of {} is not a number", label(g, v)));
  const auto parents = g.parents(v);
  fmt::format_to(std::back_inserter(text), "{} {} {} {} {}{}{}\n", g.name(v).empty() ? "-" : g.name(v),
                 name_of(g.op(v)), g.constant(v), g.is_output(v) ? "out" : ".", parents.empty() ? "-" : "",
                 fmt::join(parents, ","), g.op(v) == Op::formula ? " " + g.formula(v) : "");
}

/// As in zlib: of the polynomial 0xedb88320, its bits from low to high.
std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

std::string text_of_move(const Move& m) {
  constexpr std::string_view kLetters = "rwcsud";
  std::string text = fmt::format("{}{}", kLetters[static_cast<std::size_t>(m.kind)], m.node);
  if (m.kind == Move::Kind::slide || m.kind == Move::Kind::update) text += fmt::format("<{}", m.parent);
  if (m.processor > 0) text += fmt::format("@{}", m.processor);
  return text;
}

}  // namespace

void check_names(const Graph& g) {
  std::unordered_set<std::string_view> names;
  for (Node v = 0; v < g.size(); ++v) {
    const std::string& name = g.name(v);
    if (name.empty()) continue;
    const bool blank = std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) <= ' '; });
    if (blank || name == "-")
      throw Error(fmt::format("a certificate cannot hold the name '{}'", file::printable(name)));
    if (!names.insert(name).second) throw Error(fmt::format("two nodes are called {}", file::printable(name)));
  }
}

std::string to_text(const Certificate& c) {
  require_one_line("schedule", c.schedule);
  require_one_line("graph", c.graph_text);
  require_one_line("problem", c.problem);
  check_names(c.graph);
  std::string text = fmt::format("redblue pebbling certificate 1\nschedule {}\ngraph {}\nproblem {}\nrules {}\nM {}\n",
                                 c.schedule, c.graph_text, c.problem, to_text(c.rules), c.M);
  text += fmt::format("nodes {}\n", c.graph.size());
  for (Node v = 0; v < c.graph.size(); ++v) append_node(text, c.graph, v);
  text += fmt::format("moves {}\n", c.moves.size());
  constexpr std::size_t kMovesOfLine = 20;
  for (std::size_t k = 0; k < c.moves.size(); ++k) {
    text += text_of_move(c.moves[k]);
    text += k % kMovesOfLine == kMovesOfLine - 1 || k + 1 == c.moves.size() ? '\n' : ' ';
  }
  text += fmt::format("counts reads={} writes={} computed={} peak={}\n", c.cost.reads, c.cost.writes, c.cost.computed,
                      c.cost.peak);
  return text + fmt::format("crc32 {:08x}\n", crc32_of(text));
}

void verify(const Certificate& c) {
  Referee referee(c.graph, c.rules, c.M);
  for (const Move& move : c.moves) referee.play(move);
  referee.finish();
  const Cost& found = referee.cost();
  if (found == c.cost) return;
  throw Error(
      fmt::format("the moves count reads={} writes={} computed={} peak={}, the certificate says reads={} "
                  "writes={} computed={} peak={}",
                  found.reads, found.writes, found.computed, found.peak, c.cost.reads, c.cost.writes, c.cost.computed,
                  c.cost.peak));
}

void write_certificate(const Certificate& c, const std::string& path) {
  file::AtomicFile file(path);
  file.write(to_text(c));
  file.commit();
}

}  // namespace redblue::pebbling
