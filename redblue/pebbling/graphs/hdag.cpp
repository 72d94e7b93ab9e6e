#include "redblue/pebbling/graphs/hdag.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/graphs/loose_nodes.hpp"

namespace redblue::pebbling {
namespace {

/// The lines of a text that say something, without comments and blanks around.
class HdagLines {
 public:
  explicit HdagLines(std::string_view text) : rest_(text) {}

  /// The first words of the next line, which are whole numbers below the limits. Throws Error.
  std::vector<std::uint64_t> numbers(std::string_view of, std::initializer_list<std::uint64_t> limits, bool no_more) {
    std::string_view line = next(of);
    std::vector<std::uint64_t> values;
    for (const std::uint64_t limit : limits) {
      const std::string_view word = take_word(line);
      std::uint64_t value = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (word.empty() || error != std::errc() || stop != word.data() + word.size())
        fail(fmt::format("{} begins with {} whole number{}", of, limits.size(), limits.size() == 1 ? "" : "s"));
      if (value >= limit) fail(fmt::format("{} is {}; it must be below {}", of, value, limit));
      values.push_back(value);
    }
    if (no_more && !take_word(line).empty()) fail(fmt::format("{} has {} numbers, no more", of, limits.size()));
    return values;
  }
  /// Throws Error if a line is left.
  void end() {
    if (const auto line = find()) fail(fmt::format("the last pin stands before this line: {}", file::printable(*line)));
  }
  [[noreturn]] void fail(const std::string& what) const { throw Error(fmt::format("line {}: {}", number_, what)); }

 private:
  std::optional<std::string_view> find() {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      line = line.substr(0, line.find('%'));
      if (line.find_first_not_of(kBlanks) != std::string_view::npos) return line;
    }
    return std::nullopt;
  }
  std::string_view next(std::string_view of) {
    const auto line = find();
    if (!line) throw Error(fmt::format("the text ends after line {}, where {} is missing", number_, of));
    return *line;
  }
  static std::string_view take_word(std::string_view& line) {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
    line.remove_prefix(word.size());
    return word;
  }

  static constexpr std::string_view kBlanks = " \t\r\v\f";
  std::string_view rest_;
  std::size_t number_ = 0;
};

/// Reads `count` lines, each with an index of its own.
void pass_indices(HdagLines& lines, std::string_view of, std::uint64_t count) {
  std::vector<bool> seen;  // grows with the lines that there are
  for (std::uint64_t k = 0; k < count; ++k) {
    const std::uint64_t index = lines.numbers(of, {count}, false)[0];
    if (index >= seen.size()) seen.resize(index + 1);
    if (seen[index]) lines.fail(fmt::format("{} {} comes twice", of, index));
    seen[index] = true;
  }
}

}  // namespace

Graph parse_hdag(std::string_view text) {
  HdagLines lines(text);
  constexpr std::uint64_t kMostPins = std::uint64_t{1} << 28;
  const auto sizes = lines.numbers("the line of sizes", {kMostNodes + 1, kMostNodes + 1, kMostPins + 1}, true);
  pass_indices(lines, "hyperedge", sizes[0]);
  pass_indices(lines, "node", sizes[1]);
  std::vector<LooseNode> nodes(sizes[1]);
  std::vector<std::optional<Node>> sources(sizes[0]);
  for (std::uint64_t k = 0; k < sizes[2]; ++k) {
    const auto pin = lines.numbers("a pin", {sizes[0], sizes[1]}, true);
    std::optional<Node>& source = sources[pin[0]];
    const auto node = static_cast<Node>(pin[1]);
    if (!source)
      source = node;
    else if (*source == node)
      lines.fail(fmt::format("node {} is pinned to hyperedge {} twice", node, pin[0]));
    else
      nodes[node].parents.push_back(*source);
  }
  lines.end();
  const auto before = [&](const LooseNode& node) { return static_cast<Node>(&node - nodes.data()); };
  const bool in_order = std::ranges::all_of(nodes, [&](const LooseNode& node) {
    return std::ranges::all_of(node.parents, [&](Node p) { return p < before(node); });
  });
  for (std::size_t v = 0; !in_order && v < nodes.size(); ++v) nodes[v].name = fmt::format("{}", v);
  return graph_of(std::move(nodes));
}

std::string to_hdag(const Graph& g) {
  const auto children = children_of(g);
  std::size_t hyperedges = 0;
  std::size_t pins = 0;
  for (Node v = 0; v < g.size(); ++v) {
    const bool sink = children[v].empty() && !g.is_input(v);
    if (sink != g.is_output(v))
      throw Error(fmt::format("{} {}: .hdag knows as outputs the nodes without children, and no others; .dot knows all",
                              label(g, v),
                              sink ? "is no output and has no children" : "is an output and has children"));
    if (children[v].empty()) continue;
    ++hyperedges;
    pins += children[v].size() + 1;
  }
  std::string text = fmt::format("%HyperDAG, version 1: {} hyperedges, {} nodes, {} pins\n{} {} {}\n", hyperedges,
                                 g.size(), pins, hyperedges, g.size(), pins);
  const auto out = std::back_inserter(text);
  for (std::size_t k = 0; k < hyperedges; ++k) fmt::format_to(out, "{} 1\n", k);
  for (Node v = 0; v < g.size(); ++v) fmt::format_to(out, "{} 1\n", v);
  std::size_t hyperedge = 0;
  for (Node v = 0; v < g.size(); ++v) {
    if (children[v].empty()) continue;
    fmt::format_to(out, "{} {}\n", hyperedge, v);
    for (const Node c : children[v]) fmt::format_to(out, "{} {}\n", hyperedge, c);
    ++hyperedge;
  }
  return text;
}

}  // namespace redblue::pebbling
