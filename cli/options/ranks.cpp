#include "options/ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "redblue/language/bytes.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/planner/options.hpp"
#include "redblue/problem/called_elsewhere.hpp"

namespace redblue::cli {

namespace {

constexpr index_t kMostRanks = index_t{1} << 20;

std::vector<std::string> parts_at(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  for (const char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// A number above 0 and the unit behind it; nothing where there is none.
struct Measured {
  double value;
  std::string unit;
};
std::optional<Measured> measured(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || !std::isfinite(value)) return std::nullopt;
  return Measured{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

/// A number of seconds: "5us".
std::optional<double> seconds_from(const std::string& text) {
  const auto number = measured(text);
  if (!number) return std::nullopt;
  for (const auto& [unit, factor] : {std::pair{"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}})
    if (number->unit == unit) return number->value * factor;
  return std::nullopt;
}

ranks::Network network_from(const std::string& text) {
  const auto wrong = [&](const std::string& part) {
    throw InvalidProblem(fmt::format(
        "--network {}: '{}' is wrong: give LATENCY,BANDWIDTH or LATENCY,BANDWIDTH,OVERLAP, such as 5us,50GB/s or "
        "5us,50GB/s,0.8 (s ms us ns; bytes a second; a share from 0 to 1)",
        text, part));
  };
  const std::vector<std::string> parts = parts_at(text, ',');
  if (parts.size() != 2 && parts.size() != 3) wrong(text);
  ranks::Network n;
  const auto latency = seconds_from(parts[0]);
  if (!latency) wrong(parts[0]);
  n.latency = *latency;
  const bool per_second = parts[1].ends_with("/s");
  const auto bytes = per_second ? bytes_from(parts[1].substr(0, parts[1].size() - 2)) : std::nullopt;
  if (!bytes) wrong(parts[1]);
  n.bandwidth = bytes->to_double();
  if (parts.size() == 3) {
    const auto overlap = measured(parts[2]);
    if (!overlap || !overlap->unit.empty() || overlap->value > 1) wrong(parts[2]);
    n.overlap = overlap->value;
  }
  return n;
}

double operations_from(const std::string& text) {
  const auto number = measured(text);
  if (number && number->value > 0)
    for (const auto& [unit, factor] : {std::pair{"", 1.0}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}})
      if (number->unit == unit) return number->value * factor;
  throw InvalidProblem(
      fmt::format("--flops {}: give operations of a rank per second, such as 200T or 1.5e12 (M G T P)", text));
}

ranks::Layout layout_from(const std::string& text) {
  const std::vector<std::string> parts = parts_at(text, 'x');
  std::vector<int> numbers;
  for (const std::string& part : parts) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error == std::errc() && end == part.data() + part.size() && value >= 1) numbers.push_back(value);
  }
  if (parts.size() != 3 || numbers.size() != 3)
    throw InvalidProblem(
        fmt::format("--grid {}: give HEAD_GROUPSxROWSxCOLUMNS, three numbers from 1 on: 4x16x1", text));
  if (Words(numbers[0]) * numbers[1] * numbers[2] > kMostRanks)
    throw InvalidProblem(fmt::format("--grid {}: give {} ranks at most", text, kMostRanks));
  return {numbers[0], numbers[1], numbers[2]};
}

}  // namespace

void RanksOptions::add_to(const Command& command, For what) {
  command
      .option(
          "--ranks", number,
          what == For::plans
              ? "plan how attention is spread over this number of ranks (processes with memory of their own): words on "
                "the network, beside ring, all-gather, Ulysses and grids, with the lower bound; forward, backward"
              : "run as this number of ranks, which send each other what they need: the processes that mpirun "
                "started (in a build with MPI), else threads of this one; forward, backward")
      .type_name("P");
  command
      .option("--network", network,
              "with --ranks: latency, bandwidth of a rank, and the share of transfers that goes on while it works "
              "(default 1): 5us,50GB/s; the plan then takes the least time as modelled")
      .type_name("LIST");
  command
      .option("--flops", flops,
              "with --network: operations of a rank per second, 200T: what its work takes (default: no time)")
      .type_name("RATE");
  command
      .option("--grid", layout,
              "with --ranks: this one, HEAD_GROUPSxROWSxCOLUMNS: 64x1x1 is Ulysses, 1x64x1 a ring or all-gather")
      .type_name("GRID");
  command
      .option("--transfer", transfer,
              fmt::format("with --ranks: how blocks travel: {}", fmt::join(ranks::kTransferNames, ", ")))
      .type_name("NAME");
  command
      .option("--ownership", ownership,
              fmt::format("with --ranks: which rank has which rows: {}", fmt::join(ranks::kOwnershipNames, ", ")))
      .type_name("NAME");
  command.option("--block-rows", block, "with --ownership block-cyclic: rows of a block").type_name("ROWS");
  command
      .option(
          "--reproducible", reproducible,
          "with --ranks: the same bits for every number of ranks, layout and ownership: work in blocks of these rows "
          "(such as 1024)")
      .type_name("ROWS");
  if (what == For::plans)
    command.flag(
        "--keeps-heads", keeps_heads,
        "with --ranks: where heads change ranks, a gradient finds q, k and v where its forward pass left them");
  if (what == For::runs)
    command.flag("--overlap", overlap,
                 "with --ranks: move the messages alone first, and say how much of them went on while rank 0 worked");
}

void RanksOptions::require_none() const {
  for (const auto& [name, value] : {std::pair{"--network", network},
                                    {"--flops", flops},
                                    {"--grid", layout},
                                    {"--transfer", transfer},
                                    {"--ownership", ownership}})
    if (value) throw InvalidProblem(fmt::format("{} {} is for --ranks: give that, too", name, *value));
  for (const auto& [name, value] : {std::pair{"--block-rows", block}, {"--reproducible", reproducible}})
    if (value) throw InvalidProblem(fmt::format("{} {} is for --ranks: give that, too", name, *value));
  if (overlap) throw InvalidProblem("--overlap is for --ranks: give that, too");
  if (keeps_heads) throw InvalidProblem("--keeps-heads is for --ranks: give that, too");
}

ranks::Wanted RanksOptions::wanted(DType dtype, DType compute, std::optional<bool> by_time) const {
  if (*number < 1 || *number > kMostRanks)
    throw InvalidProblem(fmt::format("--ranks {}: give 1 to {}", *number, kMostRanks));
  ranks::Wanted w;
  w.ranks = static_cast<int>(*number);
  w.widths = {static_cast<index_t>(size_of(dtype)), static_cast<index_t>(size_of(word_of(compute)))};
  if (network) w.network = network_from(*network);
  if (flops && !network) throw InvalidProblem(fmt::format("--flops {} is for --network: give that, too", *flops));
  if (flops) w.network->arithmetic = operations_from(*flops);
  w.least_time = by_time.value_or(network.has_value());
  if (w.least_time && !network)
    throw InvalidProblem("--objective time with --ranks: give --network, such as 5us,50GB/s");
  if (layout) w.grid = layout_from(*layout);
  if (transfer) w.transfer = value_named<Unsupported, ranks::Transfer>(*transfer, "--transfer " + *transfer);
  if (ownership) w.ownership = value_named<Unsupported, ranks::Ownership>(*ownership, "--ownership " + *ownership);
  if (block && w.ownership != ranks::Ownership::block_cyclic)
    throw InvalidProblem(fmt::format("--block-rows {} is for --ownership block-cyclic: give that, too", *block));
  if (w.ownership == ranks::Ownership::block_cyclic && block.value_or(0) < 1)
    throw InvalidProblem("--ownership block-cyclic: give --block-rows, 1 or more");
  w.block = block.value_or(0);
  if (reproducible && *reproducible < 1)
    throw InvalidProblem(
        fmt::format("--reproducible {}: give the rows of a block, 1 or more, such as 256", *reproducible));
  w.reproducible = reproducible.value_or(0);
  w.keeps_heads = keeps_heads;
  return w;
}

void require_for_ranks(const ProblemOptions& o) {
  const auto refuse = [](bool given, std::string_view option) {
    if (given)
      throw InvalidProblem(
          fmt::format("{} with --ranks: a plan for ranks is about words between them, and with --M about words of fast "
                      "memory; leave {} out",
                      option, option));
  };
  refuse(o.memory.memory.has_value(), "--memory");
  refuse(o.residence.accumulate.has_value(), "--accumulate");
  refuse(o.residence.pad.has_value(), "--pad");
  refuse(!o.planner.multiple.empty(), "--multiple");
  refuse(!o.planner.width.empty(), "--width");
  refuse(o.planner.order != "auto", "--order");
  refuse(o.planner.max_workspace.has_value(), "--max-workspace");
  option::for_each(plan::plan_options(), [&](const auto& option) {
    if (!option.about.flag.empty()) refuse(o.planner.flags.given(option.name), option.about.flag);
  });
  refuse(o.objective.machine.has_value(), "--machine");
  refuse(o.threads.has_value(), "--threads");
}

}  // namespace redblue::cli
