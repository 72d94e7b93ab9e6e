#include "redblue/pebbling/search/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"
#include "redblue/pebbling/search/board.hpp"

namespace redblue::pebbling {
namespace {

constexpr std::size_t kMostInExactPartition = 24;
constexpr double kMostSteps = 1e11;  ///< of searches for dominators: a minute or less
/// Parts that the exact search may look at.
constexpr std::size_t kMostPartsTried = 500'000;

/// A network for the largest flow, augmented by one unit at a time along shortest ways.
class Network {
 public:
  explicit Network(std::size_t places) : first_(places, kEnd) {}

  void connect(std::size_t from, std::size_t to, std::size_t capacity) {
    arcs_.push_back({to, first_[from], capacity});
    first_[from] = arcs_.size() - 1;
    arcs_.push_back({from, first_[to], 0});
    first_[to] = arcs_.size() - 1;
  }
  std::size_t flow(std::size_t source, std::size_t sink) {
    std::size_t total = 0;
    while (augment(source, sink)) ++total;
    return total;
  }

 private:
  static constexpr std::size_t kEnd = ~std::size_t{0};
  struct Arc {
    std::size_t to, next, room;
  };
  bool augment(std::size_t source, std::size_t sink) {
    std::vector<std::size_t> came_by(first_.size(), kEnd);
    std::vector<std::size_t> queue{source};
    for (std::size_t at = 0; at < queue.size() && came_by[sink] == kEnd; ++at)
      for (std::size_t arc = first_[queue[at]]; arc != kEnd; arc = arcs_[arc].next) {
        const std::size_t to = arcs_[arc].to;
        if (arcs_[arc].room == 0 || to == source || came_by[to] != kEnd) continue;
        came_by[to] = arc;
        queue.push_back(to);
      }
    if (came_by[sink] == kEnd) return false;
    for (std::size_t at = sink; at != source; at = arcs_[came_by[at] ^ 1].to) {
      --arcs_[came_by[at]].room;
      ++arcs_[came_by[at] ^ 1].room;
    }
    return true;
  }

  std::vector<std::size_t> first_;
  std::vector<Arc> arcs_;  ///< each beside its reverse
};

std::vector<Node> computed_nodes(const Graph& g) {
  const std::vector<bool> needed = needed_nodes(g);
  std::vector<Node> result;
  for (Node v = 0; v < g.size(); ++v)
    if (needed[v] && !g.is_input(v)) result.push_back(v);
  return result;
}

/// The search of the least number of parts: sets of computed nodes that hold all parents of their members, by the
/// number of parts that they take.
class LeastParts {
 public:
  LeastParts(const Graph& g, std::size_t S) : graph_(g), S_(S), nodes_(computed_nodes(g)) {
    if (nodes_.size() > kMostInExactPartition)
      throw Unsupported(
          fmt::format("the least number of parts is found for graphs of at most {} computed nodes; this one "
                      "has {}",
                      kMostInExactPartition, nodes_.size()));
    parents_.resize(nodes_.size());
    for (std::size_t k = 0; k < nodes_.size(); ++k)
      for (const Node p : g.parents(nodes_[k])) {
        const auto at = std::ranges::lower_bound(nodes_, p);
        if (at != nodes_.end() && *at == p) parents_[k] |= only(static_cast<std::size_t>(at - nodes_.begin()));
      }
  }

  std::size_t found() {
    const Set all = only(nodes_.size()) - 1;
    std::set<Set> level{0};
    for (std::size_t parts = 0;; ++parts) {
      if (level.contains(all)) return parts;
      reached_.clear();
      for (const Set done : level) {
        tried_.clear();
        grow(done, 0);
      }
      if (reached_.empty()) throw Error(fmt::format("no partition has minimum dominators of at most {} nodes", S_));
      level = reached_;
    }
  }

 private:
  void grow(Set done, Set part) {
    const Set have = done | part;
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if ((have & only(k)) != 0 || (parents_[k] & ~have) != 0) continue;
      const Set next = part | only(k);
      if (!tried_.insert(next).second) continue;
      if (++count_ > kMostPartsTried)
        throw Unsupported(fmt::format("the least number of parts is not found among {} parts", kMostPartsTried));
      std::vector<Node> list;
      for_each(next, [&](std::size_t x) { list.push_back(nodes_[x]); });
      const PartBounds bounds = bounds_of(graph_, list);
      if (bounds.dominator > S_) continue;  // a larger part needs no fewer
      if (bounds.minimum <= S_) reached_.insert(done | next);
      grow(done, next);
    }
  }

  const Graph& graph_;
  std::size_t S_;
  std::vector<Node> nodes_;
  std::vector<Set> parents_;
  std::set<Set> reached_, tried_;
  std::size_t count_ = 0;
};

/// Parts that need each other, in a sentence.
[[noreturn]] void throw_cycle_of_parts(const std::vector<std::vector<std::size_t>>& needs,
                                       const std::vector<bool>& placed) {
  const auto next = [&](std::size_t part) {
    return *std::ranges::find_if(needs[part], [&](std::size_t other) { return !placed[other]; });
  };
  auto part = static_cast<std::size_t>(std::ranges::find(placed, false) - placed.begin());
  for (std::size_t k = 0; k < placed.size(); ++k) part = next(part);  // now it is on a cycle
  constexpr std::size_t kShown = 8;
  std::string text = fmt::format("part {}", part + 1);
  std::size_t length = 0;
  std::size_t at = part;
  do {
    at = next(at);
    if (++length <= kShown) text += fmt::format("{} needs part {}", length == 1 ? "" : ", which", at + 1);
  } while (at != part);
  throw Error(fmt::format("{} parts need each other: {}{}", length, text, length > kShown ? ", and so on" : ""));
}

/// Places part after part whose needs are placed.
void require_no_cycle_of_parts(const Graph& g, std::span<const Node> nodes, std::span<const std::size_t> part_of,
                               std::size_t parts) {
  std::vector<std::vector<std::size_t>> needs(parts);
  for (const Node v : nodes)
    for (const Node p : g.parents(v))
      if (!g.is_input(p) && part_of[p] != part_of[v]) needs[part_of[v]].push_back(part_of[p]);
  std::vector<std::vector<std::size_t>> needed_by(parts);
  std::vector<std::size_t> missing(parts), ready;
  for (std::size_t k = 0; k < parts; ++k) {
    std::ranges::sort(needs[k]);
    const auto repeated = std::ranges::unique(needs[k]);
    needs[k].erase(repeated.begin(), repeated.end());
    missing[k] = needs[k].size();
    for (const std::size_t other : needs[k]) needed_by[other].push_back(k);
    if (missing[k] == 0) ready.push_back(k);
  }
  std::vector<bool> placed(parts);
  for (std::size_t at = 0; at < ready.size(); ++at) {
    placed[ready[at]] = true;
    for (const std::size_t other : needed_by[ready[at]])
      if (--missing[other] == 0) ready.push_back(other);
  }
  if (ready.size() < parts) throw_cycle_of_parts(needs, placed);
}

}  // namespace

std::size_t minimum_dominator(const Graph& g, std::span<const Node> part) {
  std::vector<bool> above(g.size());
  Node last = 0;
  for (const Node v : part) {
    above[v] = true;
    last = std::max(last, v);
  }
  for (Node v = part.empty() ? 0 : last + 1; v-- > 0;)
    if (above[v])
      for (const Node p : g.parents(v)) above[p] = true;
  std::vector<std::size_t> place(g.size());
  std::size_t places = 0;
  for (Node v = 0; v < g.size(); ++v)
    if (above[v]) place[v] = places++;
  Network network(2 * places + 2);
  const std::size_t source = 2 * places, sink = source + 1, no_limit = places;
  for (Node v = 0; v < g.size(); ++v) {
    if (!above[v]) continue;
    network.connect(2 * place[v], 2 * place[v] + 1, 1);
    if (g.is_input(v)) network.connect(source, 2 * place[v], no_limit);
    for (const Node p : g.parents(v)) network.connect(2 * place[p] + 1, 2 * place[v], no_limit);
  }
  for (const Node v : part) network.connect(2 * place[v] + 1, sink, no_limit);
  return network.flow(source, sink);
}

PartBounds bounds_of(const Graph& g, std::span<const Node> part) {
  const std::set<Node> members(part.begin(), part.end());
  std::set<Node> inner;
  for (const Node v : members)
    for (const Node p : g.parents(v))
      if (members.contains(p)) inner.insert(p);
  return {members.size() - inner.size(), minimum_dominator(g, part)};
}

Partition parse_partition(const Graph& g, std::string_view text) {
  std::unordered_map<std::string_view, Node> called;
  for (Node v = 0; v < g.size(); ++v)
    if (!g.name(v).empty()) called.emplace(g.name(v), v);
  const auto node_called = [&](std::string_view word, std::size_t line) {
    if (const auto found = called.find(word); found != called.end()) return found->second;
    Node v = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), v);
    if (error != std::errc() || stop != word.data() + word.size() || v >= g.size())
      throw Error(fmt::format("line {}: the graph has no node {}", line, file::printable(word)));
    return v;
  };
  Partition result;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    constexpr std::string_view kBlanks = " \t\r";
    std::vector<Node> part;
    if (rest.starts_with('#')) continue;
    for (std::size_t at = 0; (at = rest.find_first_not_of(kBlanks)) != rest.npos;) {
      rest.remove_prefix(at);
      const std::string_view word = rest.substr(0, rest.find_first_of(kBlanks));
      part.push_back(node_called(word, line));
      rest.remove_prefix(word.size());
    }
    if (!part.empty()) result.parts.push_back(std::move(part));
  }
  return result;
}

std::vector<PartBounds> check_partition(const Graph& g, const Partition& partition, std::size_t S) {
  const std::vector<Node> nodes = computed_nodes(g);
  std::vector<std::size_t> part_of(g.size(), partition.parts.size());
  for (std::size_t k = 0; k < partition.parts.size(); ++k)
    for (const Node v : partition.parts[k]) {
      if (!std::ranges::binary_search(nodes, v))
        throw Error(fmt::format("part {} has node {}, which is an input, or no output needs it", k + 1,
                                v < g.size() ? label(g, v) : fmt::format("{}", v)));
      if (part_of[v] != partition.parts.size())
        throw Error(fmt::format("{} is in part {} and in part {}", label(g, v), part_of[v] + 1, k + 1));
      part_of[v] = k;
    }
  for (const Node v : nodes)
    if (part_of[v] == partition.parts.size()) throw Error(fmt::format("{} is in no part", label(g, v)));
  require_no_cycle_of_parts(g, nodes, part_of, partition.parts.size());
  // Each dominator may take S searches of the graph.
  const double steps = static_cast<double>(partition.parts.size()) * static_cast<double>(g.size()) *
                       static_cast<double>(std::min<std::size_t>(S, g.size()));
  if (steps > kMostSteps)
    throw Unsupported(
        fmt::format("minimum dominators of {} parts of a graph of {} nodes, of up to {} nodes each, take too long: the "
                    "product of the three numbers is at most {}",
                    partition.parts.size(), g.size(), S, kMostSteps));
  std::vector<PartBounds> result;
  for (std::size_t k = 0; k < partition.parts.size(); ++k) {
    const PartBounds bounds = bounds_of(g, partition.parts[k]);
    if (bounds.minimum > S)
      throw Error(fmt::format("the minimum set of part {} has {} nodes, more than {}", k + 1, bounds.minimum, S));
    if (bounds.dominator > S)
      throw Error(
          fmt::format("part {} has no dominator of fewer than {} nodes; {} are allowed", k + 1, bounds.dominator, S));
    result.push_back(bounds);
  }
  return result;
}

Partition partition_of(const Graph& g, const Rules& rules, std::size_t M, std::span<const Move> moves) {
  if (rules.compute == Rules::Compute::partial || rules.processors > 1)
    throw Unsupported("partitions follow from plays of whole nodes by one processor");
  // A computation is useful if its value is used by a useful one, or written for an output or a later useful read,
  // before it leaves. The moves are gone through backwards.
  std::vector<bool> wanted(g.size()), wanted_blue(g.size()), useful(moves.size());
  for (Node v = 0; v < g.size(); ++v) wanted_blue[v] = g.is_output(v);
  for (std::size_t i = moves.size(); i-- > 0;) {
    const Move& m = moves[i];
    switch (m.kind) {
      case Move::Kind::remove:
        wanted[m.node] = false;
        break;
      case Move::Kind::write:
        if (wanted_blue[m.node]) wanted[m.node] = true;
        break;
      case Move::Kind::read:
        if (wanted[m.node]) wanted_blue[m.node] = true;
        wanted[m.node] = false;
        break;
      default:
        useful[i] = wanted[m.node];
        wanted[m.node] = false;
        if (m.kind == Move::Kind::slide) wanted[m.parent] = false;
        if (useful[i])
          for (const Node p : g.parents(m.node)) wanted[p] = true;
    }
  }
  Partition result;
  std::vector<Node> part;
  std::vector<bool> placed(g.size());
  std::size_t io = 0;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Move& m = moves[i];
    if (m.kind == Move::Kind::read || m.kind == Move::Kind::write) {
      if (io == M) {
        if (!part.empty()) result.parts.push_back(std::exchange(part, {}));
        io = 0;
      }
      ++io;
    } else if (useful[i] && !placed[m.node]) {
      placed[m.node] = true;
      part.push_back(m.node);
    }
  }
  if (!part.empty()) result.parts.push_back(std::move(part));
  return result;
}

std::size_t least_parts(const Graph& g, std::size_t S) { return LeastParts(g, S).found(); }

std::size_t partition_bound(std::size_t M, std::size_t parts) { return parts == 0 ? 0 : M * (parts - 1); }

}  // namespace redblue::pebbling
