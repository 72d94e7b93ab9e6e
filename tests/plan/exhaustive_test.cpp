#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "redblue/plan/schedules.hpp"
#include "support/many_cases.hpp"

/// choose_tiling against every tiling there is, at every M there is.
namespace redblue::test {
namespace {

using namespace schedule;

/// Legal tiles of a dimension n: multiples of step, and n itself.
std::vector<index_t> tiles(index_t n, index_t step) {
  std::vector<index_t> list;
  for (index_t b = step; b < n; b += step) list.push_back(b);
  list.push_back(n);
  return list;
}

struct TileSizes {
  std::vector<index_t> q, k, v;
};

template <class F>
void for_each_tiling(std::type_identity<FlashForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t Br : s.q)
    for (index_t Bc : s.k) f(FlashForward::Tiling{Br, Bc});
}
template <class F>
void for_each_tiling(std::type_identity<SplitKeysForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t Br : s.q)
    for (index_t Bc : s.k)
      for (index_t G : {1, 2, 3}) f(SplitKeysForward::Tiling{Br, Bc, G});
}
template <class F>
void for_each_tiling(std::type_identity<FlashTiledForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t Br : s.q)
    for (index_t Bc : s.k) f(FlashTiledForward::Tiling{Br, Bc});
}
template <class F>
void for_each_tiling(std::type_identity<FlashPinnedForward>, const Sizes& x, const TileSizes& s, const F& f) {
  for (index_t Br : s.q)
    for (index_t Bc : s.k)
      for (index_t rho = 0; rho < x.n_k + Bc; rho += Bc) f(FlashPinnedForward::Tiling{Br, std::min(rho, x.n_k), Bc});
}
template <class F>
void for_each_tiling(std::type_identity<ColumnSplitForward>, const Sizes& x, const TileSizes& s, const F& f) {
  for (index_t Br : s.q)
    for (index_t Bc : s.k)
      for (index_t w : s.v)
        if (w < x.d_v) f(ColumnSplitForward::Tiling{Br, Bc, w});
}
template <class F>
void for_each_tiling(std::type_identity<KeyOuterForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t Bc : s.k)
    for (index_t Br : s.q) f(KeyOuterForward::Tiling{Bc, Br});
}
template <class F>
void for_each_tiling(std::type_identity<ScoreTilesForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t a : s.q)
    for (index_t b : s.k) f(ScoreTilesForward::Tiling{a, b});
}
template <class F>
void for_each_tiling(std::type_identity<SmallCacheForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t a2 : s.q)
    for (index_t c2 : s.v)
      for (index_t a : s.q) {
        for (index_t b : s.k)
          for (bool panel : {false, true}) f(SmallCacheForward::Tiling{{panel, a, b}, {a2, c2}});
      }
}
template <class F>
void for_each_tiling(std::type_identity<NaiveForward>, const Sizes&, const TileSizes& s, const F& f) {
  for (index_t b1 : s.q)
    for (index_t b2 : s.k)
      for (index_t b3 : s.q)
        for (index_t b4 : s.v)
          for (index_t rho : {1, 2}) f(NaiveForward::Tiling{b1, b2, b3, b4, rho});
}
/// Printed, not chosen: what counts is that it runs wherever its smallest tiling does.
template <class F>
void for_each_tiling(std::type_identity<SahaYeForward>, const Sizes&, const TileSizes&, const F& f) {
  f(SahaYeForward::Tiling{1});
}

template <class S>
constexpr bool kPrinted = std::same_as<S, SahaYeForward>;

/// Least cost of all tilings that occupy at most so many words: a step function, one entry per step.
template <class S>
std::map<Words, Words> cheapest(const Sizes& x, const Limits& limits) {
  std::map<Words, Words> best;
  const TileSizes sizes{tiles(x.n_q, limits.multiple.query), tiles(x.n_k, limits.multiple.key),
                        tiles(x.d_v, limits.multiple.feature)};
  for_each_tiling(std::type_identity<S>{}, x, sizes, [&](const typename S::Tiling& t) {
    const Words cost = limits.price.of(S::io(x, t));
    const auto [entry, fresh] = best.try_emplace(limits.occupied(S::footprint(x, t), S::prefetch(x, t)), cost);
    if (!fresh) entry->second = std::min(entry->second, cost);
  });
  for (auto it = best.begin(); std::next(it) != best.end();) {
    const auto next = std::next(it);
    if (next->second >= it->second)
      best.erase(next);
    else
      it = next;
  }
  return best;
}

template <class S>
void check_every_M(const Sizes& x, Limits limits) {
  if (x.mask.causal && !S::masks) return;
  if (std::same_as<S, ColumnSplitForward> && x.d_v <= limits.multiple.feature) return;  // nothing to split
  const auto best = cheapest<S>(x, limits);
  const Words least = best.begin()->first, most = best.rbegin()->first + 3;
  for (limits.M = 1; limits.M <= most; limits.M += 1) {
    const auto chosen = S::choose_tiling(x, limits);
    const auto at = [&](const std::string& what) {
      return std::string(S::name) + " at M = " + limits.M.str() + ": " + what;
    };
    if (chosen.has_value() != (limits.M >= least)) RC_FAIL(at("least M is " + least.str()));
    if (!chosen) continue;
    if (!limits.fit(S::footprint(x, *chosen), S::prefetch(x, *chosen))) RC_FAIL(at("does not fit"));
    if (kPrinted<S>) continue;
    const Words cost = limits.price.of(S::io(x, *chosen)), optimum = std::prev(best.upper_bound(limits.M))->second;
    if (cost != optimum) RC_FAIL(at("costs " + cost.str() + ", best " + optimum.str()));
  }
}

Sizes any_shape() {
  const auto size = [](int most) { return *rc::gen::inRange(1, most + 1); };
  Sizes x;
  x.n_q = size(9);
  x.n_k = size(9);
  x.d = size(9);
  x.d_v = size(7);
  x.lse_required = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) x.mask = {true, *rc::gen::inRange(-9, 10), size(3)};
  RC_LOG() << "n_q " << x.n_q << " n_k " << x.n_k << " d " << x.d << " d_v " << x.d_v << " causal " << x.mask.causal
           << " offset " << x.mask.offset << " group " << x.mask.group << '\n';
  return x;
}

void check_all_schedules(const Sizes& x, const Limits& limits) {
  plan::ForwardSchedules::for_each([&]<class S>(plan::Choice<S>) {
    if constexpr (!requires { S::only_score; }) check_every_M<S>(x, limits);  // linear: no tile in its words
  });
}

RC_GTEST_PROP(ChooseTiling, IsNeverWorseThanAnyOther, ()) { check_all_schedules(any_shape(), Limits{}); }

RC_GTEST_PROP(ChooseTiling, IsNeverWorseThanAnyOtherWithMultiplesAndPrices, ()) {
  Limits limits;
  limits.multiple = {*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 4)};
  limits.reserve = *rc::gen::element(0, 0, 2, 7);
  for (std::size_t a = 0; a < kSlowArrays; ++a) {
    limits.price.read[a] = *rc::gen::element(1, 2, 4, 1000);
    limits.price.write[a] = *rc::gen::element(0, 1, 3, 5000);
  }
  RC_LOG() << "multiples " << limits.multiple.query << ' ' << limits.multiple.key << ' ' << limits.multiple.feature
           << '\n';
  check_all_schedules(any_shape(), limits);
}

RC_GTEST_PROP(ChooseTiling, IsNeverWorseThanAnyOtherWithSecondBuffers, ()) {
  Limits limits;
  limits.double_buffer = true;
  limits.multiple = {*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 4), *rc::gen::inRange(1, 4)};
  RC_LOG() << "multiples " << limits.multiple.query << ' ' << limits.multiple.key << ' ' << limits.multiple.feature
           << '\n';
  check_all_schedules(any_shape(), limits);
}

}  // namespace
}  // namespace redblue::test
