#pragma once
#include <string_view>
#include <vector>

#include "redblue/plan/planner.hpp"

namespace redblue::test {

/// The schedules of an operation that do softmax attention.
inline std::vector<std::string_view> softmax_schedules(Operation op = Operation::forward) {
  auto names = plan::Registry::built_in().names(op);
  std::erase_if(names, [](std::string_view name) { return name.starts_with("linear"); });
  return names;
}

}  // namespace redblue::test
