#pragma once
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "redblue/masks/patterns.hpp"

/// Patterns as n_q x n_k entries, one by one.
namespace redblue::test {

using Entries = std::vector<std::vector<bool>>;

inline Entries entries_of(const RunLists& lists, index_t n_k) {
  Entries e(static_cast<std::size_t>(lists.size()), std::vector<bool>(static_cast<std::size_t>(n_k)));
  for (index_t i = 0; i < lists.size(); ++i)
    for (const Range& run : lists.of(i))
      for (index_t j = run.begin; j < run.end; ++j) e[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = true;
  return e;
}
template <class Sees>
Entries entries_where(const patterns::Between& x, const Sees& sees) {
  Entries e(static_cast<std::size_t>(x.n_q), std::vector<bool>(static_cast<std::size_t>(x.n_k)));
  for (index_t i = 0; i < x.n_q; ++i)
    for (index_t j = 0; j < x.n_k; ++j)
      e[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = sees(x.position(i), j);
  return e;
}

inline RunLists random_lists(index_t n_q, index_t n_k, std::mt19937& random) {
  const auto share = random() % 10;
  const auto block = static_cast<index_t>(1 + random() % 4);
  std::vector<std::uint8_t> seen;
  for (index_t k = 0; k < ceil_div(n_q, block) * ceil_div(n_k, block); ++k) seen.push_back(random() % 10 < share);
  return patterns::of_blocks({n_q, n_k}, block, block, seen);
}

/// What 500 random patterns have in common: check(lists, n_k, its entries).
template <class Check>
void for_random_lists(const Check& check) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    std::mt19937 random(seed);
    const auto n_q = static_cast<index_t>(1 + random() % 20), n_k = static_cast<index_t>(1 + random() % 20);
    const RunLists lists = random_lists(n_q, n_k, random);
    SCOPED_TRACE(seed);
    check(lists, n_k, entries_of(lists, n_k));
    if (testing::Test::HasFailure()) return;
  }
}

inline bool at(const Entries& e, index_t i, index_t j) {
  return e[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
}

}  // namespace redblue::test
