#pragma once
#include <string_view>
#include <vector>

#include "redblue/planner/planner.hpp"

namespace redblue::test {

/// The schedules of an operation that do exact softmax attention, and that the planner ranks without a mask.
inline std::vector<std::string_view> softmax_schedules(Operation op = Operation::forward) {
  std::vector<std::string_view> names;
  for (const auto& s : plan::Registry::built_in().of(op))
    if (s->traits.only_score.value_or(Score::softmax) == Score::softmax && !s->traits.windows && !s->traits.narrow &&
        !s->traits.lists_pairs && s->traits.method == MethodKind::exact)
      names.push_back(s->name);
  return names;
}

}  // namespace redblue::test
