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

/// Lists of cases that run again and again, each time on something else. Few are every third of a list, beginning with
/// another one each time: so all have their turn.
class Turns {
 public:
  template <class T>
  std::vector<T> operator()(std::vector<T> all) {
    if (!few_cases()) return all;
    std::vector<T> some;
    for (std::size_t i = round_++ % kTurns; i < all.size(); i += kTurns) some.push_back(all[i]);
    return some;
  }

 private:
  static constexpr std::size_t kTurns = 3;
  std::size_t round_ = 0;
};

}  // namespace redblue::test
