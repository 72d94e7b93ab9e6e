#include "redblue/plan/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "redblue/core/error.hpp"
#include "redblue/schedule/backward/operands.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/gradient/operands.hpp"
#include "redblue/schedule/projected/backward.hpp"
#include "redblue/schedule/projected/forward.hpp"

namespace redblue::plan {

bool Schedule::has_quadratic_workspace() const {
  using enum SlowArray;
  return std::ranges::find_first_of(workspace_arrays, std::array{S, P, A, f, q, p}) != workspace_arrays.end();
}

const schedule::KnobRange& Schedule::knob(std::string_view knob_name) const {
  const auto found = std::ranges::find(knobs, knob_name, &schedule::KnobRange::name);
  if (found == knobs.end()) throw InvalidProblem(fmt::format("{} has no tile size {}", name, knob_name));
  return *found;
}

Words Schedule::workspace_words(const Sizes& x, const Tiling& t) const {
  Words words;
  for (const SlowMatrix& m : workspace(x, t)) words += Words(m.shape.rows) * m.shape.cols;
  return words;
}

std::optional<std::string> Schedule::obstacle(const Problem& problem, const Sizes& x) const {
  if (x.mask.causal && !traits.masks) return "knows no causal mask";
  if (x.score != Score::softmax && !traits.any_score) return "knows no score function but softmax";
  if (traits.only_score && x.score != *traits.only_score)
    return fmt::format("is for the score function {} only", name_of(*traits.only_score));
  if (traits.shared_source && problem.sources == Sources::distinct) return "needs A2 = A3 (sources shared or self)";
  if (const auto why = unsupported(x)) return std::string(*why);
  return std::nullopt;
}

SlowMatrix Operands::matrix(SlowArray array) const {
  const auto found = std::ranges::find(all, array, &SlowMatrix::array);
  return found == all.end() ? SlowMatrix{array, {0, 0}} : *found;
}

namespace {

template <class X>
Operands as_lists(const Sizes& sizes) {
  const auto all = X(sizes, 1).all();
  return {{X::inputs.begin(), X::inputs.end()}, {X::outputs.begin(), X::outputs.end()}, {all.begin(), all.end()}};
}

}  // namespace

Operands operands_of(Operation op, const Sizes& sizes) {
  switch (op) {
    case Operation::forward:
      return as_lists<schedule::ForwardOperands>(sizes);
    case Operation::backward:
      return as_lists<schedule::BackwardOperands>(sizes);
    case Operation::forward_x:
      return as_lists<schedule::ForwardXOperands>(sizes);
    case Operation::gradient_x:
      return as_lists<schedule::GradientXOperands>(sizes);
    case Operation::backward_x:
      return as_lists<schedule::BackwardXOperands>(sizes);
    case Operation::backward_w:
      return as_lists<schedule::BackwardWOperands>(sizes);
  }
  return {};
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
