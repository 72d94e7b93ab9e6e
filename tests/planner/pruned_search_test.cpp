#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/schedules/parts/ring.hpp"
#include "redblue/schedules/parts/score_phase.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// Bounds and sums by which searches over tiles leave out what cannot win.
namespace redblue::test {
namespace {

class MaskedCores {
 public:
  explicit MaskedCores(unsigned seed) : random_(seed) {}
  index_t draw(index_t least, index_t most) { return std::uniform_int_distribution<index_t>(least, most)(random_); }
  Problem problem() {
    Problem p{.heads = draw(1, 4), .kv_heads = 1, .n_q = draw(1, 60), .n_k = draw(1, 60), .d = 3, .d_v = 2};
    switch (draw(0, 3)) {
      case 0:
        p.causal = true;
        p.prefix = draw(0, 1) * draw(0, p.n_k);
        break;
      case 1:
        p.causal = true;
        p.window_left = draw(0, 25);
        p.prefix = draw(0, 3) == 0 ? draw(0, p.n_k) : 0;
        break;
      case 2:
        p.window_left = draw(0, 25), p.window_right = draw(0, 25);
        break;
      default:
        (draw(0, 1) == 0 ? p.window_left : p.window_right) = draw(0, 40);
    }
    if (draw(0, 2) == 0) p.causal_offset = draw(-20, 20);
    return p;
  }
  /// f(core) for some masked ones.
  template <class F>
  void for_some(const F& f) {
    for (int round = 0; round < 400; ++round)
      if (const auto core = core_of(problem().sizes()); core && !core->mask.full()) f(*core);
  }

 private:
  std::mt19937 random_;
};

TEST(LeastVisits, AreNoMoreThanThoseOfAnySizeAndGrowAsBlocksShrink) {
  MaskedCores cores(1);
  int closer = 0;
  cores.for_some([&](const Sizes& x) {
    const Pairs pairs = x.pairs();
    using Of = schedule::LeastVisits::Of;
    for (const Of of : {Of::rows, Of::keys}) {
      const schedule::LeastVisits least(x, of, x.nnz());
      const index_t n = of == Of::rows ? x.n_q : x.n_k, spared = cores.draw(0, 10);
      for (index_t size = 1; size <= n; ++size) {
        const Words visits = of == Of::rows ? pairs.visited_keys(size) : pairs.visited_rows(size);
        EXPECT_LE(least(size), visits) << size;
        const Words left = visits - spared * (ceil_div(n, size) - 1);
        EXPECT_LE(least.sparing(spared, size), std::max(Words(0), left)) << size;
        closer += least(size) > x.nnz() / size ? 1 : 0;
        if (size == 1) continue;
        EXPECT_LE(least(size), least(size - 1)) << size;
        EXPECT_LE(least.sparing(spared, size), least.sparing(spared, size - 1)) << size;
      }
    }
  });
  EXPECT_GT(closer, 1000);  // the better of the two bounds
}

TEST(BoxWords, AreThoseOfAllTiles) {
  MaskedCores cores(2);
  cores.for_some([&](const Sizes& x) {
    const index_t a = cores.draw(1, 9), b = cores.draw(1, 9);
    const Blocks rows = x.pairs().row_blocks(a), keys = x.pairs().key_blocks(b);
    Words words;
    for (index_t i = 0; i < rows.count(); ++i)
      for (index_t j = 0; j < keys.count(); ++j) {
        const schedule::Box box = schedule::box_of(x.pairs(), rows(i), keys(j));
        words += Words(box.rows.size()) * box.keys.size();
      }
    EXPECT_EQ(schedule::box_words(x, a, b), words) << x.n_q << " " << x.n_k << " " << a << " " << b;
  });
}

TEST(Rings, NeedNoLessRoomForALargerBlockAsFarAsIsSaid) {
  const auto& registry = plan::Registry::built_in();
  MaskedCores cores(3);
  int grown = 0;
  cores.for_some([&](const Sizes& x) {
    for (const bool keys : {false, true}) {
      const index_t last = schedule::sizes_that_grow(x, keys), first = keys ? 1 : x.mask.group;
      const auto room = [&](const auto& s, index_t size) {
        return s->footprint(x, {{s->tile_sizes.front().name, size}});
      };
      std::vector<std::shared_ptr<const plan::Schedule>> rings;
      if (keys)
        rings = {registry.find(Operation::backward, "ring_queries")};
      else
        rings = {registry.find(Operation::forward, "ring"), registry.find(Operation::backward, "ring"),
                 registry.find(Operation::backward, "ring_two_pass")};
      for (const auto& s : rings) {
        ASSERT_EQ(s->tile_sizes.front().along, keys ? &Sizes::n_k : &Sizes::n_q) << s->name;
        for (index_t size = first; size <= last; ++size)
          for (const index_t smaller : {first, size / first * first})
            EXPECT_GE(room(s, size), room(s, smaller)) << s->name;
      }
      grown += last > first ? 1 : 0;
    }
  });
  EXPECT_GT(grown, 50);
}

TEST(SparseSchedules, MoveNoLessThanTheySay) {
  MaskedCores cores(4);
  int known = 0;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const auto& s : plan::Registry::built_in().of(op)) {
      if (!s->traits.lists_pairs) continue;
      ++known;
      ASSERT_NE(s->least_io, nullptr) << s->name;
      for (int round = 0; round < 20; ++round) {
        Problem p = cores.problem();
        p.op = op;
        const Sizes x = p.sizes();
        if (s->obstacle(p, x)) continue;
        schedule::Limits limits;
        limits.M = cores.draw(20, 400);
        const auto tiling = s->choose(x, limits);
        if (!tiling) continue;
        const Io least = s->least_io(x), io = s->io(x, *tiling);
        for (std::size_t a = 0; a < kSlowArrays; ++a) {
          EXPECT_LE(least.reads[a], io.reads[a]) << s->name;
          EXPECT_LE(least.writes[a], io.writes[a]) << s->name;
        }
      }
    }
  EXPECT_EQ(known, 4);
}

TEST(Refusals, SayTheLeastMemory) {
  MaskedCores cores(5);
  int refused = 0;
  for (int round = 0; round < 60; ++round) {
    Problem p = cores.problem();
    if (round % 2 == 1) p.op = Operation::backward;
    plan::Options o;
    o.M = cores.draw(20, 200);
    try {
      for (const plan::Refusal& r : plan::make_plan(p, o).refused) {
        if (!r.smallest_M) continue;
        const auto s = o.registry->find(p.op, r.schedule);
        const auto fits_in = [&](const Words& M) {
          schedule::Limits limits;
          limits.M = M;
          return s->choose(p.sizes(), limits).has_value();
        };
        EXPECT_TRUE(fits_in(*r.smallest_M)) << r.schedule;
        EXPECT_FALSE(fits_in(*r.smallest_M - 1)) << r.schedule;
        ++refused;
      }
    } catch (const CapacityError&) {
    }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace redblue::test
