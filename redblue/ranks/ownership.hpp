#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "redblue/problem/problem.hpp"
#include "redblue/ranks/rows.hpp"

namespace redblue::ranks {

using redblue::name_of;

/// Which rank has which rows of Q, K, V and of all that goes with them.
enum class Ownership : std::uint8_t {
  contiguous,    ///< rank r has the r-th of P equal ranges
  zig_zag,       ///< 2P equal ranges; rank r has range r and range 2P - 1 - r: under a causal mask all have equal work
  block_cyclic,  ///< blocks of `block` rows are dealt out in turn
  documents,     ///< each packed sequence lies on one rank; the longest are dealt out first, each to the least laden
};
inline constexpr std::array<std::string_view, 4> kOwnershipNames = {"contiguous", "zig-zag", "block-cyclic",
                                                                    "documents"};
constexpr const auto& names_of(Ownership /*any*/) { return kOwnershipNames; }

/// The rows of each rank.
struct Owned {
  std::vector<Rows> queries, keys;
};
/// Rows of `ranks` ranks; where there are fewer rows than ranks, some have none. `block` is for block_cyclic alone.
/// Equal ranges begin at multiples of `whole` rows.
/// Throws InvalidProblem: block_cyclic wants a block, documents want packed sequences.
Owned owned_rows(const Problem& problem, int ranks, Ownership kind, index_t block = 0, index_t whole = 1);

}  // namespace redblue::ranks
