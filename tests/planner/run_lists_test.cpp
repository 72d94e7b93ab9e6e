#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "redblue/masks/pattern.hpp"
#include "support/entries.hpp"

/// Lists of runs, and the blocks that patterns are cut into, against n_q x n_k entries.
namespace redblue::test {

TEST(RunLists, KeysThatAllRowsTreatAlikeAreTurnedTogether) {
  constexpr index_t kRows = 4096, kKeys = index_t{1} << 22;  // one by one their lists would take 128 GiB
  RunLists lists;
  for (index_t i = 0; i < kRows; ++i) lists.append(1, {Range{0, i % 2 == 0 ? kKeys : 0}});
  const RunLists turned = transposed(lists, kKeys);
  EXPECT_EQ(turned.size(), kKeys);
  EXPECT_EQ(turned.runs_held(), kRows / 2);
  EXPECT_EQ(turned.of(kKeys - 1).front(), (Range{0, 1}));
}

TEST(RunLists, TransposedHoldTheSamePairs) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    const RunLists turned = transposed(lists, n_k);
    const Entries e = entries_of(turned, lists.size());
    for (index_t i = 0; i < lists.size(); ++i)
      for (index_t j = 0; j < n_k; ++j) ASSERT_EQ(at(e, j, i), at(entries, i, j)) << i << " " << j;
    EXPECT_EQ(transposed(turned, lists.size()), lists);
  });
}

TEST(RunLists, BlocksEnvelopesAndUnionsAreThoseOfTheEntries) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    const index_t n_q = lists.size();
    const RunLists turned = transposed(lists, n_k);
    for (index_t size = 1; size <= n_q; ++size)
      for (const bool ragged_first : {false, true}) {
        const Blocks blocks{n_q, size, ragged_first};
        index_t met = 0;
        for (index_t b = 0; b < blocks.count(); ++b) {
          std::set<index_t> keys;
          const Range I = blocks(b);
          for (index_t i = I.begin; i < I.end; ++i)
            for (index_t j = 0; j < n_k; ++j)
              if (at(entries, i, j)) keys.insert(j);
          met += std::ssize(keys);
          std::set<index_t> in_union;
          for (const Range& run : union_of(lists, I))
            for (index_t j = run.begin; j < run.end; ++j) in_union.insert(j);
          ASSERT_EQ(in_union, keys);
          const Range window{n_k / 3, n_k}, envelope = envelope_of(lists, I, window);
          const auto first = keys.lower_bound(window.begin);
          ASSERT_EQ(envelope.size() > 0, first != keys.end());
          if (envelope.size() > 0) {
            ASSERT_EQ(envelope, (Range{*first, *keys.rbegin() + 1}));
          }
        }
        ASSERT_EQ(blocks_met(turned, blocks), met) << size;
      }
  });
}

/// Lists that hold bits answer as those that hold runs alone, across the words of 64 bits, too.
TEST(RunLists, BitsAreThoseOfTheEntries) {
  int held = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const auto n_q = static_cast<index_t>(1 + random() % 20), n_k = static_cast<index_t>(1 + random() % 200);
    const RunLists runs = random_lists(n_q, n_k, random);
    const Entries entries = entries_of(runs, n_k);
    RunLists bits = runs;
    bits.hold_bits(n_k);
    held += bits.holds_bits() ? 1 : 0;
    EXPECT_EQ(bits, runs);
    const auto part_of = [&random](index_t n) {
      const auto begin = static_cast<index_t>(random() % static_cast<unsigned>(n));
      return Range{begin, begin + 1 + static_cast<index_t>(random() % static_cast<unsigned>(n - begin))};
    };
    for (int k = 0; k < 20; ++k) {
      const Range rows = part_of(n_q), keys = part_of(n_k);
      EXPECT_EQ(union_of(bits, rows), union_of(runs, rows)) << seed;
      EXPECT_EQ(envelope_of(bits, rows, keys), envelope_of(runs, rows, keys)) << seed;
      index_t pairs = 0;
      for (index_t j = keys.begin; j < keys.end; ++j) pairs += at(entries, rows.begin, j) ? 1 : 0;
      for (const RunLists& lists : {runs, bits}) EXPECT_EQ(lists.count(rows.begin, keys), pairs) << seed;
      for (const bool ragged_first : {false, true}) {
        const Blocks blocks{n_k, keys.size(), ragged_first};
        EXPECT_EQ(most_in_block(bits, blocks), most_in_block(runs, blocks)) << seed;
      }
      for (const RunLists& lists : {runs, bits})
        for (index_t j = 0; j < 64; ++j) {
          const bool there = keys.begin + j < n_k && at(entries, rows.begin, keys.begin + j);
          ASSERT_EQ(lists.seen(rows.begin, keys.begin) >> j & 1, there ? 1U : 0U)
              << seed << ' ' << keys.begin << ' ' << j;
        }
    }
    EXPECT_EQ(bits.seen(n_q, 0), 0U);
  }
  EXPECT_GT(held, 50);
  RunLists few;
  few.append(1, {{0, 1}, {4000, 4001}});
  few.hold_bits(5000);  // 79 words for two runs
  EXPECT_FALSE(few.holds_bits());
}

TEST(RunLists, PairsAreNumberedRowByRow) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    const Pattern pattern(lists, n_k);
    index_t pairs = 0;
    for (index_t i = 0; i < lists.size(); ++i)
      for (index_t j = 0; j < n_k; ++j) {
        ASSERT_EQ(pattern.pair_at(i, j), pairs);
        pairs += at(entries, i, j) ? 1 : 0;
      }
    EXPECT_EQ(pattern.pairs(), pairs);
    EXPECT_EQ(count_of(lists), pairs);
  });
}

TEST(RunLists, MostInABlockIsThatOfTheEntries) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    for (index_t size = 1; size <= n_k + 2; ++size)
      for (const bool ragged_first : {false, true}) {
        const Blocks blocks{n_k, size, ragged_first};
        std::map<index_t, index_t> most;
        for (index_t b = 0; b < blocks.count(); ++b)
          for (index_t i = 0; i < lists.size(); ++i) {
            index_t here = 0;
            for (index_t j = blocks(b).begin; j < blocks(b).end; ++j) here += at(entries, i, j) ? 1 : 0;
            index_t& so_far = most[blocks(b).size()];
            so_far = std::max(so_far, here);
          }
        std::map<index_t, index_t> found;
        for (const auto& [of_size, number] : most_in_block(lists, blocks)) found[of_size] = number;
        ASSERT_EQ(found, most) << size << ragged_first;
      }
  });
}

/// The fewest of three ways, of which each has blocks as large as they may be: from either end, and whole groups of
/// neighbours that see the same but for two keys, as many as there is room for; one of the largest sees a key.
TEST(Pattern, BlocksAreCutSoThatTheyMeetTheFewest) {
  int at_ends = 0, first = 0, last = 0;
  for_random_lists([&](const RunLists& lists, index_t n_k, const Entries& entries) {
    const auto pattern = std::make_shared<const Pattern>(lists, n_k);
    const index_t n = lists.size();
    const auto visits = [&](const std::vector<index_t>& begins) {
      index_t sum = 0;
      for (std::size_t b = 0; b + 1 < begins.size(); ++b)
        for (index_t j = 0; j < n_k; ++j) {
          bool seen = false;
          for (index_t i = begins[b]; i < begins[b + 1]; ++i) seen = seen || at(entries, i, j);
          sum += seen ? 1 : 0;
        }
      return sum;
    };
    for (index_t size = 1; size <= n; ++size) {
      std::vector<index_t> from_first, from_last{n}, ends{0};
      for (index_t i = 0; i < n; i += size) from_first.push_back(i);
      from_first.push_back(n);
      for (index_t i = n - size; i > 0; i -= size) from_last.insert(from_last.begin(), i);
      from_last.insert(from_last.begin(), 0);
      index_t group = 0;  // where it begins
      bool whole = false;
      for (index_t i = 1; i <= n; ++i) {
        index_t different = 0;
        for (index_t j = 0; i < n && j < n_k; ++j) different += at(entries, i, j) != at(entries, i - 1, j) ? 1 : 0;
        if (i < n && different <= 2) continue;
        if (i - ends.back() > size && group > ends.back()) ends.push_back(group);
        for (; i - ends.back() > size; ends.push_back(ends.back() + size)) {
        }
        group = i;
      }
      ends.push_back(n);
      for (std::size_t b = 0; b + 1 < ends.size(); ++b)
        whole = whole || (ends[b + 1] - ends[b] == size && !union_of(lists, {ends[b], ends[b + 1]}).empty());
      index_t least = std::min(visits(from_first), visits(from_last));
      if (whole && visits(ends) < least) ++at_ends, least = visits(ends);
      ++(visits(from_first) < visits(from_last) ? first : last);
      const Blocks blocks = pattern->row_blocks(size);
      std::vector<index_t> begins;
      index_t largest = 0;
      for (index_t b = 0; b < blocks.count(); ++b) {
        begins.push_back(blocks(b).begin);
        largest = std::max(largest, blocks(b).size());
        for (index_t i = blocks(b).begin; i < blocks(b).end; ++i) ASSERT_EQ(blocks.of(i), b);
      }
      begins.push_back(n);
      ASSERT_EQ(blocks(blocks.count() - 1).end, n);
      ASSERT_EQ(largest, size);
      ASSERT_EQ(visits(begins), least);
      ASSERT_EQ(pattern->visited_keys(size), least);
    }
  });
  EXPECT_GT(std::min({at_ends, first, last}), 10);
}

}  // namespace redblue::test
