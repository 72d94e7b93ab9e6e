#pragma once
#include <algorithm>
#include <cstdlib>
#include <vector>

namespace redblue::test {

/// scripts/test.sh sets REDBLUE_FEW_CASES where the same test runs with all its cases elsewhere.
inline bool few_cases() { return std::getenv("REDBLUE_FEW_CASES") != nullptr; }

/// How many random cases to run where a full run takes `all`; few are a tenth.
inline int cases(int all) { return few_cases() ? std::max(1, all / 10) : all; }

/// Which of a list of cases to run; few are the first, the last, and every fourth between them.
template <class T>
std::vector<T> cases(std::vector<T> all) {
  if (!few_cases()) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 4 == 0 || i + 1 == all.size()) some.push_back(all[i]);
  return some;
}

/// The same of a short list; few are the first alone.
template <class T>
std::vector<T> first_of(std::vector<T> all) {
  if (few_cases() && !all.empty()) all.resize(1);
  return all;
}

}  // namespace redblue::test
