#pragma once
#include <array>
#include <vector>

#include "redblue/planner/planner.hpp"

/// What the planner of words is asked so that it answers with tiles that run fast.
namespace redblue {

/// Fast memory and multiples to plan with.
struct Candidate {
  Words M;
  schedule::Multiples multiple;

  /// These options with them.
  plan::Options of(plan::Options options) const {
    options.M = M;
    options.multiple = multiple;
    return options;
  }
};

/// What the planner may be asked so that it answers with tiles that kernels like: multiples of the register tile on one
/// side, some hundred on the other, and a part of M, 1/share, for words alone always want the longest tile. Keys and
/// values stream past each panel of a tile anew: room is left for those of one step.
std::vector<Candidate> candidates(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                                  int share);
/// The shares of M that are tried.
inline constexpr std::array<int, 3> kShares{1, 2, 4};

/// What asks for blocks of a size that the problem suggests.
std::vector<Candidate> blocks(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                              int threads);

}  // namespace redblue
