#include "redblue/planner/widths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
    const bool is_operand = a != SlowArray::O && !is_statistic(a) && is_in(inputs, a);
    set(a, is_operand ? name_of(a) : "accumulators");
  }
  fast.alike();
  set(SlowArray::S, "scores");
  set(SlowArray::lse, "statistics");
  fast.alike();
  return fast;
}

void set_widths(plan::Options& o, const Problem& problem, DType element, DType word, const Widths& widths) {
  o.minimise_bytes = o.memory.has_value();
  o.width.fill(0);
  o.unfinished.fill(0);
  o.words_of_scales.fill(0);
  o.scales_of_head = o.keys_per_scale > 0 ? ceil_div(problem.n_k, o.keys_per_scale) : 0;
  if (o.keys_per_scale > 0 && problem.op != Operation::forward)
    throw InvalidProblem(
        fmt::format("keys_per_scale = {} is for forward: {} takes keys and values of floats; leave it out",
                    o.keys_per_scale, name_of(problem.op)));
  o.minimise_bytes = o.minimise_bytes || o.keys_per_scale > 0;
  const auto set = [&](Operation of) {
    const auto inputs = plan::inputs_of(of), outputs = plan::outputs_of(of);
    for (const SlowArray a : plan::arrays_of(of)) {
      index_t& width = o.width[index_of(a)];
      const bool statistic = is_statistic(a), output = is_in(outputs, a), stored = output || is_in(inputs, a);
      const auto arithmetic = static_cast<index_t>(size_of(word));
      // Parts are added in the type of the arithmetic.
      const bool sum = !statistic && of == problem.op && adds_to(problem, a);
      if (width == 0) {
        const auto named = bytes_of(widths, name_of(a));
        if (named && sum && *named != arithmetic)
          throw InvalidProblem(
              fmt::format("width of {} = {}: an output that is added to has that of the arithmetic, {}", name_of(a),
                          *named, arithmetic));
        const bool int8 = o.keys_per_scale > 0 && (a == SlowArray::K || a == SlowArray::V);
        if (named && int8)
          throw InvalidProblem(fmt::format("width of {} = {} and keys_per_scale = {}: give one of them", name_of(a),
                                           *named, o.keys_per_scale));
        o.minimise_bytes = o.minimise_bytes || named;
        if (int8) {
          width = 1;
          o.words_of_scales[index_of(a)] = problem.n_k * (a == SlowArray::K ? problem.d : problem.d_v);
          continue;
        }
        width = named.value_or(stored && !statistic && !sum ? static_cast<index_t>(size_of(element)) : arithmetic);
      }
      const index_t wide = o.memory ? o.memory->fast.width[index_of(a)] : arithmetic;
      if (output) o.unfinished[index_of(a)] = sum ? width : std::max(width, wide);
    }
  };
  set(problem.op);
  if (problem.forward_first()) set(problem.forward().op);
}

}  // namespace redblue

namespace redblue::plan {

namespace {
constexpr index_t kScaleBytes = 4;  // fp32
}  // namespace

bool has_widths(const Options& o) {
  return std::ranges::any_of(o.width, [](index_t w) { return w > 0; });
}
bool minimises_bytes(const Options& o) { return has_widths(o) && o.minimise_bytes; }

index_t unfinished_width(const Options& o, Operation op, SlowArray a) {
  const index_t width = o.width[index_of(a)];
  // lse may be read when it is finished, and has one width.
  const bool may_be_unfinished = !is_statistic(a) && is_in(outputs_of(op), a);
  return may_be_unfinished ? std::max(width, o.unfinished[index_of(a)]) : width;
}

schedule::Prices prices_of(const Options& o, Operation op) {
  schedule::Prices price;
  const auto write = static_cast<index_t>(std::llround(o.write_cost * kCostUnit));
  if (!minimises_bytes(o)) {
    price.read.fill(kCostUnit);
    price.write.fill(write);
    return price;
  }
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    const Words width = o.width[a], unfinished = unfinished_width(o, op, static_cast<SlowArray>(a));
    price.read[a] = unfinished * kCostUnit + (unfinished - width) * write;
    if (o.words_of_scales[a] > 0) price.read[a] += kScaleBytes * kCostUnit * o.scales_of_head / o.words_of_scales[a];
    price.write[a] = width * write;
  }
  return price;
}

Words scale_bytes(const Options& o, SlowArray a, Words words_read) {
  const Words each = o.words_of_scales[index_of(a)];
  return each == 0 ? Words(0) : (words_read * o.scales_of_head + each - 1) / each * kScaleBytes;
}

Io bytes_of(const Io& words, const Options& o, Operation op) {
  Io bytes;
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    if (words.reads[a] == 0 && words.writes[a] == 0) continue;  // few arrays are one schedule's
    const Words width = o.width[a], unfinished = unfinished_width(o, op, static_cast<SlowArray>(a));
    bytes.reads[a] = unfinished * words.reads[a] + scale_bytes(o, static_cast<SlowArray>(a), words.reads[a]);
    bytes.writes[a] = width * words.writes[a] + (unfinished - width) * words.reads[a];
  }
  return bytes;
}
Io bytes_of(const Plan& plan) {
  const Io own = bytes_of(plan.row().io, plan.options, plan.problem.op);
  return plan.forward ? bytes_of(*plan.forward) + own : own;
}

Words unfinished_words(const Row& row, const Options& o, const Sizes& x) {
  Words words;
  if (!minimises_bytes(o)) return words;
  const Operation op = row.algorithm->operation;
  for (const SlowArray a : outputs_of(op))
    if (row.io.reads[index_of(a)] > 0 && unfinished_width(o, op, a) > o.width[index_of(a)])
      words += matrix_of(op, x, a).shape.words();
  return words;
}

Words least_bytes(Words words, const Options& o, const Problem& problem) {
  index_t least = 0;
  const auto take = [&](Operation op) {
    for (const SlowArray a : arrays_of(op))
      if (const index_t width = o.width[index_of(a)]; least == 0 || width < least) least = width;
  };
  take(problem.op);
  if (problem.forward_first()) take(problem.forward().op);
  return least * words;
}
Words least_bytes(const Plan& plan) { return least_bytes(plan.bound.words, plan.options, plan.problem); }

}  // namespace redblue::plan
