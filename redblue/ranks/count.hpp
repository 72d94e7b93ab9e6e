#pragma once
#include "redblue/ranks/steps.hpp"

/// Words on the network and in the memory of ranks, without a communicator.
namespace redblue::ranks {

/// What crosses the network in one direction, for one rank.
struct Traffic {
  Words inputs, partials;  ///< words, by Cargo
  Words messages;
  Words statistics{};  ///< of the inputs: lse and D, which have the type of the arithmetic
  Words words() const { return inputs + partials; }
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct RankCount {
  Traffic received, sent;
  Words pairs;  ///< pairs of a query and a key that it works on, of all heads and batches
  Words
      held;  ///< most words that it holds at a time beside the caller's tensors; staging of messages is not among them
  friend bool operator==(const RankCount&, const RankCount&) = default;
};

/// Adds a send or a receive.
void note(Traffic& traffic, const World& world, const Program& program, const Step& step);

/// By walking through the steps of a rank.
RankCount count(const World& world, const Program& program);

/// Words and messages of a rank by formula: in closed form where every query sees every key, else with a sum over the
/// ranks of its row and column of what the mask needs.
struct Crossing {
  Traffic received, sent;
  friend bool operator==(const Crossing&, const Crossing&) = default;
};
Crossing crossing_of(const World& world, int rank);

/// Words of each sum over the rows of all ranks, which every rank gets: of gradients of sinks, and of a bias of which
/// one row serves all queries.
std::vector<Words> words_of_sums(const Problem& problem);
/// What a rank moves of such sums: they go from the first rank to the last, and round to the others.
Crossing sums_of(const World& world, int rank);

/// What a rank moves of a bias before the work begins, and of its gradient.
Crossing bias_of(const World& world, int rank);

/// The pairs that a rank works on, by formula.
Words pairs_of(const World& world, int rank);

}  // namespace redblue::ranks
