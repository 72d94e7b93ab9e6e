#include "redblue/planner/widths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "redblue/language/error.hpp"
#include "redblue/planner/shapes.hpp"

namespace redblue {

namespace {

bool is_in(std::span<const SlowArray> arrays, SlowArray a) { return std::ranges::find(arrays, a) != arrays.end(); }

std::optional<index_t> bytes_of(const Widths& widths, std::string_view name) {
  const auto found = widths.find(std::string(name));
  if (found == widths.end()) return std::nullopt;
  if (found->second < 1 || found->second > kMostWidth)
    throw InvalidProblem(fmt::format("width of {} = {}: a word takes 1 to {} bytes", name, found->second, kMostWidth));
  return found->second;
}

}  // namespace

std::vector<std::string> width_names(Operation op, bool in_bytes) {
  std::vector<std::string> names;
  if (in_bytes) names = {"accumulators", "scores", "statistics"};
  for (const SlowArray a : plan::arrays_of(op)) names.emplace_back(name_of(a));
  return names;
}

Residence residence_of(Operation op, DType operand, DType accumulator, const Widths& widths) {
  Residence fast = plan::residence_of(op, operand, accumulator);
  const auto set = [&](SlowArray a, std::string_view name) {
    if (const auto bytes = bytes_of(widths, name)) fast.width[index_of(a)] = static_cast<std::uint8_t>(*bytes);
  };
  const auto inputs = plan::inputs_of(op);
  for (const SlowArray a : plan::arrays_of(op)) {
    const bool is_operand = a != SlowArray::O && a != SlowArray::lse && is_in(inputs, a);
    set(a, is_operand ? name_of(a) : "accumulators");
  }
  fast.alike();
  set(SlowArray::S, "scores");
  set(SlowArray::lse, "statistics");
  fast.alike();
  return fast;
}

void set_widths(plan::Options& o, const Problem& problem, DType element, DType word, const Widths& widths) {
  o.minimise_bytes = false;
  o.width.fill(0);
  const auto set = [&](Operation of) {
    const auto inputs = plan::inputs_of(of), outputs = plan::outputs_of(of);
    for (const SlowArray a : plan::arrays_of(of)) {
      if (o.width[index_of(a)] > 0) continue;
      const bool sum = of == problem.op && adds_to(problem, a);  // parts are added in the type of the arithmetic
      const bool stored = a != SlowArray::lse && !sum && (is_in(inputs, a) || is_in(outputs, a));
      const auto named = bytes_of(widths, name_of(a));
      o.minimise_bytes = o.minimise_bytes || named;
      o.width[index_of(a)] = named.value_or(static_cast<index_t>(size_of(stored ? element : word)));
    }
  };
  set(problem.op);
  if (problem.forward_first()) set(problem.forward().op);
}

}  // namespace redblue
