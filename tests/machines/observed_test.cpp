#include "redblue/machines/observed.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "redblue/machines/counting.hpp"

namespace redblue::test {
namespace {

using machine::Counting;
using Observed = machine::Observed<Counting>;

/// Words that were read before each call, in two rounds that read four blocks of six words each.
std::vector<Words> read_at_calls(index_t words) {
  Counting counting;
  std::vector<Words> at;
  const Observed::Callback note = [&](const Counting& m) { at.push_back(m.io().total()); };
  Observed observed(counting, note, words);
  observed.each(2, [&](auto& w, index_t) {
    for (index_t row = 0; row < 4; ++row)
      const auto tile = w.load(Block{.array = SlowArray::Q, .row = row, .shape = {1, 6}});
  });
  return at;
}

TEST(Observed, CallsAfterEveryRoundAndWithinOne) {
  EXPECT_EQ(read_at_calls(Observed::kRoundsAlone), (std::vector<Words>{24, 48}));
  EXPECT_EQ(read_at_calls(10), (std::vector<Words>{12, 24, 24, 36, 48, 48}));
  EXPECT_EQ(read_at_calls(18), (std::vector<Words>{18, 24, 42, 48}));
}

}  // namespace
}  // namespace redblue::test
