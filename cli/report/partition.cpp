#include "report/partition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "redblue/language/error.hpp"

namespace redblue::cli {
namespace {

std::vector<std::string> labels_of(const pebbling::Graph& g, const std::vector<pebbling::Node>& part) {
  std::vector<std::string> labels;
  labels.reserve(part.size());
  for (const pebbling::Node v : part) labels.push_back(label(g, v));
  return labels;
}

}  // namespace

PartitionReport report_of(const pebbling::Graph& g, std::size_t M, pebbling::Partition partition) {
  PartitionReport report{std::move(partition), {}};
  report.bounds = check_partition(g, report.partition, 2 * M);
  try {
    report.least_parts = pebbling::least_parts(g, 2 * M);
  } catch (const Unsupported& e) {
    report.why_not = e.what();
  }
  return report;
}

Json to_json(const PartitionReport& report, const pebbling::Graph& g, std::size_t M) {
  Json parts = Json::array();
  for (std::size_t k = 0; k < report.bounds.size(); ++k)
    parts.push_back({{"nodes", labels_of(g, report.partition.parts[k])},
                     {"minimum", Int128(report.bounds[k].minimum)},
                     {"dominator", Int128(report.bounds[k].dominator)}});
  Json j{{"S", Int128(2 * M)}, {"parts", parts}};
  j["least_parts"] = report.least_parts ? Json(Int128(*report.least_parts)) : Json();
  if (!report.why_not.empty()) j["why_not"] = report.why_not;
  if (report.least_parts) j["bound"] = Int128(pebbling::partition_bound(M, *report.least_parts));
  return j;
}

void print(const PartitionReport& report, const pebbling::Graph& g, std::size_t M) {
  for (std::size_t k = 0; k < report.bounds.size(); ++k)
    fmt::print("  part {}: minimum set {}, dominator {} (2M = {}): {}\n", k + 1, report.bounds[k].minimum,
               report.bounds[k].dominator, 2 * M, fmt::join(labels_of(g, report.partition.parts[k]), " "));
  if (report.least_parts)
    fmt::print("  P(2M) = {}, so every play moves at least M (P(2M) - 1) = {} words\n", *report.least_parts,
               pebbling::partition_bound(M, *report.least_parts));
  else
    fmt::print("  P(2M) is not known: {}\n", report.why_not);
}

}  // namespace redblue::cli
