#include "report/levels.hpp"

#include <fmt/format.h>

#include "redblue/language/bytes.hpp"

namespace redblue::cli {

namespace {

std::string time_text(const std::optional<double>& seconds) { return seconds ? fmt::format("{:.4g}", *seconds) : "-"; }

/// "i by 192, j by 64 passing": ranges of the letters of a kernel.
std::string ranges_text(const levels::Calls& c) {
  std::string text;
  for (const char letter : levels::PerLetter::letters) {
    bool used = false;
    for (std::size_t i = 0; i < c.call.axes.size; ++i) used = used || c.call.axes.of[i].has(letter);
    if (!used) continue;
    text += fmt::format("{}{} by {}{}", text.empty() ? "" : ", ", letter, c.sizes[letter],
                        letter == c.call.axes.streams ? " passing" : "");
  }
  return text.empty() ? "whole" : text;
}

/// "[64 x 32] [1 x 32]": the shapes of its arguments that have words.
std::string shapes_text(const levels::Calls& c) {
  std::string text;
  for (std::size_t i = 0; i + 1 < c.call.shapes.size(); i += 2)
    if (c.call.shapes[i] * c.call.shapes[i + 1] > 0)
      text += fmt::format(" {}x{}", c.call.shapes[i], c.call.shapes[i + 1]);
  return text;
}

}  // namespace

void print_nest(const levels::Nest& nest) {
  const plan::Plan& plan = nest.outer;
  if (plan.forward) fmt::print("first {} for O and lse; words below include it\n", text_of(plan.forward->row()));
  fmt::print("outermost plan: {}; each level below carries out its calls of kernels (redblue explain --levels)\n\n",
             text_of(plan.row()));
  fmt::print("  {:<24} {:>14} {:>14} {:>20} {:>20} {:>20} {:>8} {:>12}\n", "from -> into", "M words", "held",
             "words moved", "bytes", "bound", "ratio", "seconds");
  for (const levels::Border& b : nest.borders)
    fmt::print("  {:<24} {:>14} {:>14} {:>20} {:>20} {:>20} {:>8} {:>12}\n", b.above + " -> " + b.below, b.M.str(),
               b.held.str(), b.io.total().str(), b.bytes.str(), b.bound.words.str(),
               b.ratio ? fmt::format("{:.3f}", *b.ratio) : "-", time_text(b.seconds));
  if (nest.compute_seconds)
    fmt::print("  {:<24} {:>123}\n", "multiply-adds, at the peak", time_text(nest.compute_seconds));
  if (nest.compute_seconds && !nest.borders.front().seconds)
    fmt::print(
        "\nthe bandwidth of {} is not known, so the time is that of the other borders alone: redblue doctor --disk DIR "
        "measures a disk\n",
        nest.levels.front().name);
  if (nest.seconds)
    fmt::print("\nmodelled: {:.4g} s: multiply-adds and inner borders together, or the first border beside them\n",
               *nest.seconds);
}

void print_inner_calls(const levels::Nest& nest) {
  for (std::size_t level = 0; level < nest.inner.size(); ++level) {
    fmt::print("\n{} carries out, on tiles in {}:\n", nest.levels[level + 2].name, nest.levels[level + 1].name);
    fmt::print("  {:<22} {:>16} {:>22}  {:<40} {}\n", "kernel", "times", "words moved", "in ranges", "arguments");
    for (const levels::Calls& c : nest.calls)
      if (c.level == level)
        fmt::print("  {:<22} {:>16} {:>22}  {:<40}{}\n", c.call.kernel, c.times.str(), c.words.str(), ranges_text(c),
                   shapes_text(c));
  }
}

Json to_json(const levels::Nest& nest) {
  const auto or_null = [](const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); };
  Json borders = Json::array(), calls = Json::array();
  for (const levels::Border& b : nest.borders)
    borders.push_back({{"from", b.above},
                       {"into", b.below},
                       {"M", to_json(b.M)},
                       {"held", to_json(b.held)},
                       {"reads", to_json(b.io.total_reads())},
                       {"writes", to_json(b.io.total_writes())},
                       {"io", to_json(b.io.total())},
                       {"bytes", to_json(b.bytes)},
                       {"bound", to_json(b.bound)},
                       {"ratio", or_null(b.ratio)},
                       {"seconds", or_null(b.seconds)}});
  for (const levels::Calls& c : nest.calls) {
    Json ranges = Json::object(), shapes = Json::array();
    for (const char letter : levels::PerLetter::letters)
      if (c.sizes[letter] > 0) ranges[std::string(1, letter)] = c.sizes[letter];
    for (std::size_t i = 0; i + 1 < c.call.shapes.size(); i += 2)
      shapes.push_back({c.call.shapes[i], c.call.shapes[i + 1]});
    calls.push_back({{"level", nest.levels[c.level + 2].name},
                     {"kernel", std::string(c.call.kernel)},
                     {"shapes", shapes},
                     {"ranges", ranges},
                     {"passes", c.call.axes.streams == '.' ? Json(nullptr) : Json(std::string(1, c.call.axes.streams))},
                     {"times", to_json(c.times)},
                     {"words", to_json(c.words)}});
  }
  return {{"schema", "redblue.levels/1"},
          {"problem", to_json(nest.outer.problem)},
          {"schedule", to_json(nest.outer.row())},
          {"borders", borders},
          {"calls", calls},
          {"compute_seconds", or_null(nest.compute_seconds)},
          {"seconds", or_null(nest.seconds)}};
}

}  // namespace redblue::cli
