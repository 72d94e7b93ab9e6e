#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace redblue::test {

/// scripts/test.sh sets REDBLUE_FEW_CASES where the same test runs with all its cases elsewhere.
inline bool few_cases() { return std::getenv("REDBLUE_FEW_CASES") != nullptr; }

/// How many random cases to run where a full run takes `all`; with REDBLUE_FEW_CASES=10 they are a tenth.
inline int cases(int all) {
  return few_cases() ? std::max(1, all / std::max(1, std::atoi(std::getenv("REDBLUE_FEW_CASES")))) : all;
}

/// Which of a list of cases to run; few are the first, the last, and every fourth between them.
template <class T>
std::vector<T> cases(std::vector<T> all) {
  if (!few_cases()) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i % 4 == 0 || i + 1 == all.size()) some.push_back(all[i]);
  return some;
}

/// Which of a short list of cases to run; few are the first alone.
template <class T>
std::vector<T> first_of(std::vector<T> all) {
  if (few_cases() && !all.empty()) all.resize(1);
  return all;
}

/// Which cases of a list to run in a test that runs them again and again, each time on something else; few are every
/// third one, beginning with another one each time, so that all of them run where a test has enough to run them on.
template <class T>
std::vector<T> in_turn(std::vector<T> all) {
  constexpr std::size_t kTurns = 3;
  if (!few_cases() || all.empty()) return all;
  static const testing::TestInfo* test = nullptr;
  static std::size_t round = 0;
  const auto* const now = testing::UnitTest::GetInstance()->current_test_info();
  if (now != test) test = now, round = 0;  // a test runs the same cases whatever ran before
  std::vector<T> some;
  for (std::size_t i = round++ % std::min(kTurns, all.size()); i < all.size(); i += kTurns) some.push_back(all[i]);
  return some;
}

}  // namespace redblue::test
