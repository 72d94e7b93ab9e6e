#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/moves.hpp"
#include "redblue/pebbling/rules.hpp"

/// Lower bounds by partitions of the nodes (Hong & Kung 1981): a play of Q reads and writes with M red pebbles gives an
/// S-partition with S = 2M of at most Q/M + 1 parts, so Q >= M (P(2M) - 1), where P(S) is the least number of parts.
/// docs/proofs/pebbling.md has the proof for the rules of this room.
namespace redblue::pebbling {

/// Parts of the nodes that outputs need and that are no inputs.
struct Partition {
  std::vector<std::vector<Node>> parts;
};

/// How a part is bound to the rest.
struct PartBounds {
  std::size_t minimum = 0;    ///< nodes of the part that no other node of the part needs
  std::size_t dominator = 0;  ///< the fewest nodes that all ways from inputs to the part pass
};

/// The fewest nodes, of the part or above it, that every way from an input to a node of the part passes: a minimum
/// vertex cut. (A constant has no way from an input, and costs nothing.)
std::size_t minimum_dominator(const Graph& g, std::span<const Node> part);
PartBounds bounds_of(const Graph& g, std::span<const Node> part);

/// The partition that a text states: a line of nodes for each part, by name or, if none is called so, by number; lines
/// without a node and lines that begin with # say nothing. Throws Error, with the line, for a node that there is not.
Partition parse_partition(const Graph& g, std::string_view text);

/// Throws Error, in a sentence that says what is wrong, unless the parts are disjoint, cover the nodes that outputs
/// need (inputs aside), may be computed one after another in some order, and have minimum sets and minimum dominators
/// of at most S nodes. Returns the bounds of each part. Throws Unsupported where that would take hours.
std::vector<PartBounds> check_partition(const Graph& g, const Partition& partition, std::size_t S);

/// The 2M-partition of a legal play, in an order that computes it: cut after every M reads and writes, a node belongs
/// to the part in which it was first computed. For rules without partial computations and with one processor; throws
/// Unsupported for others.
Partition partition_of(const Graph& g, const Rules& rules, std::size_t M, std::span<const Move> moves);

/// P(S): the least number of parts of an S-partition, for graphs of at most 24 nodes that are no inputs. Throws
/// Unsupported for larger ones.
std::size_t least_parts(const Graph& g, std::size_t S);

/// M (P(2M) - 1), a lower bound on the I/O of any play, where P(2M) = `parts`. It is 0 if there is nothing to compute.
std::size_t partition_bound(std::size_t M, std::size_t parts);

}  // namespace redblue::pebbling
