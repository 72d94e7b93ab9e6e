#include <fmt/format.h>

#include <algorithm>

#include "options.hpp"
#include "redblue/core/word_type.hpp"

/// What words take in fast memory, where --memory gives it in bytes.
namespace redblue::cli {

namespace {

bool is_operand(SlowArray a, Operation op) {
  const auto inputs = plan::inputs_of(op);
  return a != SlowArray::O && a != SlowArray::lse && std::find(inputs.begin(), inputs.end(), a) != inputs.end();
}

}  // namespace

void ResidenceOptions::add_to(const Command& command) {
  command
      .option(
          "--accumulate", accumulate,
          "with --memory: type of outputs, scores and statistics in fast memory (default: that of arithmetic); inputs "
          "have --dtype there")
      .type_name("TYPE");
  command
      .option("--pad", pad,
              "with --memory: rows of tiles take a multiple of `rows` bytes, with `after` bytes free behind each: "
              "rows=64,after=4")
      .type_name("LIST");
}

void ResidenceOptions::require_none() const {
  if (accumulate) throw InvalidProblem(fmt::format("--accumulate {} is for --memory BYTES", *accumulate));
  if (pad) throw InvalidProblem(fmt::format("--pad {} is for --memory BYTES", *pad));
}

const std::vector<std::string>& ResidenceOptions::kinds() {
  static const std::vector<std::string> names{"accumulators", "scores", "statistics"};
  return names;
}

Residence ResidenceOptions::of(Operation op, DType dtype, DType compute,
                               const std::map<std::string, index_t>& widths) const {
  Residence fast =
      plan::residence_of(op, dtype, accumulate ? parse_dtype("--accumulate", *accumulate) : word_of(compute));
  const auto set = [&](SlowArray a, const std::string& name) {
    const auto found = widths.find(name);
    if (found == widths.end()) return;
    if (found->second > kMostWidth)
      throw InvalidProblem(fmt::format("--width {}={}: give 1 to {} bytes", name, found->second, kMostWidth));
    fast.width[index_of(a)] = static_cast<std::uint8_t>(found->second);
  };
  for (const SlowArray a : plan::arrays_of(op)) set(a, is_operand(a, op) ? std::string(name_of(a)) : "accumulators");
  fast.alike();
  set(SlowArray::S, "scores");
  set(SlowArray::lse, "statistics");
  fast.alike();
  if (pad)
    for (const auto& [name, bytes] : parse_assignments("--pad", *pad, {"rows", "after"})) {
      if (bytes > kMostPadding)
        throw InvalidProblem(fmt::format("--pad {}={}: give 1 to {} bytes", name, bytes, kMostPadding));
      (name == "rows" ? fast.row_multiple : fast.row_extra) = static_cast<std::uint32_t>(bytes);
    }
  return fast;
}

}  // namespace redblue::cli
