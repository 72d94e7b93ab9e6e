#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace redblue::test {

/// 3 for a third of the random cases, 10 for a tenth: scripts/test.sh sets REDBLUE_FEW_CASES.
inline int share_of_cases() {
  const char* const share = std::getenv("REDBLUE_FEW_CASES");
  return share == nullptr ? 1 : std::max(1, std::atoi(share));
}

/// Whether they are fewer than a third: the same test then runs elsewhere with more, and what takes long is left to
/// that.
inline bool few_cases() { return share_of_cases() > 3; }

/// How many random cases to run where a full run takes `all`.
inline int cases(int all) { return std::max(1, all / share_of_cases()); }

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

/// Which cases of a list to run in a test that runs them again and again, each time on something else; a third and
/// fewer are every third one, beginning with another one each time, so that all of them run where a test has enough to
/// run them on. A twentieth and fewer are every ninth.
template <class T>
std::vector<T> in_turn(std::vector<T> all) {
  if (share_of_cases() == 1 || all.empty()) return all;
  const std::size_t turns = share_of_cases() < 20 ? 3 : 9;
  static const testing::TestInfo* test = nullptr;
  static std::size_t round = 0;
  const auto* const now = testing::UnitTest::GetInstance()->current_test_info();
  if (now != test) test = now, round = 0;  // a test runs the same cases whatever ran before
  std::vector<T> some;
  for (std::size_t i = round++ % std::min(turns, all.size()); i < all.size(); i += turns) some.push_back(all[i]);
  return some;
}

}  // namespace redblue::test
