#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "redblue/plan/schedules.hpp"
#include "support/many_cases.hpp"

/// choose_tiling of the gradients against every tiling there is. A tiling is made of components (the tiles of one
/// phase): where all combinations are few, all are tried at every M; else, phases following each other, each component
/// by itself, and random combinations.
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
  std::vector<index_t> q, k, f, v;  ///< of queries, keys, columns of d and of d_v
};

/// Ways to set one component of a tiling.
template <class Tiling>
using Component = std::vector<std::function<void(Tiling&)>>;

/// The component part(tiling) of two sizes, in all ways.
template <class Tiling, class Part>
Component<Tiling> pairs(const std::vector<index_t>& first, const std::vector<index_t>& second, const Part& part) {
  Component<Tiling> list;
  for (const index_t a : first)
    for (const index_t b : second) list.push_back([=](Tiling& t) { part(t, a, b); });
  return list;
}
template <class Tiling>
Component<Tiling> query_pass(const TileSizes& s, QueryPass Tiling::* member) {
  return pairs<Tiling>(s.q, s.k, [=](Tiling& t, index_t a, index_t b) { t.*member = {a, b}; });
}
template <class Tiling>
Component<Tiling> key_pass(const TileSizes& s, KeyPass Tiling::* member) {
  return pairs<Tiling>(s.k, s.q, [=](Tiling& t, index_t a, index_t b) { t.*member = {a, b}; });
}
template <class Tiling>
Component<Tiling> scores(const TileSizes& s, ScoreTiling Tiling::* member) {
  Component<Tiling> list;
  for (const bool panel : {false, true})
    for (const auto& set : pairs<Tiling>(s.q, s.k, [=](Tiling& t, index_t a, index_t b) { t.*member = {panel, a, b}; }))
      list.push_back(set);
  return list;
}
template <class Tiling>
Component<Tiling> product(const std::vector<index_t>& rows, const std::vector<index_t>& cols,
                          GemmTiling Tiling::* member) {
  return pairs<Tiling>(rows, cols, [=](Tiling& t, index_t a, index_t b) { t.*member = {a, b}; });
}

template <class S>
using Components = std::vector<Component<typename S::Tiling>>;

Components<FusedKeyOuterBackward> components(std::type_identity<FusedKeyOuterBackward>, const TileSizes& s) {
  using T = FusedKeyOuterBackward::Tiling;
  return {pairs<T>(s.k, s.q, [](T& t, index_t a, index_t b) { t = {{a, b}}; })};
}
/// So few keys make one group. More are for many workers, and cost less only where dQg is cheaper than dQ.
Components<GroupedKeyOuterBackward> components(std::type_identity<GroupedKeyOuterBackward>, const TileSizes& s) {
  using T = GroupedKeyOuterBackward::Tiling;
  return {pairs<T>(s.k, s.q, [](T& t, index_t a, index_t b) { t = {{a, b}, 1}; })};
}
Components<FusedQueryOuterBackward> components(std::type_identity<FusedQueryOuterBackward>, const TileSizes& s) {
  using T = FusedQueryOuterBackward::Tiling;
  return {pairs<T>(s.q, s.k, [](T& t, index_t a, index_t b) { t = {{a, b}}; })};
}
Components<TwoPassBackward> components(std::type_identity<TwoPassBackward>, const TileSizes& s) {
  using T = TwoPassBackward::Tiling;
  return {query_pass(s, &T::queries), key_pass(s, &T::keys)};
}
Components<SpilledBackward> components(std::type_identity<SpilledBackward>, const TileSizes& s) {
  using T = SpilledBackward::Tiling;
  return {key_pass(s, &T::keys), product(s.q, s.f, &T::dQ)};
}
Components<FusedValueBackward> components(std::type_identity<FusedValueBackward>, const TileSizes& s) {
  using T = FusedValueBackward::Tiling;
  return {scores(s, &T::P),
          pairs<T>(s.k, s.q,
                   [](T& t, index_t a, index_t b) {
                     t.Bc = a;
                     t.br = b;
                   }),
          product(s.q, s.f, &T::dQ), product(s.k, s.f, &T::dK)};
}
Components<MaterialisedBackward> components(std::type_identity<MaterialisedBackward>, const TileSizes& s) {
  using T = MaterialisedBackward::Tiling;
  return {scores(s, &T::P), scores(s, &T::dS), product(s.k, s.v, &T::dV), product(s.q, s.f, &T::dQ),
          product(s.k, s.f, &T::dK)};
}
template <RowsGo rows_go>
Components<QueryOuterGradient<rows_go>> components(std::type_identity<QueryOuterGradient<rows_go>>,
                                                   const TileSizes& s) {
  using T = typename QueryOuterGradient<rows_go>::Tiling;
  Components<QueryOuterGradient<rows_go>> list{query_pass(s, &T::queries), product(s.q, s.f, &T::S),
                                               product(s.k, s.v, &T::h)};
  if (rows_go == RowsGo::out) list.push_back(product(s.f, s.f, &T::g));
  return list;
}
Components<OnTheFlyGradient> components(std::type_identity<OnTheFlyGradient>, const TileSizes& s) {
  using T = OnTheFlyGradient::Tiling;
  return {pairs<T>(s.q, s.k, [](T& t, index_t a, index_t b) { t = {{a, b}}; })};
}
template <Values values>
Components<KeyOuterGradient<values>> components(std::type_identity<KeyOuterGradient<values>>, const TileSizes& s) {
  using T = typename KeyOuterGradient<values>::Tiling;
  Components<KeyOuterGradient<values>> list{pairs<T>(s.k, s.q, [](T& t, index_t a, index_t b) {
    t.Bc = a;
    t.br = b;
  })};
  if (values == Values::stored) list.push_back(product(s.k, s.v, &T::h));
  return list;
}
Components<SmallCacheGradient> components(std::type_identity<SmallCacheGradient>, const TileSizes& s) {
  using T = SmallCacheGradient::Tiling;
  return {product(s.q, s.f, &T::S), product(s.k, s.v, &T::h), scores(s, &T::f),
          scores(s, &T::p),         product(s.q, s.f, &T::U), product(s.f, s.f, &T::g)};
}
Components<SharedSourceGradient> components(std::type_identity<SharedSourceGradient>, const TileSizes& s) {
  using T = SharedSourceGradient::Tiling;
  const auto nth = [&](std::size_t i, const std::vector<index_t>& rows) {
    return pairs<T>(rows, s.f, [i](T& t, index_t a, index_t b) { t.products[i] = {a, b}; });
  };
  return {query_pass(s, &T::queries), nth(0, s.q), nth(1, s.q), nth(2, s.f)};
}
Components<SharedSourceForward> components(std::type_identity<SharedSourceForward>, const TileSizes& s) {
  using T = SharedSourceForward::Tiling;
  return {product(s.q, s.f, &T::S),
          pairs<T>(s.q, s.k,
                   [](T& t, index_t a, index_t b) {
                     t.Br = a;
                     t.Bc = b;
                   }),
          product(s.q, s.v, &T::O)};
}

Components<SharedKeyOuterGradient> components(std::type_identity<SharedKeyOuterGradient>, const TileSizes& s) {
  using T = SharedKeyOuterGradient::Tiling;
  return {pairs<T>(s.k, s.q, [](T& t, index_t a, index_t b) {
    t.Bc = a;
    t.br = b;
  })};
}
template <class S>
  requires(std::same_as<S, LinearForward> || std::same_as<S, LinearBackward> || std::same_as<S, LinearTwoStateBackward>)
Components<S> components(std::type_identity<S>, const TileSizes& s) {
  using T = typename S::Tiling;
  return {pairs<T>(s.q, s.k, [](T& t, index_t a, index_t b) {
    t.br = a;
    t.bc = b;
  })};
}
Components<LinearProductsForward> components(std::type_identity<LinearProductsForward>, const TileSizes& s) {
  using T = LinearProductsForward::Tiling;
  return {product(s.f, s.v, &T::Z), product(s.q, s.v, &T::O)};
}
Components<LinearProductsBackward> components(std::type_identity<LinearProductsBackward>, const TileSizes& s) {
  using T = LinearProductsBackward::Tiling;
  const auto nth = [](std::size_t i, const std::vector<index_t>& rows, const std::vector<index_t>& cols) {
    return pairs<T>(rows, cols, [i](T& t, index_t a, index_t b) { t.tiles[i] = {a, b}; });
  };
  return {nth(0, s.f, s.v), nth(1, s.q, s.f), nth(2, s.f, s.v), nth(3, s.k, s.f), nth(4, s.k, s.v)};
}

template <class S>
class Exhaustive {
 public:
  using Tiling = typename S::Tiling;

  Exhaustive(const Sizes& x, const Limits& limits) : x_(x), limits_(limits) {
    const Multiples& m = limits.multiple;
    parts_ = components(std::type_identity<S>{}, TileSizes{tiles(x.n_q, m.query), tiles(x.n_k, m.key),
                                                           tiles(x.d, m.feature), tiles(x.d_v, m.feature)});
  }

  void check() {
    std::size_t combinations = 1;
    for (const auto& part : parts_) combinations *= part.size();
    if (combinations <= 4000)
      check_all_at_every_M();
    else
      check_parts_at_some_M();
  }

 private:
  Words occupied(const Tiling& t) const { return limits_.occupied(S::footprint(x_, t), S::prefetch(x_, t)); }
  Words cost(const Tiling& t) const { return limits_.price.of(S::io(x_, t)); }
  std::string at(const std::string& what) const {
    return std::string(S::name) + " at M = " + limits_.M.str() + ": " + what;
  }
  static std::string text_of(const Tiling& t) {
    std::string text;
    for (const Knob& k : t.knobs()) text += ' ' + std::string(k.name) + ' ' + std::to_string(k.value);
    return text;
  }

  template <class F>
  void for_each_tiling(Tiling& t, std::size_t part, const F& f) const {
    if (part == parts_.size()) return f(t);
    for (const auto& set : parts_[part]) {
      set(t);
      for_each_tiling(t, part + 1, f);
    }
  }

  void check_all_at_every_M() {
    std::map<Words, std::pair<Words, Tiling>> best;  // least cost of all that occupy at most so many words
    Tiling t{};
    for_each_tiling(t, 0, [&](const Tiling& tiling) {
      const Words words = occupied(tiling), price = cost(tiling);
      const auto [entry, fresh] = best.try_emplace(words, price, tiling);
      if (!fresh && price < entry->second.first) entry->second = {price, tiling};
    });
    for (auto it = best.begin(); std::next(it) != best.end();) {
      const auto next = std::next(it);
      if (next->second.first >= it->second.first)
        best.erase(next);
      else
        it = next;
    }
    const Words least = best.begin()->first, most = best.rbegin()->first + 3;
    for (limits_.M = 1; limits_.M <= most; limits_.M += 1) {
      const auto chosen = S::choose_tiling(x_, limits_);
      if (chosen.has_value() != (limits_.M >= least)) RC_FAIL(at("least M is " + least.str()));
      if (!chosen) continue;
      if (occupied(*chosen) > limits_.M) RC_FAIL(at("does not fit:" + text_of(*chosen)));
      const auto& [optimum, tiling] = std::prev(best.upper_bound(limits_.M))->second;
      if (cost(*chosen) != optimum)
        RC_FAIL(at("costs " + cost(*chosen).str() + text_of(*chosen) + ", best " + optimum.str() + text_of(tiling)));
    }
  }

  void check_parts_at_some_M() {
    // The smallest tiles do where they fit; second buffers may let others do with less.
    const Tiling smallest = S::smallest(x_, limits_.multiple);
    const auto works = [&](Words M) {
      limits_.M = M;
      return S::choose_tiling(x_, limits_).has_value();
    };
    Words least = occupied(smallest);
    if (!works(least)) RC_FAIL(at("not even the smallest tiles:" + text_of(smallest)));
    while (works(least - 1)) least -= 1;
    std::vector<Words> sizes{least, least + 1};
    for (int i = 0; i < 9; ++i) sizes.push_back(least + *rc::gen::inRange(0, 1 << i));
    for (const Words M : sizes) {
      limits_.M = M;
      const auto chosen = S::choose_tiling(x_, limits_);
      if (!chosen) RC_FAIL(at("nothing, but a tiling for " + least.str() + " words"));
      if (occupied(*chosen) > M) RC_FAIL(at("does not fit:" + text_of(*chosen)));
      const Words price = cost(*chosen);
      const auto compare = [&](const Tiling& t) {
        if (occupied(t) <= M && cost(t) < price)
          RC_FAIL(at("costs " + price.str() + text_of(*chosen) + ", better " + cost(t).str() + text_of(t)));
        if (occupied(t) < least) RC_FAIL(at("least M is said to be " + least.str() + ", but" + text_of(t)));
      };
      for (const auto& part : parts_)
        for (const auto& set : part) {
          Tiling t = *chosen;
          set(t);
          compare(t);
        }
      for (int i = 0; i < 5; ++i) {
        Tiling t = *chosen;
        for (const auto& part : parts_)
          part[static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(part.size())))](t);
        compare(t);
      }
    }
  }

  Sizes x_;
  Limits limits_;
  Components<S> parts_;
};

Sizes any_shape() {
  const auto size = [](int most) { return *rc::gen::inRange(1, most + 1); };
  Sizes x;
  x.n_q = size(12);
  x.n_k = size(8);
  x.d = size(6);
  x.d_v = size(6);
  x.score = *rc::gen::element(Score::softmax, Score::sigmoid, Score::identity);
  if (*rc::gen::arbitrary<bool>()) x.mask = {true, *rc::gen::inRange(-9, 10), size(3)};
  RC_LOG() << "n_q " << x.n_q << " n_k " << x.n_k << " d " << x.d << " d_v " << x.d_v << ' ' << name_of(x.score)
           << " causal " << x.mask.causal << " offset " << x.mask.offset << " group " << x.mask.group << '\n';
  return x;
}

template <class S>
bool solves(const Sizes& x) {
  if constexpr (requires { S::only_score; })
    if (x.score != S::only_score) return false;
  return !x.mask.causal || S::masks;
}

template <class... S>
void check_some_of(const Sizes& x, const Limits& limits) {
  std::size_t i = 0, third = static_cast<std::size_t>(*rc::gen::inRange(0, 3));  // some of them: cases are many
  ((i++ % 3 == third && solves<S>(x) ? Exhaustive<S>(x, limits).check() : void()), ...);
}
void check_all_schedules(const Sizes& x, const Limits& limits) {
  check_some_of<FusedKeyOuterBackward, FusedQueryOuterBackward, TwoPassBackward, SpilledBackward, FusedValueBackward,
                MaterialisedBackward, GroupedKeyOuterBackward, QueryOuterGradient<RowsGo::into_resident_g>,
                QueryOuterGradient<RowsGo::into_slow_g>, QueryOuterGradient<RowsGo::out>, OnTheFlyGradient,
                KeyOuterGradient<Values::stored>, KeyOuterGradient<Values::formed>, SmallCacheGradient,
                SharedSourceGradient, SharedSourceForward, SharedKeyOuterGradient, LinearForward, LinearBackward,
                LinearTwoStateBackward, LinearProductsForward, LinearProductsBackward>(x, limits);
}

RC_GTEST_PROP(ChooseBackwardTiling, IsNeverWorseThanAnyOther, ()) { check_all_schedules(any_shape(), Limits{}); }

RC_GTEST_PROP(ChooseBackwardTiling, IsNeverWorseThanAnyOtherWithMultiplesAndPrices, ()) {
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

RC_GTEST_PROP(ChooseBackwardTiling, IsNeverWorseThanAnyOtherWithSecondBuffers, ()) {
  Limits limits;
  limits.double_buffer = true;
  limits.multiple = {*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 4), *rc::gen::inRange(1, 4)};
  RC_LOG() << "multiples " << limits.multiple.query << ' ' << limits.multiple.key << ' ' << limits.multiple.feature
           << '\n';
  check_all_schedules(any_shape(), limits);
}

}  // namespace
}  // namespace redblue::test
