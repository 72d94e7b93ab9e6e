#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "redblue/pebbling/graphs/graph.hpp"
#include "redblue/pebbling/search/partition.hpp"
#include "report/json.hpp"

namespace redblue::cli {

/// A 2M-partition that was checked, with the least number of parts where that can be found.
struct PartitionReport {
  pebbling::Partition partition;
  std::vector<pebbling::PartBounds> bounds;
  std::optional<std::size_t> least_parts{};
  std::string why_not{};  ///< if least_parts is missing
};
/// Throws as check_partition() does.
PartitionReport report_of(const pebbling::Graph& g, std::size_t M, pebbling::Partition partition);
Json to_json(const PartitionReport& report, const pebbling::Graph& g, std::size_t M);
void print(const PartitionReport& report, const pebbling::Graph& g, std::size_t M);

}  // namespace redblue::cli
