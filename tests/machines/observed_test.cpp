#include "redblue/machines/observed.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "redblue/machines/counting.hpp"

namespace redblue::test {
namespace {

using machine::Counting;
using Observed = machine::Observed<Counting>;

/// Words that were moved before each call, in two rounds that move four blocks of six words each.
std::vector<Words> moved_at_calls(index_t words, bool stores) {
  Counting counting;
  std::vector<Words> at;
  const Observed::Callback note = [&](const Counting& m) { at.push_back(m.io().total()); };
  Observed observed(counting, note, words);
  observed.each(2, [&](auto& w, index_t) {
    for (index_t row = 0; row < 4; ++row) {
      const Block b{.array = stores ? SlowArray::S : SlowArray::Q, .row = row, .shape = {1, 6}};
      if (stores) {
        const auto tile = w.alloc(b.array, b.shape);
        w.store(tile, b);
      } else {
        const auto tile = w.load(b);
      }
    }
  });
  return at;
}

TEST(Observed, CallsAfterEveryRoundAndWithinOne) {
  for (const bool stores : {false, true}) {
    EXPECT_EQ(moved_at_calls(Observed::kRoundsAlone, stores), (std::vector<Words>{24, 48}));
    EXPECT_EQ(moved_at_calls(10, stores), (std::vector<Words>{12, 24, 24, 36, 48, 48}));
    EXPECT_EQ(moved_at_calls(18, stores), (std::vector<Words>{18, 24, 42, 48}));
  }
}

}  // namespace
}  // namespace redblue::test
