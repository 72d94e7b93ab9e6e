#include "redblue/pebbling/osp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::pebbling {
namespace {

struct OspVerb {
  std::string_view verb, preposition;
  Move::Kind kind;
};
constexpr std::array<OspVerb, 4> kOspVerbs = {{{"Compute", "on", Move::Kind::compute},
                                               {"Send up", "from", Move::Kind::write},
                                               {"Evict", "from", Move::Kind::remove},
                                               {"Send down", "to", Move::Kind::read}}};

/// Cuts this text from the front of a line, if it is there.
bool cut_text(std::string_view& line, std::string_view text) {
  if (!line.starts_with(text)) return false;
  line.remove_prefix(text.size());
  return true;
}
std::optional<std::size_t> cut_number(std::string_view& line) {
  std::size_t value = 0;
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(stop - line.data()));
  return value;
}

struct OspLine {
  Move::Kind kind;
  std::size_t node, processor, superstep;
};
std::optional<OspLine> osp_line_of(std::string_view line) {
  for (const OspVerb& v : kOspVerbs) {
    std::string_view rest = line;
    if (!cut_text(rest, v.verb) || !cut_text(rest, " ")) continue;
    const auto node = cut_number(rest);
    if (!node || !cut_text(rest, " ") || !cut_text(rest, v.preposition) || !cut_text(rest, " proc ")) continue;
    const auto processor = cut_number(rest);
    if (!processor || !cut_text(rest, " in superstep ")) continue;
    const auto superstep = cut_number(rest);
    if (superstep && rest.empty()) return OspLine{v.kind, *node, *processor, *superstep};
  }
  return std::nullopt;
}

}  // namespace

OspSchedule parse_osp(const Graph& g, std::string_view text) {
  std::size_t number = 0;
  const auto fail = [&](const std::string& what) { throw Error(fmt::format("line {}: {}", number, what)); };
  std::unordered_map<std::string, Node> named;
  for (Node v = 0; v < g.size(); ++v) named.emplace(g.name(v), v);
  OspSchedule schedule{.processors = 0, .moves = {}};
  std::size_t supersteps = 0, last = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (schedule.processors == 0) {
      const bool begins = cut_text(line, "%% PebblingSchedule for ");
      const auto processors = begins ? cut_number(line) : std::nullopt;
      const auto steps = processors && cut_text(line, " processors and ") ? cut_number(line) : std::nullopt;
      if (!steps || line != " supersteps.")
        fail("a schedule of OneStopParallel begins with: %% PebblingSchedule for P processors and S supersteps.");
      if (*processors < 1 || *processors > kMostProcessors)
        fail(fmt::format("there are {} processors; a game has 1 to {}", *processors, kMostProcessors));
      schedule.processors = *processors;
      supersteps = *steps;
      continue;
    }
    if (line.empty() || line.starts_with('%')) continue;
    const auto move = osp_line_of(line);
    if (!move)
      fail(
          fmt::format("a move is 'Compute N on proc P in superstep S', 'Evict N from proc ..', 'Send up N from proc "
                      "..' or 'Send down N to proc ..', not '{}'",
                      file::printable(line)));
    const auto name = named.find(fmt::format("{}", move->node));
    const std::size_t node = name != named.end() ? name->second : move->node;
    if (node >= g.size()) fail(fmt::format("there is no node {}; the graph has {} nodes", move->node, g.size()));
    if (move->processor >= schedule.processors)
      fail(fmt::format("there is no processor {} among {}", move->processor, schedule.processors));
    if (move->superstep < last || move->superstep >= supersteps)
      fail(fmt::format("superstep {} comes after superstep {} of {}", move->superstep, last, supersteps));
    last = move->superstep;
    schedule.moves.push_back({move->kind, static_cast<Node>(node), 0, static_cast<std::uint16_t>(move->processor)});
  }
  if (schedule.processors == 0) throw Error("the schedule is empty");
  return schedule;
}

std::string to_osp(const Certificate& c) {
  for (Node v = 0; v < c.graph.size(); ++v)
    if (c.graph.op(v) == Op::constant)
      throw Error(
          fmt::format("{} is a constant; OneStopParallel takes nodes without parents for inputs", label(c.graph, v)));
  // (superstep, phase, processor, number) of each move: within a superstep all compute, write, remove, and read, in
  // this order.
  using Place = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  std::vector<std::pair<Place, std::string>> lines;
  std::size_t superstep = 0, now = 0;
  std::set<std::size_t> computed;  // processors that did in this superstep
  for (const Move& m : c.moves) {
    const auto* const verb = std::ranges::find(kOspVerbs, m.kind, &OspVerb::kind);
    if (verb == kOspVerbs.end())
      throw Error(
          fmt::format("{} is made by a slide or an update; OneStopParallel knows computations that place a "
                      "pebble: play with --rules place",
                      label(c.graph, m.node)));
    auto phase = static_cast<std::size_t>(verb - kOspVerbs.begin());
    if (m.kind == Move::Kind::remove && now == 0 && computed.contains(m.processor)) phase = 0;
    if (phase < now) {
      ++superstep;
      computed.clear();
    }
    now = phase;
    if (m.kind == Move::Kind::compute) computed.insert(m.processor);
    lines.emplace_back(Place(superstep, phase, m.processor, lines.size()),
                       fmt::format("{} {} {} proc {} in superstep {}\n", verb->verb, m.node, verb->preposition,
                                   m.processor, superstep));
  }
  std::ranges::sort(lines);
  std::string text = fmt::format("%% PebblingSchedule for {} processors and {} supersteps.\n", c.rules.processors,
                                 lines.empty() ? 0 : superstep + 1);
  for (const auto& [place, line] : lines) text += line;
  return text;
}

}  // namespace redblue::pebbling
