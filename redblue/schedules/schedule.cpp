#include "redblue/schedules/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "redblue/language/error.hpp"
#include "redblue/schedules/matrices.hpp"
#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/operands/merge.hpp"
#include "redblue/schedules/operands/projected.hpp"
#include "redblue/schedules/operands/scores.hpp"
#include "redblue/schedules/operands/second.hpp"
#include "redblue/schedules/parts/workspace.hpp"

namespace redblue::plan {

std::string sizes_text(const Tiling& tiling) {
  std::string text;
  for (const schedule::TileSize& k : tiling) text += fmt::format("{}{}={}", text.empty() ? "" : " ", k.name, k.value);
  return text;
}
std::string text_of(const Tiling& tiling) {
  const auto shapes = schedule::own_tilings(tiling).size();
  return sizes_text(tiling) +
         (shapes == 0 ? "" : fmt::format(" (others for {} shape{} of sequences)", shapes, shapes == 1 ? "" : "s"));
}

bool Schedule::has_quadratic_workspace() const { return std::ranges::any_of(workspace_arrays, is_quadratic); }

const schedule::TileSizeRange& Schedule::tile_size(std::string_view tile_size_name) const {
  const auto found = std::ranges::find(tile_sizes, tile_size_name, &schedule::TileSizeRange::name);
  if (found == tile_sizes.end()) throw InvalidProblem(fmt::format("{} has no tile size {}", name, tile_size_name));
  return *found;
}

Words Schedule::workspace_words(const Sizes& x, const Tiling& t) const {
  Words words;
  for (const Workspace& m : workspace(x, t)) words += m.words();
  return words;
}

std::optional<std::string> Schedule::obstacle(const Problem& problem, const Sizes& x) const {
  if (!traits.patterns && !traits.hides && has_pattern(x)) return "knows only masks that are intervals";
  if (!traits.masks && x.sequences != nullptr) return "knows no packed or padded sequences";
  if (!traits.masks && !x.mask.full()) return "knows no mask";
  if (x.modifiers.any() && !traits.modifiers) return "knows no bias, softcap, ALiBi, sinks or dropout";
  if (x.score != Score::softmax && !traits.any_score) return "knows no score function but softmax";
  if (traits.only_score && x.score != *traits.only_score)
    return fmt::format("is for the score function {} only", name_of(*traits.only_score));
  if (traits.method != x.method_kind()) return fmt::format("is for {}", traits.method.called);
  if (x.by_rows() && !traits.by_rows) return "knows one polynomial for all rows";
  if (!x.by_rows() && traits.by_rows) return "is for a polynomial of each row (row_polynomials)";
  if (traits.shared_source && problem.sources == Sources::distinct) return "needs A2 = A3 (sources shared or self)";
  if (x.lse_gradient && !traits.lse_gradient) return "knows no gradient of lse";
  if (x.accumulate && !traits.accumulates)
    return problem.op == Operation::backward ? "adds to no given gradients" : "does not continue a given o and lse";
  if (const auto why = unsupported(x)) return std::string(*why);
  return std::nullopt;
}

namespace {

/// f(null pointer to the operands of the operation)
template <class F>
decltype(auto) with_operands(Operation op, const F& f) {
  switch (op) {
    case Operation::forward:
      return f(static_cast<schedule::ForwardOperands*>(nullptr));
    case Operation::backward:
      return f(static_cast<schedule::BackwardOperands*>(nullptr));
    case Operation::forward_x:
      return f(static_cast<schedule::ForwardXOperands*>(nullptr));
    case Operation::gradient_x:
      return f(static_cast<schedule::GradientXOperands*>(nullptr));
    case Operation::backward_x:
      return f(static_cast<schedule::BackwardXOperands*>(nullptr));
    case Operation::backward_w:
      return f(static_cast<schedule::BackwardWOperands*>(nullptr));
    case Operation::scores:
      return f(static_cast<schedule::ScoresOperands*>(nullptr));
    case Operation::weights:
      return f(static_cast<schedule::WeightsOperands*>(nullptr));
    case Operation::merge:
      return f(static_cast<schedule::MergeOperands*>(nullptr));
    case Operation::tangent:
      return f(static_cast<schedule::TangentOperands*>(nullptr));
    case Operation::second:
      return f(static_cast<schedule::SecondOperands*>(nullptr));
  }
  throw std::logic_error("an operation without operands");
}

}  // namespace

std::span<const SlowArray> inputs_of(Operation op) { return facts_of(op).reads; }
std::span<const SlowArray> outputs_of(Operation op) { return facts_of(op).writes; }
std::vector<SlowArray> arrays_of(Operation op) {
  std::vector<SlowArray> list;
  with_operands(op, [&]<class X>(X*) {
    for (const SlowMatrix& m : X({}, 1).all()) list.push_back(m.array);
  });
  return list;
}
std::vector<SlowMatrix> matrices_of(Operation op, const Sizes& sizes) {
  return with_operands(op, [&]<class X>(X*) {
    const auto all = X(sizes, 1).all();
    return std::vector<SlowMatrix>(all.begin(), all.end());
  });
}
SlowMatrix matrix_of(Operation op, const Sizes& sizes, SlowArray array) {
  return with_operands(op, [&]<class X>(X*) { return schedule::matrix_of(X(sizes, 1), array); });
}

void Registry::add(Schedule schedule) {
  if (schedule.name.empty())
    throw InvalidProblem(fmt::format("a schedule of operation {} has no name: give it one to be called by",
                                     name_of(schedule.operation)));
  for (const std::string_view name : {schedule.name, schedule.label})
    if (!name.empty() && find(schedule.operation, name) != nullptr)
      throw InvalidProblem(fmt::format("there is a schedule '{}' of operation {} already: choose another name", name,
                                       name_of(schedule.operation)));
  auto& list = lists_[static_cast<std::size_t>(schedule.operation)];
  list.push_back(std::make_shared<const Schedule>(std::move(schedule)));
}

std::shared_ptr<const Schedule> Registry::find(Operation op, std::string_view name) const {
  for (const auto& s : of(op))
    if (s->is_called(name)) return s;
  return nullptr;
}

std::vector<std::string_view> Registry::names(Operation op) const {
  std::vector<std::string_view> list;
  for (const auto& s : of(op)) list.push_back(s->name);
  return list;
}

}  // namespace redblue::plan
