#include <fmt/format.h>

#include "options/options.hpp"
#include "redblue/language/word_type.hpp"

/// What words take in fast memory, where --memory gives it in bytes.
namespace redblue::cli {

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

Residence ResidenceOptions::of(Operation op, DType dtype, DType compute, const Widths& widths) const {
  Residence fast =
      residence_of(op, dtype, accumulate ? parse_dtype("--accumulate", *accumulate) : word_of(compute), widths);
  if (pad)
    for (const auto& [name, bytes] : parse_assignments("--pad", *pad, {"rows", "after"})) {
      if (bytes > kMostPadding)
        throw InvalidProblem(fmt::format("--pad {}={}: give 1 to {} bytes", name, bytes, kMostPadding));
      (name == "rows" ? fast.row_multiple : fast.row_extra) = static_cast<std::uint32_t>(bytes);
    }
  return fast;
}

}  // namespace redblue::cli
