#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/rules.hpp"

namespace redblue::test {

/// The least I/O of a tiny graph, found move by move from the rules as docs/pebbling.md states them: every read, write,
/// computation, slide, update and removal of a red pebble from every state, with no thought of which of them make
/// sense. It shares nothing with the solver but the graph. None if no play ends.
inline std::optional<std::size_t> least_io(const pebbling::Graph& g, const pebbling::Rules& rules, std::size_t M) {
  using Bits = std::uint64_t;
  using State = std::tuple<Bits, Bits, Bits>;  // red of each processor, blue, computed nodes or edges
  const bool partial = rules.compute == pebbling::Rules::Compute::partial;
  const bool slide = rules.compute == pebbling::Rules::Compute::slide;
  const std::vector<bool> needed = pebbling::needed_nodes(g);
  const auto bit = [](std::size_t v) { return Bits{1} << v; };
  const auto number = [](Bits s) { return static_cast<std::size_t>(__builtin_popcountll(s)); };
  std::vector<Bits> parents(g.size());
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  Bits inputs = 0, outputs = 0;
  for (std::size_t v = 0; v < g.size(); ++v) {
    if (g.is_input(static_cast<pebbling::Node>(v))) inputs |= bit(v);
    if (g.is_output(static_cast<pebbling::Node>(v))) outputs |= bit(v);
    for (const pebbling::Node p : g.parents(static_cast<pebbling::Node>(v))) {
      if ((parents[v] & bit(p)) == 0 && needed[v]) edges.emplace_back(p, v);
      parents[v] |= bit(p);
    }
    if (parents[v] == 0 && needed[v] && (inputs & bit(v)) == 0) edges.emplace_back(v, v);  // a constant
  }
  const auto open = [&](Bits done, std::size_t v, bool from) {
    for (std::size_t e = 0; e < edges.size(); ++e)
      if ((done & bit(e)) == 0 && (from ? edges[e].first : edges[e].second) == v &&
          !(from && edges[e].first == edges[e].second))
        return true;
    return false;
  };
  std::map<State, std::size_t> best;
  std::deque<std::pair<std::size_t, State>> queue;
  const auto reach_state = [&](State s, std::size_t cost, bool free) {
    const auto [at, fresh] = best.try_emplace(s, cost);
    if (!fresh && at->second <= cost) return;
    at->second = cost;
    if (free)
      queue.emplace_front(cost, s);
    else
      queue.emplace_back(cost, s);
  };
  reach_state({0, inputs, 0}, 0, true);
  while (!queue.empty()) {
    const auto [cost, state] = queue.front();
    queue.pop_front();
    if (best[state] < cost) continue;
    const auto [all_red, blue, done] = state;
    bool whole = (outputs & ~blue) == 0;
    if (partial)
      for (std::size_t v = 0; v < g.size(); ++v)
        if ((outputs & bit(v)) != 0 && open(done, v, false)) whole = false;
    if (whole) {
      std::size_t total = cost;
      if (rules.read_unused_inputs)  // each unused input is read by itself
        for (std::size_t v = 0; v < g.size(); ++v) {
          bool used = false;
          for (std::size_t c = 0; c < g.size(); ++c) used = used || (needed[c] && (parents[c] & bit(v)) != 0);
          if ((inputs & bit(v)) != 0 && !used) ++total;
        }
      return total;
    }
    for (std::size_t processor = 0; processor < rules.processors; ++processor) {
      const std::size_t shift = processor * g.size();
      const Bits mask = (bit(g.size()) - 1) << shift, red = (all_red & mask) >> shift, others = all_red & ~mask;
      const auto reach = [&](State s, std::size_t total, bool free) {
        reach_state({others | (std::get<0>(s) << shift), std::get<1>(s), std::get<2>(s)}, total, free);
      };
      const bool room = number(red) < M;
      for (std::size_t v = 0; v < g.size(); ++v) {
        const Bits b = bit(v);
        if ((blue & b) != 0 && (red & b) == 0 && room) reach({red | b, blue, done}, cost + 1, false);
        if ((red & b) != 0 && (blue & b) == 0) reach({red, blue | b, done}, cost + 1, false);
        if ((red & b) != 0 && (!partial || (blue & b) != 0 || (!open(done, v, false) && !open(done, v, true))))
          reach({red & ~b, blue, done}, cost, true);
        if (partial || (inputs & b) != 0 || (parents[v] & ~red) != 0) continue;
        if (!rules.recompute && (done & b) != 0) continue;
        const Bits after = rules.recompute ? 0 : done | b;
        if ((red & b) == 0 && room) reach({red | b, blue, after}, cost, true);
        if (slide)
          for (std::size_t p = 0; p < v; ++p)
            if ((parents[v] & bit(p)) != 0) reach({(red & ~bit(p)) | b, blue, after}, cost, true);
      }
      if (!partial) continue;
      for (std::size_t e = 0; e < edges.size(); ++e) {
        const auto [from, to] = edges[e];
        if ((done & bit(e)) != 0) continue;
        if (from != to && (open(done, from, false) || (red & bit(from)) == 0)) continue;
        if ((red & bit(to)) == 0 && ((blue & bit(to)) != 0 || !room)) continue;
        bool started = false;
        for (std::size_t other = 0; other < edges.size(); ++other)
          started = started || (edges[other].second == to && (done & bit(other)) != 0);
        if (started && (red & bit(to)) == 0) continue;
        reach({red | bit(to), blue & ~bit(to), done | bit(e)}, cost, true);
      }
    }
  }
  return std::nullopt;
}

}  // namespace redblue::test
