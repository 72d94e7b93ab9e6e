#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "redblue/verify/claims.hpp"
#include "schedules/registered.hpp"
#include "support/cases.hpp"

/// The tiling that a schedule chooses against every tiling there is. A tiling is made of components (the tiles of one
/// phase: their names share what stands before the dot, and no two are along the same dimension): where all
/// combinations are few, all are tried at every M; else each component by itself, since phases follow each other (all
/// of its values, or at each M another 500 of them where there are more), and random combinations.
namespace redblue::test {
namespace {

using plan::Tiling;
using schedule::Limits;
using schedule::TileSize;
using schedule::TileSizeRange;

/// Legal tiles of a dimension n: multiples of step, and n itself.
std::vector<index_t> tiles(index_t n, index_t step) {
  std::vector<index_t> list;
  for (index_t b = step; b < n; b += step) list.push_back(b);
  list.push_back(n);
  return list;
}

index_t step_of(const TileSizeRange& k, const schedule::Multiples& m) {
  return k.along == &Sizes::n_q ? m.query : k.along == &Sizes::n_k ? m.key : m.feature;
}

std::string text_of(const Tiling& t) { return ' ' + plan::text_of(t); }

/// All checks throw std::runtime_error.
class Exhaustive {
 public:
  Exhaustive(const plan::Schedule& s, const Sizes& x, const Limits& limits, std::mt19937& random)
      : s_(s), x_(x), limits_(limits), random_(random) {
    const Tiling smallest = s.smallest(x, limits.multiple);
    std::string previous = "none";
    std::vector<index_t Sizes::*> along;
    for (const TileSizeRange& k : s.tile_sizes) {
      const auto dot = k.name.find('.');
      const std::string component(dot == std::string_view::npos ? "" : k.name.substr(0, dot));
      const bool again = k.along != nullptr && std::ranges::count(along, k.along) > 0;
      if (components_.empty() || component != previous || again) {
        components_.push_back({Tiling{}});
        along.clear();
      }
      previous = component;
      along.push_back(k.along);
      std::vector<Tiling> longer;
      for (const Tiling& t : components_.back())
        for (const index_t value : values(k, smallest)) {
          longer.push_back(t);
          longer.back().push_back({k.name, value});
        }
      components_.back() = std::move(longer);
    }
  }

  void check() {
    std::size_t combinations = 1;
    for (const auto& c : components_) combinations *= std::min<std::size_t>(c.size(), 1'000'000);
    if (!s_.traits.stable)
      check_that_it_runs_where_the_smallest_does();
    else if (knows_all_values() && combinations <= static_cast<std::size_t>(cases(5'000)))
      check_all_at_every_M();
    else
      check_components_at_some_M();
  }

 private:
  std::vector<index_t> values(const TileSizeRange& k, const Tiling& smallest) const {
    if (k.groups) {  // of which more are for many workers: the number it starts with
      for (const TileSize& least : smallest)
        if (least.name == k.name) return {least.value};
      return {1};
    }
    if (k.along == nullptr && k.most == 0) {  // any number: some of them
      std::vector<index_t> list{k.least};
      for (int i = 0; i < 10; ++i)
        list.push_back(std::uniform_int_distribution<index_t>(k.least, 20 << (i / 2))(random_));
      return list;
    }
    std::vector<index_t> list;
    if (k.along != nullptr) {
      list = tiles(x_.*k.along, step_of(k, limits_.multiple));
      if (k.least == 0) list.insert(list.begin(), 0);
      return list;
    }
    for (index_t v = k.least; v <= k.most; ++v) list.push_back(v);
    return list;
  }

  bool knows_all_values() const {
    return std::ranges::all_of(s_.tile_sizes,
                               [](const TileSizeRange& k) { return k.groups || k.along != nullptr || k.most > 0; });
  }
  Words occupied(const Tiling& t) const { return limits_.occupied(s_.footprint(x_, t), s_.prefetch(x_, t)); }
  Words cost(const Tiling& t) const { return limits_.price.of(s_.io(x_, t)); }
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("at M = " + limits_.M.str() + ": " + what);
  }
  void require_fits(const Tiling& t) const {
    if (occupied(t) > limits_.M) fail("does not fit:" + text_of(t));
  }

  template <class F>
  void for_each_tiling(Tiling& t, std::size_t component, const F& f) const {
    if (component == components_.size()) {
      if (s_.allows(x_, t)) f(t);
      return;
    }
    for (const Tiling& part : components_[component]) {
      t.insert(t.end(), part.begin(), part.end());
      for_each_tiling(t, component + 1, f);
      t.resize(t.size() - part.size());
    }
  }

  void check_that_it_runs_where_the_smallest_does() {
    const Words least = occupied(s_.smallest(x_, limits_.multiple));
    for (limits_.M = 1; limits_.M <= least + 20; limits_.M += 1) {
      const auto chosen = s_.choose(x_, limits_);
      if (!s_.traits.printed && chosen.has_value() != (limits_.M >= least)) fail("least M is " + least.str());
      if (!s_.traits.printed && chosen) require_fits(*chosen);
    }
  }

  void check_all_at_every_M() {
    std::map<Words, std::pair<Words, Tiling>> best;  // by words occupied: the least cost
    Tiling t;
    for_each_tiling(t, 0, [&](const Tiling& tiling) {
      const Words price = cost(tiling);
      const auto [entry, fresh] = best.try_emplace(occupied(tiling), price, tiling);
      if (!fresh && price < entry->second.first) entry->second = {price, tiling};
    });
    if (best.empty()) return;  // nothing to choose from: one column cannot be split
    for (auto it = best.begin(); std::next(it) != best.end();) {
      const auto next = std::next(it);
      if (next->second.first >= it->second.first)
        best.erase(next);
      else
        it = next;
    }
    const Words least = best.begin()->first, most = best.rbegin()->first + 3;
    for (limits_.M = 1; limits_.M <= most; limits_.M += 1) {
      const auto chosen = s_.choose(x_, limits_);
      if (chosen.has_value() != (limits_.M >= least)) fail("least M is " + least.str());
      if (!chosen) continue;
      require_fits(*chosen);
      const auto& [optimum, tiling] = std::prev(best.upper_bound(limits_.M))->second;
      if (cost(*chosen) != optimum)
        fail("costs " + cost(*chosen).str() + text_of(*chosen) + ", best " + optimum.str() + text_of(tiling));
    }
  }

  /// All values of a component, or another 500 of them at each call where there are more.
  std::vector<Tiling> some_of(const std::vector<Tiling>& component) const {
    std::vector<Tiling> some;
    std::ranges::sample(component, std::back_inserter(some), 500, random_);
    return some;
  }
  /// The tiling with the values of a component in it.
  static Tiling with(Tiling t, const Tiling& part) {
    for (const TileSize& k : part) {
      const auto same = std::find_if(t.begin(), t.end(), [&](const TileSize& other) { return other.name == k.name; });
      if (same == t.end())
        t.push_back(k);
      else
        *same = k;
    }
    return t;
  }

  void check_components_at_some_M() {
    // The smallest tiles do where they fit; second buffers may let others do with less.
    const Tiling smallest = s_.smallest(x_, limits_.multiple);
    const auto works = [&](Words M) {
      limits_.M = M;
      return s_.choose(x_, limits_).has_value();
    };
    if (!s_.allows(x_, smallest)) return;
    Words least = occupied(smallest);
    if (!works(least)) fail("not even the smallest tiles:" + text_of(smallest));
    while (works(least - 1)) least -= 1;
    std::set<Words> sizes{least, least + 1};
    for (int i = 0; i < 9; ++i) sizes.insert(least + std::uniform_int_distribution<int>(0, 1 << i)(random_));
    for (const Words& M : sizes) {
      limits_.M = M;
      const auto chosen = s_.choose(x_, limits_);
      if (!chosen) fail("nothing, but a tiling for " + least.str() + " words");
      require_fits(*chosen);
      const Words price = cost(*chosen);
      const auto compare = [&](const Tiling& t) {
        if (!s_.allows(x_, t)) return;
        const Words size = occupied(t);
        if (size <= M && cost(t) < price)
          fail("costs " + price.str() + text_of(*chosen) + ", better " + cost(t).str() + text_of(t));
        if (size < least) fail("least M is said to be " + least.str() + ", but" + text_of(t));
      };
      for (const auto& component : components_)
        for (const Tiling& part : some_of(component)) compare(with(*chosen, part));
      for (int i = 0; i < 5; ++i) {
        Tiling t = *chosen;
        for (const auto& component : components_)
          t = with(t, component[std::uniform_int_distribution<std::size_t>(0, component.size() - 1)(random_)]);
        compare(t);
      }
    }
  }

  const plan::Schedule& s_;
  Sizes x_;
  Limits limits_;
  std::mt19937& random_;
  std::vector<std::vector<Tiling>> components_;  ///< all values of each
};

}  // namespace

class ChooseTiling : public testing::TestWithParam<Registered> {
 protected:
  /// change(limits, sizes, draw) for each of many problems.
  template <class Change>
  void check(const Change& change) {
    const plan::Schedule& s = *GetParam();
    const auto count = static_cast<unsigned>(cases(20));
    for (unsigned seed = 1; seed <= count; ++seed) {
      std::mt19937 random(seed);
      const claims::Draw draw = [&](index_t least, index_t most) {
        return std::uniform_int_distribution<index_t>(least, most)(random);
      };
      Sizes x;
      x.n_q = draw(1, 10);
      x.n_k = draw(1, 9);
      x.d = draw(1, 7);
      x.d_v = draw(1, 7);
      x.d_in = draw(1, 5);
      if (draw(0, 1) == 1) x.mask.hi = draw(-8, 11);
      if (draw(0, 2) == 0) x.mask.lo = (x.mask.hi == Mask::kFar ? draw(-6, 8) : x.mask.hi) - draw(1, 8);
      if (x.mask.hi != Mask::kFar && draw(0, 3) == 0) x.mask.prefix = draw(0, x.n_k);
      x.mask.group = draw(1, 3);
      x.n_q *= x.mask.group;
      if (draw(0, 3) == 0 && (s.traits.hides || s.traits.intervals)) {
        x.sequences = claims::uneven_intervals(x, draw);
        x.mask = {.group = x.mask.group};
        if (x.sequences->list.size() > 1) continue;  // each part may have tiles of its own
      }
      claims::ask_for(s, x, draw);
      if (!claims::can_solve(s, x)) x.mask = {}, x.sequences = nullptr;
      if (draw(0, 2) == 0 || !claims::can_solve(s, x)) x.score = s.traits.only_score.value_or(Score::sigmoid);
      if (!claims::can_solve(s, x)) x.score = Score::softmax;
      x.lse_required = x.statistics() > 0 && draw(0, 1) == 1;
      if (!claims::can_solve(s, x)) continue;
      Limits limits;
      change(limits, x, draw);
      try {
        Exhaustive(s, x, limits, random).check();
      } catch (const std::runtime_error& e) {
        FAIL() << "seed " << seed << ": n_q " << x.n_q << " n_k " << x.n_k << " d " << x.d << " d_v " << x.d_v
               << " d_in " << x.d_in << ' ' << name_of(x.score) << " mask lo " << x.mask.lo << " hi " << x.mask.hi
               << " prefix " << x.mask.prefix << " group " << x.mask.group << " multiples " << limits.multiple.query
               << ' ' << limits.multiple.key << ' ' << limits.multiple.feature << ' ' << e.what();
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, ChooseTiling, testing::ValuesIn(all_schedules()),
                         [](const auto& info) { return test_name_of(info.param); });

TEST_P(ChooseTiling, IsNeverWorseThanAnyOther) {
  check([](Limits&, Sizes&, const auto&) {});
}

TEST_P(ChooseTiling, IsNeverWorseThanAnyOtherWithMultiplesAndPrices) {
  // Of tiles of pairs the largest room that fits is taken: under some prices a smaller one is a little cheaper.
  const bool priced = !GetParam()->traits.lists_pairs;
  check([priced](Limits& limits, Sizes&, const auto& draw) {
    limits.multiple = {draw(1, 4), draw(1, 4), draw(1, 3)};
    limits.reserve = std::array{0, 0, 2, 7}[static_cast<std::size_t>(draw(0, 3))];
    for (std::size_t a = 0; a < kSlowArrays && priced; ++a) {
      limits.price.read[a] = std::array{1, 2, 4, 1000}[static_cast<std::size_t>(draw(0, 3))];
      limits.price.write[a] = std::array{0, 1, 3, 5000}[static_cast<std::size_t>(draw(0, 3))];
    }
  });
}

TEST_P(ChooseTiling, IsNeverWorseThanAnyOtherWithSecondBuffers) {
  check([](Limits& limits, Sizes&, const auto& draw) {
    limits.double_buffer = true;
    limits.multiple = {draw(1, 3), draw(1, 3), draw(1, 3)};
  });
}

TEST_P(ChooseTiling, IsNeverWorseThanAnyOtherInBytes) {
  if (GetParam()->traits.lists_pairs) GTEST_SKIP() << "of tiles of pairs the largest room that fits is taken";
  check([](Limits& limits, Sizes& x, const auto& draw) {
    x.fast = claims::any_residence(draw);
    limits.double_buffer = draw(0, 3) == 0;
    limits.multiple = {draw(1, 3), draw(1, 3), draw(1, 3)};
  });
}

}  // namespace redblue::test
