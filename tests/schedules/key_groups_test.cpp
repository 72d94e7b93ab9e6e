#include "redblue/schedules/backward/key_groups.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "redblue/masks/patterns.hpp"
#include "redblue/schedules/backward/grouped_key_outer.hpp"

namespace redblue {
namespace {

/// The same mask as a pattern.
Sizes as_pattern(const Sizes& x) {
  RunLists rows;
  for (index_t r = 0; r < x.n_q; ++r) rows.append(1, {x.pairs().keys_of({r, r + 1})});
  Sizes given = x;
  given.pattern = std::make_shared<const Pattern>(std::move(rows), x.n_k);
  given.mask = {.pattern = given.pattern.get()};
  return given;
}

/// Blocks of one key form no hidden pair, so the cuts are the same, too.
TEST(KeyGroups, OfAMaskAreThoseOfItsPattern) {
  using S = schedule::GroupedKeyOuterBackward;
  const Mask causal{.hi = 1}, window{.lo = -9, .hi = 5}, prefix{.hi = 1, .prefix = 30};
  for (const Mask& mask : {causal, window, prefix})
    for (const index_t n : {40, 57})
      for (const index_t G : {1, 2, 3, 7}) {
        SCOPED_TRACE(fmt::format("lo {} hi {} prefix {} n {} G {}", mask.lo, mask.hi, mask.prefix, n, G));
        const Sizes x{n, n, 4, 3, mask}, y = as_pattern(x);
        const S::Tiling t{{1, 5}, G};
        const schedule::KeyGroups of_mask(x, t);
        const schedule::KeyGroupsOfPattern of_pattern(y, t);
        for (index_t g = 0; g < G; ++g) EXPECT_EQ(of_mask(g), of_pattern(g));
        EXPECT_EQ(of_mask.copied_visits(), of_pattern.copied_visits());
        EXPECT_EQ(of_mask.summed().size(), of_pattern.summed().size());
        if (of_mask.summed().size() > 0) {
          EXPECT_EQ(of_mask.summed(), of_pattern.summed());
        }
        EXPECT_EQ(S::io(x, t), S::io(y, t));
        EXPECT_EQ(S::footprint(x, t), S::footprint(y, t));
        EXPECT_EQ(S::prefetch(x, t), S::prefetch(y, t));
        EXPECT_EQ(S::macs(x, t), S::macs(y, t));
      }
}

/// All 64 rows see every other key of the first half, the last row also the second half. Blocks of 8 keys form 64 x 8
/// pairs in the first half, and 8 in the second. So the cut lies in the middle of the first half.
TEST(KeyGroups, OfAPatternAreCutByThePairsThatBlocksForm) {
  Sizes x{64, 128, 2, 2};
  std::vector<Range> even;
  for (index_t key = 0; key < 64; key += 2) even.push_back({key, key + 1});
  RunLists rows;
  rows.append(63, even);
  even.push_back({64, 128});
  rows.append(1, even);
  x.pattern = std::make_shared<const Pattern>(std::move(rows), x.n_k);
  x.mask.pattern = x.pattern.get();
  const schedule::KeyGroupsOfPattern groups(x, {{8, 8}, 2});
  EXPECT_EQ(groups(0), (Range{0, 32}));
}

/// Blocks of 2 keys in two groups, the second from key 4 on. Rows see: the first group alone; both; the second alone;
/// nothing; both, with a gap.
TEST(KeyGroups, OfAPatternWithGaps) {
  Sizes x{5, 8, 2, 2};
  RunLists rows;
  rows.append(1, {{0, 4}});
  rows.append(1, {{1, 2}, {3, 7}});
  rows.append(1, {{5, 8}});
  rows.append(1, std::span<const Range>());
  rows.append(1, {{0, 1}, {7, 8}});
  x.pattern = std::make_shared<const Pattern>(std::move(rows), x.n_k);
  x.mask.pattern = x.pattern.get();
  const schedule::GroupedKeyPass t{{2, 2}, 2};
  const schedule::KeyGroupsOfPattern groups(x, t);
  EXPECT_EQ(groups(0), (Range{0, 4}));
  EXPECT_EQ(groups(1), (Range{4, 8}));
  EXPECT_EQ(groups.copied_visits(), 3);  // row 1 in blocks 2 and 3, row 4 in block 3
  EXPECT_EQ(groups.summed(), (Range{1, 5}));
  EXPECT_EQ(groups.index().reads, 2 * 1 + 2);  // two blocks of summed rows, one copy, two rows in it
  std::vector<Range> copied;
  groups.for_copied(1, {0, 5}, [&](Range part) { copied.push_back(part); });
  EXPECT_EQ(copied, (std::vector<Range>{{1, 2}, {4, 5}}));
  std::vector<std::pair<Range, bool>> owners;
  groups.for_owners(1, {1, 3}, [&](Range part, bool own) { owners.emplace_back(part, own); });
  EXPECT_EQ(owners, (std::vector<std::pair<Range, bool>>{{{1, 2}, false}, {{2, 3}, true}}));
}

}  // namespace
}  // namespace redblue
