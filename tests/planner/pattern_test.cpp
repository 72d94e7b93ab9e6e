#include <gmock/gmock.h>

#include <map>
#include <random>
#include <set>

#include "redblue/language/error.hpp"
#include "redblue/masks/order.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "support/entries.hpp"
#include "support/refusal.hpp"

/// Patterns against n_q x n_k entries, one by one.
namespace redblue::test {

TEST(Patterns, NeededRowsKeysAndPairsAreThoseOfTheEntries) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    const Needed need = needed_of(Pattern(lists, n_k));
    index_t rows = 0, scored_rows = 0, pairs = 0;
    std::set<index_t> keys, scored_keys;
    for (index_t i = 0; i < lists.size(); ++i) {
      std::set<index_t> seen;
      for (index_t j = 0; j < n_k; ++j)
        if (at(entries, i, j)) seen.insert(j);
      rows += seen.empty() ? 0 : 1;
      keys.insert(seen.begin(), seen.end());
      if (seen.size() < 2) continue;
      ++scored_rows;
      pairs += std::ssize(seen);
      scored_keys.insert(seen.begin(), seen.end());
    }
    EXPECT_EQ(need.rows.size(), rows);
    EXPECT_EQ(need.scored_rows.size(), scored_rows);
    EXPECT_EQ(need.keys.size(), std::ssize(keys));
    EXPECT_EQ(need.scored_keys.size(), std::ssize(scored_keys));
    EXPECT_EQ(need.scored_pairs, pairs);
  });
}

TEST(Patterns, SequencesHoldExactlyThePairs) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    Sequence like;
    like.mask.group = 1;
    index_t row = 0, key = 0;
    Entries found(entries.size(), std::vector<bool>(static_cast<std::size_t>(n_k)));
    for (const Sequence& one : sequences_of(lists, n_k, like)) {
      ASSERT_GE(one.rows.begin, row);
      ASSERT_GE(one.keys.begin, key);
      row = one.rows.end;
      key = one.keys.end;
      for (index_t i = 0; i < one.rows.size(); ++i) {
        const auto mark = [&](Range run) {
          for (index_t j = run.begin; j < run.end; ++j)
            found[static_cast<std::size_t>(one.rows.begin + i)][static_cast<std::size_t>(one.keys.begin + j)] = true;
        };
        if (one.pattern == nullptr)
          mark(one.mask.keys(i, one.keys.size()));
        else
          for (const Range& run : one.pattern->rows().of(i)) mark(run);
      }
    }
    EXPECT_EQ(found, entries);
  });
}

TEST(Patterns, KindsAreTheirDefinitions) {
  for (const auto& [n_q, n_k, offset] : {std::array<index_t, 3>{13, 13, 0}, {7, 19, 12}, {19, 7, -12}, {16, 16, 3}}) {
    const patterns::Between x{n_q, n_k, offset};
    for (const index_t step : {1, 2, 3, 5})
      for (const index_t left : {-1, 0, 2})
        for (const index_t right : {-1, 0, 3}) {
          const auto in_window = [&](index_t p, index_t j) {
            const index_t distance = j - p;
            return distance % step == 0 && (left < 0 || -distance <= left * step) &&
                   (right < 0 || distance <= right * step);
          };
          EXPECT_EQ(entries_of(patterns::window(x, left, right, step), n_k), entries_where(x, in_window));
          for (const index_t globals : {0, 2, 30})
            EXPECT_EQ(entries_of(patterns::longformer(x, left, right, globals, step), n_k),
                      entries_where(x, [&](index_t p, index_t j) {
                        return in_window(p, j) || j < globals || (0 <= p && p < globals);
                      }));
        }
    for (const index_t stride : {1, 3, 4}) {
      EXPECT_EQ(entries_of(patterns::strided(x, stride), n_k), entries_where(x, [&](index_t p, index_t j) {
                  return j <= p && (p - j < stride || (p - j) % stride == 0);
                }));
      EXPECT_EQ(entries_of(patterns::fixed(x, stride, 1), n_k), entries_where(x, [&](index_t p, index_t j) {
                  return j <= p && (j / stride == p / stride || j % stride == stride - 1);
                }));
    }
  }
}

TEST(Patterns, BigBirdHasItsBlocks) {
  const patterns::Between x{40, 40};
  const patterns::BigBird b{.block = 4, .window = 1, .globals = 1, .randoms = 2, .seed = 5};
  const RunLists lists = patterns::big_bird(x, b);
  const Entries e = entries_of(lists, x.n_k);
  for (index_t i = 0; i < x.n_q; ++i) {
    const index_t I = i / b.block;
    index_t others = 0;
    for (index_t J = 0; J < 10; ++J) {
      for (index_t j = 4 * J; j < 4 * J + 4; ++j) ASSERT_EQ(at(e, i, j), at(e, i, 4 * J));  // whole blocks
      const bool own = I == 0 || J == 0 || std::abs(I - J) <= 1;
      EXPECT_TRUE(!own || at(e, i, 4 * J));
      others += !own && at(e, i, 4 * J) ? 1 : 0;
    }
    EXPECT_EQ(others, I > 0 ? b.randoms : 0);
  }
  EXPECT_EQ(patterns::big_bird(x, b), lists);
  patterns::BigBird other = b;
  other.seed = 6;
  EXPECT_FALSE(patterns::big_bird(x, other) == lists);
}

TEST(Patterns, UnionAndIntersectionAreThoseOfTheEntries) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto n_q = static_cast<index_t>(1 + random() % 12), n_k = static_cast<index_t>(1 + random() % 12);
    const RunLists a = random_lists(n_q, n_k, random), b = random_lists(n_q, n_k, random);
    const Entries of_a = entries_of(a, n_k), of_b = entries_of(b, n_k);
    const Entries both = entries_of(patterns::intersected(a, b), n_k), one = entries_of(patterns::united(a, b), n_k);
    for (index_t i = 0; i < n_q; ++i)
      for (index_t j = 0; j < n_k; ++j) {
        ASSERT_EQ(at(both, i, j), at(of_a, i, j) && at(of_b, i, j));
        ASSERT_EQ(at(one, i, j), at(of_a, i, j) || at(of_b, i, j));
      }
  }
}

/// Rules have no index; united or intersected, patterns have that of the more explicit one.
TEST(Patterns, KnowTheirIndex) {
  using enum PatternIndex::Kind;
  const patterns::Between x{8, 12};
  const auto blocks_of = [&](index_t rows, index_t cols) {
    return patterns::of_blocks(
        x, rows, cols, std::vector<std::uint8_t>(static_cast<std::size_t>(ceil_div(8, rows) * ceil_div(12, cols)), 1));
  };
  const RunLists rule = patterns::strided(x, 3), of_blocks = blocks_of(4, 6),
                 of_mask = patterns::of_mask(x, std::vector<std::uint8_t>(96, 1)),
                 of_csr = patterns::of_csr(x, std::vector<index_t>(9, 0), {});
  const auto is = [](const RunLists& lists, PatternIndex::Kind kind, index_t rows, index_t cols) {
    const PatternIndex& index = lists.index();
    return index.kind == kind && (kind != blocks || (index.rows == rows && index.cols == cols));
  };
  for (const RunLists& lists : {rule, patterns::window(x, 2, 1, 2), patterns::longformer(x, 1, 1, 2),
                                patterns::fixed(x, 3, 1), patterns::big_bird(x, {.block = 2}), RunLists()})
    EXPECT_TRUE(is(lists, none, 1, 1));
  EXPECT_TRUE(is(of_blocks, blocks, 4, 6));
  EXPECT_TRUE(is(of_mask, pairs, 1, 1));
  EXPECT_TRUE(is(of_csr, pairs, 1, 1));
  EXPECT_TRUE(is(blocks_of(1, 2), blocks, 1, 2));
  for (const auto& joined : {patterns::united, patterns::intersected}) {
    EXPECT_TRUE(is(joined(rule, rule), none, 1, 1));
    EXPECT_TRUE(is(joined(rule, of_blocks), blocks, 4, 6));
    EXPECT_TRUE(is(joined(of_blocks, blocks_of(2, 4)), blocks, 2, 2));
    EXPECT_TRUE(is(joined(blocks_of(2, 3), blocks_of(1, 2)), pairs, 1, 1));
    EXPECT_TRUE(is(joined(of_csr, of_blocks), pairs, 1, 1));
    EXPECT_TRUE(is(joined(rule, of_mask), pairs, 1, 1));
  }
}

/// Blocks of 2 x 3 with the last ones ragged: 3 rows of blocks, and one more, and one word for each block.
TEST(Patterns, BlocksHaveAnIndexOfBlocks) {
  const std::vector<std::uint8_t> seen{1, 0, 1, 1, 1, 0, 0, 0, 1};
  const RunLists lists = patterns::of_blocks({5, 7}, 2, 3, seen);
  EXPECT_EQ(block_index_words(lists), 3 + 1 + 5);
  Problem p{.batch = 2, .heads = 4, .kv_heads = 2, .n_q = 5, .n_k = 7, .d = 3, .d_v = 3};
  const auto one = std::make_shared<const RunLists>(lists),
             rule = std::make_shared<const RunLists>(patterns::strided({5, 7}, 3));
  p.patterns = {one};
  EXPECT_EQ(p.sizes().sequences->block_index, std::vector<Words>{9});
  // One for each head, of which two share keys and values; the second head has a rule.
  p.patterns = {one, rule, one, one};
  EXPECT_EQ(p.sizes().sequences->block_index, (std::vector<Words>{9, 9, 9, 9}));
}

/// A pattern that a mask could say is that mask: the same plans, the same words.
TEST(Patterns, ThatAreMasksBecomeMasks) {
  for (const bool causal : {false, true})
    for (const std::optional<index_t> left : {std::optional<index_t>(), std::optional<index_t>(3)})
      for (const index_t prefix : {0, 4}) {
        if ((prefix > 0 && !causal) || (!causal && !left)) continue;
        for (const index_t heads : {1, 3}) {
          Problem masked{.heads = heads, .kv_heads = 1, .n_q = 9, .n_k = 12, .d = 4, .d_v = 4};
          masked.causal = causal;
          masked.window_left = left;
          masked.prefix = prefix;
          RunLists rows;
          const Sizes x = masked.sizes();
          for (index_t i = 0; i < masked.n_q; ++i) rows.append(1, {x.mask.keys(i * heads, masked.n_k)});
          Problem given{.heads = heads, .kv_heads = 1, .n_q = 9, .n_k = 12, .d = 4, .d_v = 4};
          given.patterns = {std::make_shared<const RunLists>(rows)};
          EXPECT_EQ(given.sizes().mask, x.mask) << causal << left.has_value() << prefix << heads;
          EXPECT_EQ(given.sizes().sequences, nullptr);
        }
      }
}

TEST(Patterns, OfPackedSequencesBecomeSequences) {
  Problem packed{.n_q = 12, .n_k = 12, .d = 4, .d_v = 4};
  packed.causal = true;
  packed.cu_seqlens_q = {0, 5, 9, 12};
  RunLists rows;
  for (index_t i = 0; i < 12; ++i) rows.append(1, {Range{i < 5 ? 0 : i < 9 ? 5 : 9, i + 1}});
  Problem given{.n_q = 12, .n_k = 12, .d = 4, .d_v = 4};
  given.patterns = {std::make_shared<const RunLists>(rows)};
  const Sizes of_given = given.sizes(), of_packed = packed.sizes();
  ASSERT_NE(of_given.sequences, nullptr);
  const auto &a = of_given.sequences->list, &b = of_packed.sequences->list;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t k = 0; k < a.size(); ++k) {
    EXPECT_EQ(a[k].rows, b[k].rows);
    EXPECT_EQ(a[k].keys, b[k].keys);
    EXPECT_EQ(a[k].pattern, nullptr);
  }
}

TEST(Patterns, CausalWindowAndSequencesHideKeysOfAPattern) {
  Problem p{.n_q = 10, .n_k = 10, .d = 4, .d_v = 4};
  p.patterns = {std::make_shared<const RunLists>(patterns::longformer({10, 10}, 1, 1, 2))};
  const Entries all = entries_of(p.patterns[0], 10);
  p.causal = true;
  p.cu_seqlens_q = {0, 6, 10};
  Words pairs = 0;
  for (index_t i = 0; i < 10; ++i)
    for (index_t j = 0; j <= i; ++j) pairs += at(all, i, j) && (i < 6) == (j < 6) ? 1 : 0;
  EXPECT_EQ(visible_pairs(p.sizes()), pairs);
}

TEST(Patterns, DifferByHeadAndBatch) {
  Problem p{.batch = 2, .heads = 4, .kv_heads = 2, .n_q = 6, .n_k = 6, .d = 4, .d_v = 4};
  Words pairs = 0;
  std::mt19937 random(3);
  std::vector<std::shared_ptr<const RunLists>> lists;
  for (index_t h = 0; h < 8; ++h) {
    lists.push_back(std::make_shared<const RunLists>(random_lists(6, 6, random)));
    pairs += count_of(*lists.back());
  }
  p.patterns = lists;
  EXPECT_EQ(visible_pairs(p.sizes()), pairs);
  EXPECT_EQ(batches_of(p.sizes()), p.instances());
  lists.resize(4);
  p.patterns = lists;
  pairs = 0;
  for (const auto& one : lists) pairs += 2 * count_of(*one);
  EXPECT_EQ(visible_pairs(p.sizes()), pairs);
}

/// Heads with one pattern in each batch have the sequences of one head: a plan does not grow with their number. So have
/// heads with one pattern in all batches, of which each has its own length.
TEST(Patterns, OfHeadsThatAreAlikeInEachBatchAreThoseOfBatches) {
  Problem p{.batch = 2, .heads = 4, .kv_heads = 2, .n_q = 6, .n_k = 6, .d = 4, .d_v = 4};
  std::mt19937 random(3);
  const auto lists = [&] { return std::make_shared<const RunLists>(random_lists(6, 6, random)); };
  const auto one = lists(), other = lists(), same = std::make_shared<const RunLists>(*other);
  p.patterns = {one, one, one, one, other, same, other, other};
  EXPECT_EQ(batches_of(p.sizes()), 2);
  EXPECT_FALSE(p.sizes().sequences->by_head);
  EXPECT_EQ(visible_pairs(p.sizes()), p.group() * (count_of(*one) + count_of(*other)));
  p.patterns = {one, one, one, one, other, other, one, other};
  EXPECT_EQ(batches_of(p.sizes()), p.instances());
  EXPECT_EQ(visible_pairs(p.sizes()), 5 * count_of(*one) + 3 * count_of(*other));
  p.patterns = {one};
  p.seqused_k = {6, 3};
  EXPECT_EQ(batches_of(p.sizes()), 2);
}

TEST(Patterns, InAnyOrderHoldTheSamePairs) {
  for_random_lists([](const RunLists& lists, index_t n_k, const Entries& entries) {
    for (const index_t group : {1, 2}) {
      if (lists.size() % group != 0) continue;
      for (const PatternOrder kind : {PatternOrder::natural, PatternOrder::rcm, PatternOrder::jaccard}) {
        const Order order = order_of(kind, lists, n_k, group).value();
        const Entries moved = entries_of(in_order(lists, order, group), n_k);
        for (index_t i = 0; i < lists.size(); ++i)
          for (index_t j = 0; j < n_k; ++j)
            ASSERT_EQ(at(moved, i, j),
                      at(entries, order.queries[static_cast<std::size_t>(i / group)] * group + i % group,
                         order.keys[static_cast<std::size_t>(j)]))
                << name_of(kind) << " " << i << " " << j;
      }
    }
  });
}

/// Of positions with many keys, whose order is found by bits.
TEST(Patterns, JaccardOrderTakesThePositionMostAlike) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    constexpr index_t kQueries = 60, kKeys = 150;
    std::mt19937 random(seed);
    std::vector<std::uint8_t> seen(kQueries * kKeys);
    for (std::uint8_t& one : seen) one = random() % 10 < 3;
    const RunLists lists = patterns::of_mask({kQueries, kKeys}, seen);
    const Entries entries = entries_of(lists, kKeys);
    const auto alike = [&](index_t a, index_t b) {
      index_t both = 0, any = 0;
      for (index_t j = 0; j < kKeys; ++j) {
        both += at(entries, a, j) && at(entries, b, j) ? 1 : 0;
        any += at(entries, a, j) || at(entries, b, j) ? 1 : 0;
      }
      return static_cast<double>(both) / static_cast<double>(any);
    };
    const std::vector<index_t> order = order_of(PatternOrder::jaccard, lists, kKeys, 1).value().queries;
    for (std::size_t k = 0; k + 1 < order.size(); ++k)
      for (std::size_t later = k + 2; later < order.size(); ++later)
        ASSERT_GE(alike(order[k], order[k + 1]), alike(order[k], order[later])) << seed;
  }
}

/// Each residue of a dilated window is a window of its own, and an order that brings it together finds that out.
TEST(Patterns, DilatedWindowsBecomeWindowsInOrder) {
  Problem p{.n_q = 60, .n_k = 60, .d = 4, .d_v = 4};
  p.patterns = {std::make_shared<const RunLists>(patterns::window({60, 60}, 4, 0, 3))};
  EXPECT_NE(p.sizes().sequences->list.front().pattern, nullptr);
  for (const PatternOrder order : {PatternOrder::rcm, PatternOrder::jaccard}) {
    p.order = order;
    const Sizes x = p.sizes();
    ASSERT_EQ(x.sequences->list.size(), 3U);
    for (const Sequence& one : x.sequences->list) {
      EXPECT_EQ(one.rows.size(), 20);
      EXPECT_EQ(one.pattern, nullptr);
    }
  }
}

TEST(Patterns, OfTooManyRunsHaveNoOrderButTheirOwn) {
  constexpr index_t n = 4160;
  const RunLists lists = patterns::window({n, n}, -1, 0, 2);
  ASSERT_TRUE(too_large_to_search(lists));
  EXPECT_FALSE(order_of(PatternOrder::rcm, lists, n, 1));
  EXPECT_FALSE(order_of(PatternOrder::jaccard, lists, n, 1));
  EXPECT_TRUE(order_of(PatternOrder::rcm, lists, n, 2)) << "heads of other residues: few runs together";
}

/// A mask of keys beside a causal mask: many runs in each row, of which all have the same gaps.
TEST(Patterns, KeysThatNobodySeesAreLeftOutFirst) {
  constexpr index_t n = 2100;
  std::mt19937 random(1);
  std::vector<std::vector<std::uint8_t>> seen(2, std::vector<std::uint8_t>(n));
  for (auto& keys : seen)
    for (auto& key : keys) key = random() % 2;
  for (const auto& [heads, order] :
       {std::pair(1, PatternOrder::natural), std::pair(1, PatternOrder::rcm), std::pair(2, PatternOrder::natural)}) {
    SCOPED_TRACE(heads);
    Problem p{.heads = heads, .kv_heads = 1, .n_q = n, .n_k = n, .d = 4, .d_v = 4, .causal = true, .order = order};
    p.cu_seqlens_q = p.cu_seqlens_k = {0, 1500, n};
    std::vector<std::shared_ptr<const RunLists>> lists;
    for (index_t h = 0; h < heads; ++h) {
      RunLists rows;
      rows.append(n, patterns::of_mask({1, n}, seen[static_cast<std::size_t>(h)]).of(0));
      lists.push_back(std::make_shared<const RunLists>(std::move(rows)));
    }
    p.patterns = Patterns(lists);
    const Sizes x = p.sizes();
    const Order& moved = *x.sequences->order_of(0, 1);
    std::vector<std::vector<index_t>> shown(n * static_cast<std::size_t>(heads));  // of each row, in the order of p
    for (const Sequence& one : x.sequences->list) {
      ASSERT_NE(one.pattern, nullptr);
      if (heads == 1) {
        EXPECT_LE(one.pattern->rows().runs_held(), one.rows.size());
      }
      for (index_t r = 0; r < one.rows.size(); ++r) {
        const index_t row = one.rows.begin + r, query = moved.queries[static_cast<std::size_t>(row / heads)];
        auto& keys = shown[static_cast<std::size_t>(query * heads + row % heads)];
        for (const Range& run : one.pattern->rows().of(r))
          for (index_t j = run.begin; j < run.end; ++j)
            keys.push_back(moved.keys[static_cast<std::size_t>(one.keys.begin + j)]);
        std::ranges::sort(keys);
      }
    }
    for (index_t row = 0; row < n * heads; ++row) {
      std::vector<index_t> keys;
      const auto& head = seen[static_cast<std::size_t>(row % heads)];
      for (index_t j = row / heads < 1500 ? 0 : 1500; j <= row / heads; ++j)
        if (head[static_cast<std::size_t>(j)] != 0) keys.push_back(j);
      ASSERT_EQ(shown[static_cast<std::size_t>(row)], keys) << row;
    }
    std::vector<index_t> all = moved.keys;
    std::ranges::sort(all);
    for (index_t j = 0; j < n; ++j) ASSERT_EQ(all[static_cast<std::size_t>(j)], j);
  }
}

TEST(Patterns, QueriesAndKeysWithoutPairsAreDropped) {
  Problem p{.n_q = 6, .n_k = 8, .d = 4, .d_v = 4};
  std::vector<std::uint8_t> seen(48);
  for (const auto& [i, j] : {std::pair(0, 0), {0, 7}, {2, 3}, {2, 7}, {5, 0}, {5, 3}})
    seen[static_cast<std::size_t>(i * 8 + j)] = 1;
  p.patterns = {std::make_shared<const RunLists>(patterns::of_mask({6, 8}, seen))};
  const Sequence one = p.sizes().sequences->list.front();
  EXPECT_EQ(one.rows, (Range{0, 3}));
  EXPECT_EQ(one.keys, (Range{0, 3}));
  p.alibi = true;  // a distance needs its place
  EXPECT_EQ(p.sizes().sequences->list.front().rows, (Range{0, 6}));
}

TEST(Patterns, BadOnesAreRefusedInOneSentence) {
  using testing::HasSubstr;
  const auto refused = [](const auto& make, const char* text) {
    EXPECT_THAT(refusal_of<InvalidProblem>(make), testing::AllOf(HasSubstr(text), testing::Not(HasSubstr("\n"))));
  };
  const patterns::Between x{2, 5};
  using Numbers = std::vector<index_t>;
  const auto csr = [&](const Numbers& indptr, const Numbers& indices) {
    return [=] { patterns::of_csr(x, indptr, indices); };
  };
  refused(csr({0, 1}, {0}), "indptr has 2 entries: 2 queries need 3");
  refused(csr({1, 1, 1}, {0}), "indptr begins with 1");
  refused(csr({0, 1, 3}, {0, 1}), "indptr ends with 3 and there are 2 indices");
  refused(csr({0, 2, 1}, {0}), "indptr goes from 0 to 2 at query 0");
  refused(csr({0, 1, 2}, {0, 5}), "query 1 sees key 5: keys are 0 to 4");
  refused(csr({0, 1, 2}, {-1, 0}), "query 0 sees key -1");
  refused(csr({0, 2, 2}, {3, 1}), "query 0 has key 1 after key 3: give its keys in ascending order");
  refused(csr({0, 2, 2}, {3, 3}), "query 0 has key 3 after key 3: give each key once");
  refused([&] { patterns::window(x, -2, 0); }, "window left = -2");
  refused([&] { patterns::window(x, 1, 1, 0); }, "dilation of a window = 0");
  refused([&] { patterns::longformer(x, 1, 1, -1); }, "globals = -1");
  constexpr index_t far = index_t{1} << 62;
  refused([&] { patterns::window(x, far, 0); }, "window left = 4611686018427387904: give 0 to 2^48 keys");
  refused([&] { patterns::big_bird(x, {.window = far}); }, "window blocks = 4611686018427387904");
  refused([&] { patterns::strided({2, 5, far}, 2); }, "offset = 4611686018427387904: at most 2^48 either way");
  refused([&] { patterns::strided(x, far); }, "stride = 4611686018427387904: give a number from 1 to 2^48");
  refused([&] { patterns::strided(x, 0); }, "stride = 0");
  refused([&] { patterns::fixed(x, 4, 5); }, "summary = 5 keys of each block of 4");
  refused([&] { patterns::big_bird(x, {.block = 0}); }, "block = 0");
  refused([&] { patterns::of_mask(x, std::vector<std::uint8_t>(9)); }, "9 entries");
  Problem p{.n_q = 3, .n_k = 5, .d = 4, .d_v = 4};
  p.patterns = {std::make_shared<const RunLists>(patterns::window(x, 1, 1))};
  refused([&] { p.validate(); }, "pattern 0 is of 2 queries and the problem has n_q = 3");
  p.n_q = 2;
  p.n_k = 4;
  refused([&] { p.validate(); }, "there are 4 keys");
  p.n_k = 5;
  p.heads = 3;
  p.patterns = {std::make_shared<const RunLists>(p.patterns[0]), std::make_shared<const RunLists>(p.patterns[0])};
  refused([&] { p.validate(); }, "2 patterns for batch 1 and 3 heads");
}

}  // namespace redblue::test
