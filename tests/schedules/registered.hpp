#pragma once
#include <algorithm>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "redblue/schedules/schedule.hpp"

namespace redblue::plan {

/// For test names and messages.
inline void PrintTo(const std::shared_ptr<const Schedule>& s, std::ostream* out) {
  *out << name_of(s->operation) << ' ' << s->name;
}

}  // namespace redblue::plan

namespace redblue::test {

using Registered = std::shared_ptr<const plan::Schedule>;

/// Every schedule of every operation.
inline std::vector<Registered> all_schedules() {
  std::vector<Registered> list;
  for (std::size_t op = 0; op < kOperationNames.size(); ++op)
    for (const Registered& s : plan::Registry::built_in().of(static_cast<redblue::Operation>(op))) list.push_back(s);
  return list;
}

/// As a part of a test's name: letters, digits and underscores.
inline std::string test_name_of(const Registered& s) {
  std::string name = std::string(name_of(s->operation)) + '_' + std::string(s->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace redblue::test
