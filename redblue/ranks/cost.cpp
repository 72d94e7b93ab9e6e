#include "redblue/ranks/cost.hpp"

namespace redblue::ranks {
namespace {

double wire_seconds(const Crossing& c, const WireWidths& widths, const Network& network) {
  const Words messages = std::max(c.received.messages, c.sent.messages);
  const Words bytes = std::max(wire_bytes(c.received, widths), wire_bytes(c.sent, widths));
  return messages.to_double() * network.latency + bytes.to_double() / network.bandwidth;
}

/// Sums over all ranks come last: from the first rank to the last, and as often again.
double seconds_of_sums(const Problem& p, const Layout& layout, const WireWidths& widths, const Network& network) {
  double seconds = 0;
  for (const Words& words : words_of_sums(p))
    seconds += 2 * (layout.ranks() - 1) * (network.latency + (words * widths.partials).to_double() / network.bandwidth);
  return seconds;
}

}  // namespace

Words wire_bytes(const Traffic& t, const WireWidths& widths) {
  return (t.inputs - t.statistics) * widths.inputs + (t.statistics + t.partials) * widths.partials;
}

Words operations_of_pair(const Problem& p) {
  return p.op == Operation::backward ? Words(2) * (Words(3) * p.d + Words(2) * p.d_v) : Words(2) * (Words(p.d) + p.d_v);
}

double seconds_of(const Problem& p, const Layout& layout, const Load& load, const WireWidths& widths,
                  const Network& network) {
  const double work =
      network.arithmetic > 0 ? (load.pairs * operations_of_pair(p)).to_double() / network.arithmetic : 0;
  const double grid = wire_seconds(load.grid, widths, network);
  const double hidden = layout.transfer == Transfer::gather ? 0 : network.overlap;
  return wire_seconds(load.heads, widths, network) + wire_seconds(load.bias, widths, network) + std::max(work, grid) +
         (1 - hidden) * std::min(work, grid) + seconds_of_sums(p, layout, widths, network);
}

Words most_words_held(const World& world) {
  Words most;
  for (int r = 0; r < world.ranks(); ++r) most = std::max(most, count(world, program_of(world, r)).held);
  return most;
}

LayoutCost cost_of(const World& world, const WireWidths& widths, const std::optional<Network>& network) {
  LayoutCost cost{};
  cost.layout = world.layout();
  Words all_pairs;
  const std::vector<Load> loads = loads_of(world);
  for (int r = 0; r < world.ranks(); ++r) {
    const Load& load = loads[static_cast<std::size_t>(r)];
    const auto [received, sent] = crossing_of(load);
    cost.words = std::max(cost.words, received.inputs + sent.partials);
    cost.all_words += received.words();
    cost.bytes = std::max({cost.bytes, wire_bytes(received, widths), wire_bytes(sent, widths)});
    cost.messages = std::max({cost.messages, received.messages, sent.messages});
    cost.pairs = std::max(cost.pairs, load.pairs);
    all_pairs += load.pairs;
    cost.home_queries = std::max(cost.home_queries, Words(world.queries_of(r).count()));
    cost.home_keys = std::max(cost.home_keys, Words(world.keys_of(r).count()));
    if (network)
      cost.seconds =
          std::max(cost.seconds.value_or(0), seconds_of(world.problem(), world.layout(), load, widths, *network));
  }
  cost.balance = all_pairs > 0 ? (cost.pairs * world.ranks()).to_double() / all_pairs.to_double() : 1;
  return cost;
}

}  // namespace redblue::ranks
