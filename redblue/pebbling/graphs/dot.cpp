#include "redblue/pebbling/graphs/dot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/graphs/loose_nodes.hpp"

namespace redblue::pebbling {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

struct DotToken {
  std::string text;
  bool is_name = false;  ///< an identifier, a number, or a quoted text
  bool is_quoted = false;
};

/// The words and marks of a text.
class DotTokens {
 public:
  explicit DotTokens(std::string_view text) : text_(text) { advance(); }

  /// The one to come; empty and no name at the end.
  const DotToken& next() const { return next_; }
  DotToken take() {
    DotToken token = next_;
    advance();
    return token;
  }
  bool take_if(std::string_view mark) {
    if (next_.is_name || next_.text != mark) return false;
    advance();
    return true;
  }
  std::string take_name(std::string_view what) {
    if (!next_.is_name) fail(fmt::format("{} is missing{}", what, before_next()));
    return take().text;
  }
  bool take_keyword(std::string_view word) {
    if (!next_.is_name || next_.is_quoted || next_.text != word) return false;
    advance();
    return true;
  }
  std::string before_next() const {
    if (next_.text.empty() && !next_.is_name) return ": the text ends";
    return fmt::format(" before {}", file::printable(next_.text));
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("line {}: {}", line_, what)); }

 private:
  static bool in_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' ||
           static_cast<unsigned char>(c) >= 0x80;
  }
  char peek(std::size_t k = 0) const { return at_ + k < text_.size() ? text_[at_ + k] : '\0'; }
  void step() {
    if (text_[at_++] == '\n') ++line_;
  }
  void pass_blanks() {
    while (at_ < text_.size()) {
      const bool line_begins = at_ == 0 || text_[at_ - 1] == '\n';
      if (std::string_view(" \t\r\n\v\f").find(peek()) != std::string_view::npos) {
        step();
      } else if ((peek() == '/' && peek(1) == '/') || (peek() == '#' && line_begins)) {
        while (at_ < text_.size() && peek() != '\n') step();
      } else if (peek() == '/' && peek(1) == '*') {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) fail("a comment has no end");
        while (at_ < end + 2) step();
      } else {
        return;
      }
    }
  }
  void advance() {
    pass_blanks();
    next_ = {};
    if (at_ == text_.size()) return;
    if (peek() == '"') return advance_quoted();
    next_.is_name = in_word(peek()) || (peek() == '-' && (in_word(peek(1))));
    if (next_.is_name) {
      do next_.text += text_[at_++];
      while (in_word(peek()));
      return;
    }
    const bool edge = peek() == '-' && (peek(1) == '>' || peek(1) == '-');
    if (!edge && std::string_view("{}[];,=").find(peek()) == std::string_view::npos)
      fail(fmt::format("{} has no meaning here", file::printable(std::string(1, peek()))));
    next_.text = text_.substr(at_, edge ? 2 : 1);
    at_ += next_.text.size();
  }
  void advance_quoted() {
    next_.is_name = next_.is_quoted = true;
    for (step(); peek() != '"'; step()) {
      if (peek() == '\\' && (peek(1) == '"' || peek(1) == '\\')) step();
      if (at_ >= text_.size()) fail("a quoted text has no end");
      next_.text += peek();
    }
    step();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  DotToken next_;
};

class DotReader {
 public:
  explicit DotReader(std::string_view text) : in_(text) {}

  std::vector<LooseNode> read() {
    in_.take_keyword("strict");
    if (!in_.take_keyword("digraph")) in_.fail(fmt::format("a digraph is expected{}", in_.before_next()));
    if (in_.next().is_name) in_.take();
    if (!in_.take_if("{")) in_.fail(fmt::format("{{ is missing{}", in_.before_next()));
    while (!in_.take_if("}")) statement();
    if (in_.next().is_name || !in_.next().text.empty()) in_.fail("the graph has ended, but the text goes on");
    for (LooseNode& node : nodes_) node.name = std::move(labels_[&node - nodes_.data()]);
    return std::move(nodes_);
  }

 private:
  using Attributes = std::map<std::string, std::string>;

  void statement() {
    if (in_.take_if(";")) return;
    if (in_.take_keyword("subgraph") || in_.take_if("{")) in_.fail("subgraphs are not read");
    for (const char* const word : {"graph", "node", "edge"})
      if (in_.take_keyword(word)) {
        attributes();
        return;
      }
    const std::string name = in_.take_name("a node");
    if (in_.take_if("=")) {
      in_.take_name("a value");
      return;
    }
    Node last = node_of(name);
    bool is_edge = false;
    while (in_.take_if("->")) {
      const Node to = node_of(in_.take_name("a node"));
      nodes_[to].parents.push_back(last);
      last = to;
      is_edge = true;
    }
    if (in_.take_if("--")) in_.fail("an edge of a digraph is ->, not --");
    const Attributes given = attributes();
    if (!is_edge) apply(last, given);
  }

  Attributes attributes() {
    Attributes all;
    while (in_.take_if("["))
      while (!in_.take_if("]")) {
        const std::string name = in_.take_name("an attribute");
        all[name] = in_.take_if("=") ? in_.take_name("a value") : "true";
        if (!in_.take_if(",")) in_.take_if(";");
      }
    return all;
  }

  void apply(Node v, const Attributes& given) {
    LooseNode& node = nodes_[v];
    for (const auto& [name, value] : given) {
      if (name == "label") labels_[v] = value;
      if (name == "formula") node.formula = value;
      if (name == "output") node.output = value == "true";
      if (name == "op") {
        const auto op = find_op(value);
        if (!op) in_.fail(fmt::format("there is no operation {}", file::printable(value)));
        node.op = *op == Op::input ? Op::unknown : *op;
      }
      if (name == "k") {
        const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), node.k);
        if (error != std::errc() || stop != value.data() + value.size())
          in_.fail(fmt::format("k = {} is no number", file::printable(value)));
      }
    }
  }

  Node node_of(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<Node>(nodes_.size()));
    if (is_new) {
      if (nodes_.size() == kMostNodes) in_.fail(fmt::format("the graph has more than {} nodes", kMostNodes));
      nodes_.emplace_back().name = name;
      labels_.push_back(name);
    }
    return found->second;
  }

  DotTokens in_;
  std::vector<LooseNode> nodes_;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, Node> numbers_;
};

}  // namespace

Graph parse_dot(std::string_view text) { return graph_of(DotReader(text).read()); }

std::string to_dot(const Graph& g) {
  std::string text = "digraph redblue {\n";
  const auto out = std::back_inserter(text);
  for (Node v = 0; v < g.size(); ++v) {
    fmt::format_to(out, "  n{} [label={} op={}", v, quoted(g.name(v)), name_of(g.op(v)));
    if (g.constant(v) != 1) fmt::format_to(out, " k=\"{}\"", g.constant(v));
    if (g.op(v) == Op::formula) fmt::format_to(out, " formula={}", quoted(g.formula(v)));
    text += g.is_output(v) ? " output=true];\n" : "];\n";
    for (const Node p : g.parents(v)) fmt::format_to(out, "  n{} -> n{};\n", p, v);
  }
  return text + "}\n";
}

}  // namespace redblue::pebbling
