#pragma once
#include <optional>

#include "redblue/ranks/loads.hpp"

namespace redblue::ranks {

/// Links between ranks, each of which sends and receives at once.
struct Network {
  double latency = 0;     ///< seconds before a message begins to arrive
  double bandwidth = 0;   ///< bytes that a rank sends per second, and as many that it receives
  double overlap = 1;     ///< the share of exchanges and rings that goes on while a rank works, from 0 to 1
  double arithmetic = 0;  ///< operations of a rank per second; 0: its work takes no time
};

/// Bytes of a word on the wire.
struct WireWidths {
  index_t inputs = 4;
  index_t partials = 4;  ///< of partial results, lse and D
};
Words wire_bytes(const Traffic& traffic, const WireWidths& widths);

/// What a layout costs: what its busiest rank does in each respect, and all of them together.
struct LayoutCost {
  Layout layout;
  Words words;                    ///< of a rank: inputs that it receives and partials that it sends
  Words all_words;                ///< that cross the network
  Words bytes;                    ///< that a rank receives or sends, the larger
  Words messages;                 ///< that a rank receives or sends, the larger
  Words pairs;                    ///< that a rank works on
  double balance;                 ///< these over the mean; 1: all have as many
  Words home_queries, home_keys;  ///< rows of a rank
  std::optional<double> seconds;  ///< modelled, of the slowest rank
  /// Seconds of the slowest rank at its steps, in simulated time: for kMostWalked ranks at most.
  std::optional<double> simulated;
  /// Words that a rank holds beside what the caller has there: walked through, for kMostWalked ranks at most.
  std::optional<Words> held;
};
inline constexpr int kMostWalked = 64;

LayoutCost cost_of(const World& world, const WireWidths& widths, const std::optional<Network>& network);

/// The most words that a rank of a layout holds at a time, beside the tensors that the caller has there.
Words most_words_held(const World& world);

/// Operations for a pair of a query and a key: a multiplication and an addition for each word of each product.
Words operations_of_pair(const Problem& problem);

/// Modelled seconds of a rank. Heads change ranks before and after its work; what is gathered comes before it, too;
/// exchanges and rings go on meanwhile, as far as the network lets them. Sums over all ranks come last.
double seconds_of(const Problem& problem, const Layout& layout, const Load& load, const WireWidths& widths,
                  const Network& network);

}  // namespace redblue::ranks
