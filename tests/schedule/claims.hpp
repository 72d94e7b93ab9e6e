#pragma once
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <sstream>

#include "any_order.hpp"
#include "cases.hpp"
#include "instance.hpp"
#include "redblue/bound/bound.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/trace.hpp"
#include "sabotage.hpp"

/// What is claimed of every schedule of every operation. Each list of schedules has a file that instantiates these.
namespace redblue::test {

/// Many small cases, where RC_PARAMS does not say otherwise. A failure prints the RC_PARAMS that repeats it.
inline const bool kEnoughCases = setenv("RC_PARAMS", "max_success=500", 0) == 0;

template <class List>
class Schedules : public testing::Test {};
TYPED_TEST_SUITE_P(Schedules);

template <class Tiling>
std::string text_of(const Tiling& t) {
  std::string text;
  for (const schedule::Knob& k : t.knobs()) text += ' ' + std::string(k.name) + ' ' + std::to_string(k.value);
  return text;
}

/// claim(choice) for every schedule of the list, on random cases.
template <class List, class Claim>
void check_on_random_cases(const Claim& claim) {
  rc::detail::checkGTest([&] {
    const Case c = any_case_of_any_operation();
    RC_LOG() << c;
    for_each_schedule<List>(c, [&]<class S>(plan::Choice<S> choice) {
      RC_LOG() << '\n' << S::name << text_of(choice.tiling);
      claim(c, choice);
    });
  });
}

/// A schedule behind the virtual interface: compiled once, run on any machine.
template <class S, class M>
void run_behind_any(M& m, const typename S::Operands& x, const typename S::Tiling& t) {
  machine::Any any(m);
  S::run(any, x, t);
}

template <class T, class S>
Instance<T, typename S::Operands> ran(const Case& c, const plan::Choice<S>& choice,
                                      const kernel::Bodies<T>& bodies = kernel::bodies<T>(best_isa())) {
  Instance<T, typename S::Operands> a(c.shape, sources_of<S>());
  machine::Ram<T> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow(), bodies);
  if constexpr (std::same_as<T, double>)
    S::run(ram, a.x, choice.tiling);
  else
    run_behind_any<S>(ram, a.x, choice.tiling);
  return a;
}

TYPED_TEST_P(Schedules, IoMatchesFormula) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    machine::Counting m;
    S::run(m, typename S::Operands(c.shape, 1), choice.tiling);
    const Io io = S::io(c.shape, choice.tiling), counted = m.io();
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      RC_LOG() << "\n" << kSlowArrayNames[a];
      RC_ASSERT(counted.reads[a].to_index() == io.reads[a].to_index());
      RC_ASSERT(counted.writes[a].to_index() == io.writes[a].to_index());
    }
    RC_ASSERT(m.peak() == S::footprint(c.shape, choice.tiling).to_index());
    RC_ASSERT(m.macs() == S::macs(c.shape, choice.tiling).to_index());
    RC_ASSERT(m.resident() == 0);
  });
}

TYPED_TEST_P(Schedules, FootprintIsExact) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    Instance<double, typename S::Operands> a(c.shape, sources_of<S>());
    const index_t F = S::footprint(c.shape, choice.tiling).to_index();
    machine::Ram<double> enough(F, a.slow()), short_by_one(F - 1, a.slow());
    S::run(enough, a.x, choice.tiling);
    RC_ASSERT_THROWS_AS(S::run(short_by_one, a.x, choice.tiling), CapacityError);
  });
}

TYPED_TEST_P(Schedules, ChosenTilingsFitWithTheirSecondBuffers) {
  rc::detail::checkGTest([] {
    const Case c = any_case_of_any_operation();
    RC_LOG() << c;
    TypeParam::for_each([&]<class S>(plan::Choice<S>) {
      if constexpr (!requires { S::printed; }) {
        if (!can_solve<S>(c.shape)) return;
        if (kSplitsColumns<S> && c.shape.d_v <= c.limits.multiple.feature) return;  // nothing to split
        RC_LOG() << S::name;
        const auto t = S::choose_tiling(c.shape, c.limits);
        if (t) RC_ASSERT(c.limits.fit(S::footprint(c.shape, *t), S::prefetch(c.shape, *t)));
        const auto smallest = S::smallest(c.shape, c.limits.multiple);
        if (c.limits.fit(S::footprint(c.shape, smallest), S::prefetch(c.shape, smallest))) RC_ASSERT(t.has_value());
      }
    });
  });
}

/// Tests of plan/ try every tiling there is of the schedules without products around them.
TYPED_TEST_P(Schedules, NoOtherTilingIsCheaperThanTheChosenOne) {
  rc::detail::checkGTest([] {
    Case c = any_case_of_any_operation();
    c.limits.multiple = {};
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      c.limits.price.read[a] = *rc::gen::element(1, 2, 4, 100);
      c.limits.price.write[a] = *rc::gen::element(0, 1, 3, 500);
    }
    RC_LOG() << c;
    TypeParam::for_each([&]<class S>(plan::Choice<S>) {
      if (!S::stable || !can_solve<S>(c.shape)) return;
      if (kSplitsColumns<S>) return;  // the tilings of a case may hold all columns, which is flash
      for (std::size_t turn = 0; turn < c.sizes.size(); ++turn) {
        std::rotate(c.sizes.begin(), c.sizes.begin() + 1, c.sizes.end());
        auto other = tiling_of<S>(c);
        if constexpr (requires { other.G; }) other.G = S::smallest(c.shape, {}).G;  // more are for many workers
        const auto occupied = [&](const auto& t) {
          return c.limits.occupied(S::footprint(c.shape, t), S::prefetch(c.shape, t));
        };
        c.limits.M = occupied(other);
        const auto chosen = S::choose_tiling(c.shape, c.limits);
        const auto at = [&](const std::string& what) {
          return std::string(S::name) + " at M = " + c.limits.M.str() + ": " + what;
        };
        if (!chosen) RC_FAIL(at("no tiling"));
        if (occupied(*chosen) > c.limits.M) RC_FAIL(at("does not fit:" + text_of(*chosen)));
        const Words cost = c.limits.price.of(S::io(c.shape, *chosen)), less = c.limits.price.of(S::io(c.shape, other));
        if (less < cost) RC_FAIL(at(cost.str() + text_of(*chosen) + ", but " + less.str() + text_of(other)));
      }
    });
  });
}

TYPED_TEST_P(Schedules, KeepTheRulesOfTheGame) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const typename S::Operands x(c.shape, 1);
    machine::Null null;
    machine::Referee referee = referee_for<S>(x, choice.tiling, S::footprint(c.shape, choice.tiling));
    machine::Checked<machine::Null> checked(null, referee);
    run_behind_any<S>(checked, x, choice.tiling);
    referee.finish();
  });
}

TYPED_TEST_P(Schedules, EqualTheDenseReference) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const auto check = [&](const auto& a, double tolerance) {
      const auto wanted = a.wanted();
      for (const SlowArray output : S::Operands::outputs) {
        const DenseMatrix<long double>& w = wanted.at(output);
        const double gap = largest_gap(a.words.at(output), w.words), allowed = tolerance * (1 + largest_entry(w));
        RC_LOG() << name_of(output) << " errs by " << gap << '\n';
        RC_ASSERT(gap <= allowed);
      }
    };
    check(ran<double>(c, choice), 1e-11);
    check(ran<float>(c, choice), 1e-3);
  });
}

TYPED_TEST_P(Schedules, RunAlikeBehindAny) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const auto direct = ran<double>(c, choice);
    Instance<double, typename S::Operands> a(c.shape, sources_of<S>());
    machine::Ram<double> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow());
    machine::Counted counted(ram);
    run_behind_any<S>(counted, a.x, choice.tiling);
    RC_ASSERT(a.same_bits(direct));
    RC_ASSERT(counted.io() == S::io(c.shape, choice.tiling));
    RC_ASSERT(counted.peak() == S::footprint(c.shape, choice.tiling).to_index());
    RC_ASSERT(counted.macs() == S::macs(c.shape, choice.tiling).to_index());
  });
}

// With the portable kernels: a trace holds the parts of composites, which fused bodies round in other places.
TYPED_TEST_P(Schedules, TracesReplayFromTextToTheSameBits) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const auto& portable = kernel::bodies<double>(Isa::portable);
    const auto direct = ran<double>(c, choice, portable);
    machine::Trace trace;
    machine::Null null;
    machine::Traced<machine::Null> traced(null, trace);
    run_behind_any<S>(traced, direct.x, choice.tiling);
    std::stringstream text;
    write_text(text, trace);

    Instance<double, typename S::Operands> a(c.shape, sources_of<S>());
    machine::Ram<double> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow(), portable);
    machine::Counted counted(ram);
    machine::replay(machine::read_text(text), counted);
    RC_ASSERT(a.same_bits(direct));
    RC_ASSERT(counted.io() == S::io(c.shape, choice.tiling));
  });
}

TYPED_TEST_P(Schedules, GiveTheSameBitsInAnyOrderOfEach) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const auto direct = ran<double>(c, choice);
    for (const Order order : {Order::reverse, Order::shuffled}) {
      Instance<double, typename S::Operands> a(c.shape, sources_of<S>());
      machine::Ram<double> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow());
      machine::Counted counted(ram);
      Reordered reordered(counted, order);
      run_behind_any<S>(reordered, a.x, choice.tiling);
      RC_ASSERT(a.same_bits(direct));
      RC_ASSERT(counted.io() == S::io(c.shape, choice.tiling));
      RC_ASSERT(counted.peak() == S::footprint(c.shape, choice.tiling).to_index());
    }
  });
}

/// Does a bound for some of the schedules bind S?
template <class S>
bool binds(const bound::Bound& b, const Sizes& x) {
  if (!b.holds) return false;
  if (b.status != "restricted") return true;  // proved, or derived and never refuted so far
  if (b.name == "shared") return std::same_as<S, schedule::SharedSourceForward>;
  using enum schedule::RowsGo;
  using namespace schedule;
  if (std::same_as<S, OnTheFlyGradient>) return x.d_v <= x.d;
  return std::same_as<S, SmallCacheGradient> || std::same_as<S, QueryOuterGradient<into_resident_g>> ||
         std::same_as<S, QueryOuterGradient<into_slow_g>> || std::same_as<S, QueryOuterGradient<out>>;
}

TYPED_TEST_P(Schedules, NeverMoveLessThanTheBounds) {
  check_on_random_cases<TypeParam>([]<class S>(const Case& c, const plan::Choice<S>& choice) {
    const Sizes& s = c.shape;
    for (const Sources sources : {Sources::distinct, Sources::shared, Sources::self}) {
      if (sources == Sources::distinct && shares_source<S>()) continue;
      if (sources == Sources::self && s.n_q != s.n_k) continue;
      const bound::AttentionProblem x{s, 1, S::footprint(s, choice.tiling), sources};
      for (const bound::Bound& b : bound::bounds_of(operation_of<typename S::Operands>(), x)) {
        RC_LOG() << b.name;
        if (binds<S>(b, s)) RC_ASSERT(b.words <= S::io(s, choice.tiling).total());
      }
    }
  });
}

/// Every load, store and update of every schedule, left out or done twice.
template <class List>
void expect_no_slip_passes(const Case& c) {
  using enum Slip;
  for_each_schedule<List>(c, [&]<class S>(plan::Choice<S> choice) {
    const Io io = S::io(c.shape, choice.tiling);
    const typename S::Operands x(c.shape, 1);
    std::array<index_t, 3> seen{};
    const auto passes = [&](Slip slip, index_t target) {
      machine::Null null;
      machine::Counted<machine::Null> counted(null);
      machine::Referee referee = referee_for<S>(x, choice.tiling, S::footprint(c.shape, choice.tiling));
      machine::Checked<machine::Counted<machine::Null>> checked(counted, referee);
      Sabotaged sabotaged(checked, slip, target);
      try {
        run_behind_any<S>(sabotaged, x, choice.tiling);
        referee.finish();
      } catch (const RuleError&) {
        return false;
      }
      if (slip == none) seen = {sabotaged.loads(), sabotaged.stores(), sabotaged.updates()};
      return counted.io() == io && counted.peak() == S::footprint(c.shape, choice.tiling);
    };
    ASSERT_TRUE(passes(none, 0)) << S::name;
    const auto [loads, stores, updates] = seen;
    EXPECT_GT(loads + stores + updates, 0) << S::name;
    for (index_t k = 0; k < loads; ++k)
      for (const Slip slip : {skips_a_load, loads_twice}) EXPECT_FALSE(passes(slip, k)) << S::name << ": load " << k;
    for (index_t k = 0; k < stores; ++k)
      for (const Slip slip : {skips_a_store, stores_twice}) EXPECT_FALSE(passes(slip, k)) << S::name << ": store " << k;
    for (index_t k = 0; k < updates; ++k)
      for (const Slip slip : {skips_an_update, updates_twice})
        EXPECT_FALSE(passes(slip, k)) << S::name << ": update " << k;
  });
}

TYPED_TEST_P(Schedules, NoLoadStoreOrUpdateCanBeSkippedOrRepeated) {
  for (const Score score : {Score::softmax, Score::identity})
    for (const Mask mask : {Mask{}, Mask{true, -1, 1}}) {
      expect_no_slip_passes<TypeParam>({{4, 5, 3, 2, mask, score == Score::softmax, score, 2}, {2, 3, 2}});
      expect_no_slip_passes<TypeParam>({{5, 5, 3, 3, mask, score == Score::softmax, score, 2}, {2, 3, 1, 2}});
    }
}

/// Inputs that break careless softmaxes. The rule: twice the error of plain arithmetic in the same precision, and a few
/// roundings of what is summed; a score may be off by as many roundings as it is large.
template <class List, class T, class Change>
void expect_accurate(const Sizes& shape, const Change& change) {
  constexpr double eps = std::numeric_limits<T>::epsilon() / 2;
  const Case c{shape, {3, 2, 2, 3}};
  for_each_schedule<List>(c, [&]<class S>(plan::Choice<S> choice) {
    if (!S::stable) return;
    using Operands = typename S::Operands;
    Instance<T, Operands> a(shape, sources_of<S>(), change, 7);
    machine::Ram<T> ram(S::footprint(shape, choice.tiling).to_index(), a.slow());
    run_behind_any<S>(ram, a.x, choice.tiling);
    const auto p = a.template dense<long double>();
    const auto wanted = a.wanted();
    const auto naive = a.naive();
    auto sizes = follows_forward(p.op) ? gradient_sizes(p) : wanted;
    if (!follows_forward(p.op))
      for (long double& v : sizes.at(SlowArray::O).words) v = 1 + std::abs(v);
    const double score = 1 + static_cast<double>(score_size(p));
    for (const SlowArray output : Operands::outputs) {
      const auto& w = wanted.at(output);
      const double error = largest_gap(a.words.at(output), w.words),
                   plain = largest_gap(naive.at(output).words, w.words);
      EXPECT_LE(error, 2 * plain + 8 * eps * score * (1e-300 + largest_entry(sizes.at(output))))
          << S::name << ": " << name_of(output) << ", plain arithmetic errs by " << plain;
    }
  });
}

/// f(words of queries, words of keys, columns of keys) changes what scores are made of.
template <class Change>
auto changing_scores(const Change& f) {
  return [f](auto& a) {
    const bool plain = a.words.contains(SlowArray::A1) == false;
    const SlowArray keys = plain ? SlowArray::K : SlowArray::A2;
    f(a.words[plain ? SlowArray::Q : SlowArray::A1], a.words[keys], schedule::matrix_of(a.x, keys).shape.cols);
  };
}

inline Sizes numbers_shape(index_t n_q, index_t n_k, Mask mask = {}) {
  return {n_q, n_k, 4, 3, mask, true, Score::softmax, 5};
}

TYPED_TEST_P(Schedules, AreAccurateAtLogitsOfTenThousand) {
  expect_accurate<TypeParam, double>(numbers_shape(11, 13), changing_scores([](auto& q, auto& k, index_t) {
                                       for (auto& v : q) v *= 70;
                                       for (auto& v : k) v *= 70;
                                     }));
}

TYPED_TEST_P(Schedules, AreAccurateInSinglePrecision) {
  expect_accurate<TypeParam, float>(numbers_shape(11, 13), changing_scores([](auto&, auto&, index_t) {}));
  expect_accurate<TypeParam, float>(numbers_shape(11, 13), changing_scores([](auto& q, auto& k, index_t) {
                                      for (auto& v : q) v *= 5;
                                      for (auto& v : k) v *= 5;
                                    }));
}

TYPED_TEST_P(Schedules, AreAccurateWhereAllScoresAreEqual) {
  expect_accurate<TypeParam, double>(
      numbers_shape(7, 9), changing_scores([](auto&, auto& k, index_t) { std::fill(k.begin(), k.end(), 0.25); }));
}

TYPED_TEST_P(Schedules, AreAccurateWhereOneKeyDominates) {
  expect_accurate<TypeParam, double>(numbers_shape(7, 9), changing_scores([](auto&, auto& k, index_t cols) {
                                       for (index_t t = 0; t < cols; ++t)
                                         k[static_cast<std::size_t>(5 * cols + t)] *= 200;
                                     }));
}

TYPED_TEST_P(Schedules, AreAccurateWhereThereIsOneQueryOrOneKey) {
  for (const auto& [n_q, n_k] : {std::pair<index_t, index_t>{1, 1}, {1, 6}, {6, 1}}) {
    expect_accurate<TypeParam, double>(numbers_shape(n_q, n_k), [](auto&) {});
    expect_accurate<TypeParam, float>(numbers_shape(n_q, n_k), [](auto&) {});
  }
}

/// Outputs of rows and keys without any pair are exactly zero, whatever the score function: dQ (U) of the first three
/// queries, dK and dV of keys that no query sees.
TYPED_TEST_P(Schedules, GiveZeroWhereNothingIsSeen) {
  const index_t n_q = 6, n_k = 6;
  for (const Score score : {Score::softmax, Score::sigmoid, Score::relu, Score::identity}) {
    Case c{{n_q, n_k, 3, 2, {true, -3, 1}, score == Score::softmax, score, 4}, {2, 2, 1, 1}};
    for_each_schedule<TypeParam>(c, [&]<class S>(plan::Choice<S> choice) {
      using enum SlowArray;
      const auto a = ran<double>(c, choice);
      const auto expect_zero = [&](SlowArray array, index_t first, index_t count) {
        const DenseMatrix<double> m = a.template matrix<double>(array);
        for (index_t r = first; r < first + count; ++r)
          for (index_t t = 0; t < m.cols; ++t)
            ASSERT_EQ(m(r, t), 0) << S::name << ' ' << name_of(score) << ' ' << name_of(array) << " row " << r;
      };
      for (const SlowArray output : S::Operands::outputs) {
        if (output == O || output == dQ || output == dA1) expect_zero(output, 0, 3);
        if (output == dK || output == dV || output == dA2 || output == dA3) expect_zero(output, 3, 3);
        if (output == lse && score == Score::softmax) {
          for (std::size_t r = 0; r < 3; ++r)
            EXPECT_EQ(a.words.at(lse)[r], -std::numeric_limits<double>::infinity()) << S::name;
        }
      }
    });
    // Nobody sees anything.
    Case none{{n_q, n_k, 3, 2, {true, -9, 1}, score == Score::softmax, score, 4}, {2, 2, 1, 1}};
    for_each_schedule<TypeParam>(none, [&]<class S>(plan::Choice<S> choice) {
      const auto a = ran<double>(none, choice);
      for (const SlowArray output : S::Operands::outputs)
        if (output != SlowArray::lse) {
          for (const double v : a.words.at(output)) EXPECT_EQ(v, 0) << S::name << ' ' << name_of(output);
        }
    });
  }
}

REGISTER_TYPED_TEST_SUITE_P(Schedules, IoMatchesFormula, FootprintIsExact, ChosenTilingsFitWithTheirSecondBuffers,
                            NoOtherTilingIsCheaperThanTheChosenOne, KeepTheRulesOfTheGame, EqualTheDenseReference,
                            RunAlikeBehindAny, TracesReplayFromTextToTheSameBits, GiveTheSameBitsInAnyOrderOfEach,
                            NeverMoveLessThanTheBounds, NoLoadStoreOrUpdateCanBeSkippedOrRepeated,
                            AreAccurateAtLogitsOfTenThousand, AreAccurateInSinglePrecision,
                            AreAccurateWhereAllScoresAreEqual, AreAccurateWhereOneKeyDominates,
                            AreAccurateWhereThereIsOneQueryOrOneKey, GiveZeroWhereNothingIsSeen);

}  // namespace redblue::test
