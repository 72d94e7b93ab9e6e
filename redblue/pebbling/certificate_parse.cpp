#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"

namespace redblue::pebbling {
namespace {

/// Cuts the text before `end`, or all of it, from the front of `rest`.
std::string_view cut_word(std::string_view& rest, char end = ' ') {
  const std::size_t at = std::min(rest.find(end), rest.size());
  const std::string_view word = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return word;
}

class CertificateReader {
 public:
  explicit CertificateReader(std::string_view text) : rest_(text) {}

  std::string_view line() {
    if (rest_.empty()) throw Error(fmt::format("the certificate ends after line {}: it was cut", number_));
    ++number_;
    if (rest_.find('\n') == std::string_view::npos) fail("the certificate ends within it: it was cut");
    return cut_word(rest_, '\n');
  }
  /// The rest of a line that begins with this word.
  std::string_view field(std::string_view key) {
    std::string_view text = line();
    if (cut_word(text) != key) fail(fmt::format("it must begin with {}", key));
    return text;
  }
  std::size_t count(std::string_view key, std::size_t most) { return number<std::size_t>(key, field(key), most); }
  template <class N>
  N number(std::string_view what, std::string_view text, N most) const {
    N value{};
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || stop != text.data() + text.size() || !(value <= most))
      fail(fmt::format("{} {} is no number that it may be", what, file::printable(text)));
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("line {}: {}", number_, what)); }
  std::size_t number_of_line() const { return number_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

void read_node(const CertificateReader& in, std::string_view line, Graph& g) {
  const std::string_view name = cut_word(line);
  const std::string_view op_name = cut_word(line);
  const auto k = in.number("constant", cut_word(line), std::numeric_limits<double>::infinity());
  const std::string_view out = cut_word(line);
  std::string_view list = cut_word(line);
  std::vector<Node> parents;
  while (!list.empty() && list != "-") parents.push_back(in.number("parent", cut_word(list, ','), kMostNodes));
  const auto op = find_op(op_name);
  if (!op) in.fail(fmt::format("there is no operation {}", file::printable(op_name)));
  if (out != "out" && out != ".") in.fail("a node says out or . before its parents");
  const std::string called(name == "-" ? "" : name);
  Node v = 0;
  if (*op == Op::input)
    v = g.add_input(called);
  else if (*op == Op::formula)
    v = g.add_formula(parents, std::string(line), called);
  else
    v = g.add(*op, parents, called, k);
  if (out == "out") g.mark_output(v);
}

Move read_move(const CertificateReader& in, std::string_view token) {
  constexpr std::string_view kLetters = "rwcsud";
  const std::size_t kind = token.empty() ? kLetters.npos : kLetters.find(token[0]);
  if (kind == kLetters.npos)
    in.fail(fmt::format("a move is r, w, c, s, u or d and a node, not '{}'", file::printable(token)));
  Move move{static_cast<Move::Kind>(kind), 0};
  token.remove_prefix(1);
  std::string_view place = cut_word(token, '@');
  if (!token.empty()) move.processor = in.number("processor", token, static_cast<std::uint16_t>(kMostProcessors));
  move.node = in.number("node", cut_word(place, '<'), kMostNodes);
  if (move.kind == Move::Kind::slide || move.kind == Move::Kind::update)
    move.parent = in.number("parent", place, kMostNodes);
  return move;
}

std::size_t read_count(const CertificateReader& in, std::string_view& line, std::string_view key) {
  std::string_view word = cut_word(line);
  if (cut_word(word, '=') != key) in.fail(fmt::format("counts miss {}", key));
  return in.number(key, word, std::numeric_limits<std::size_t>::max());
}

}  // namespace

Certificate parse_certificate(std::string_view text) {
  CertificateReader in(text);
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  if (in.line() != "redblue pebbling certificate 1")
    in.fail("a certificate begins with: redblue pebbling certificate 1");
  Certificate c;
  c.schedule = in.field("schedule");
  c.graph_text = in.field("graph");
  c.problem = in.field("problem");
  const std::string rules(in.field("rules"));
  try {
    c.rules = parse_rules(rules);
    c.M = in.count("M", kAny);
    const std::size_t nodes = in.count("nodes", kMostNodes);
    for (std::size_t v = 0; v < nodes; ++v) read_node(in, in.line(), c.graph);
  } catch (const Error& e) {
    const std::string what = e.what();
    if (what.starts_with("line ") || what.starts_with("the certificate")) throw;
    in.fail(what);
  }
  const std::size_t moves = in.count("moves", kAny);
  while (c.moves.size() < moves) {
    std::string_view line = in.line();
    do c.moves.push_back(read_move(in, cut_word(line)));
    while (!line.empty());
  }
  std::string_view counts = in.field("counts");
  c.cost.reads = read_count(in, counts, "reads");
  c.cost.writes = read_count(in, counts, "writes");
  c.cost.computed = read_count(in, counts, "computed");
  c.cost.peak = read_count(in, counts, "peak");
  const std::string_view digest = in.field("crc32");
  if (!in.at_end()) in.fail("it is the last, but another follows");
  const std::string expected = to_text(c);
  if (expected == text) return c;
  if (expected.substr(0, expected.rfind("crc32 ")) != text.substr(0, text.rfind("crc32 ")))
    throw Error("the certificate is not written as redblue writes it");
  in.fail(fmt::format("the digest is {}, that of the lines before it {}", file::printable(digest),
                      expected.substr(expected.rfind("crc32 ") + 6, 8)));
}

}  // namespace redblue::pebbling
