#include "redblue/bound/forward.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <sstream>

#include "cases.hpp"
#include "data.hpp"
#include "redblue/machine/any.hpp"
#include "redblue/machine/checked.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/trace.hpp"
#include "redblue/schedule/parts/workspace.hpp"

namespace redblue::test {

using machine::Any;
using machine::Checked;
using machine::Counting;
using machine::Null;
using machine::Ram;
using machine::Referee;
using machine::Trace;
using machine::Traced;
using plan::Choice;

namespace {

template <class S>
bool writes_lse(const Sizes& x) {
  return !std::same_as<S, schedule::NaiveForward> || x.lse_required;
}

/// A referee that knows the arrays of S with this tiling.
template <class S>
Referee referee_for(const schedule::ForwardOperands& x, const Choice<S>& choice) {
  Referee r(S::footprint(x.shape, choice.tiling));
  r.input(x.Q);
  r.input(x.K);
  r.input(x.V);
  r.output(x.O);
  if (writes_lse<S>(x.shape)) r.output(x.lse);
  for (const SlowMatrix& m : schedule::workspace_of<S>(x, choice.tiling)) r.workspace(m);
  return r;
}

template <class T, class S>
Arrays<T> ran(const Case& c, Choice<S> choice, const kernel::Bodies<T>& bodies = kernel::bodies<T>(best_isa())) {
  Arrays<T> a(c.shape);
  Ram<T> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow(), bodies);
  S::run(ram, a.operands(), choice.tiling);
  return a;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

RC_GTEST_PROP(ForwardSchedules, IoMatchesFormula, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    Counting m;
    S::run(m, schedule::ForwardOperands(c.shape, 1), choice.tiling);
    RC_LOG() << S::name;
    const Io io = S::io(c.shape, choice.tiling);
    for (std::size_t a = 0; a < kSlowArrays; ++a) {
      RC_ASSERT(m.io().reads[a].to_index() == io.reads[a].to_index());
      RC_ASSERT(m.io().writes[a].to_index() == io.writes[a].to_index());
    }
    RC_ASSERT(m.peak() == S::footprint(c.shape, choice.tiling).to_index());
    RC_ASSERT(m.macs() == S::macs(c.shape, choice.tiling).to_index());
    RC_ASSERT(m.resident() == 0);
  });
}

RC_GTEST_PROP(ForwardSchedules, FootprintIsExact, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    Arrays<double> a(c.shape);
    const index_t F = S::footprint(c.shape, choice.tiling).to_index();
    Ram<double> enough(F, a.slow()), short_by_one(F - 1, a.slow());
    S::run(enough, a.operands(), choice.tiling);
    RC_ASSERT_THROWS_AS(S::run(short_by_one, a.operands(), choice.tiling), CapacityError);
  });
}

RC_GTEST_PROP(ForwardSchedules, KeepTheRulesOfTheGame, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  const schedule::ForwardOperands x(c.shape, 1);
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    Null null;
    Referee referee = referee_for(x, choice);
    Checked<Null> checked(null, referee);
    S::run(checked, x, choice.tiling);
    referee.finish();
  });
}

RC_GTEST_PROP(ForwardSchedules, EqualDenseAttention, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  const Dense wanted = dense(Arrays<double>(c.shape));
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    const auto a = ran<double>(c, choice);
    RC_ASSERT(distance(a.O, wanted.O) < 1e-12);
    if (writes_lse<S>(c.shape)) RC_ASSERT(distance(a.lse, wanted.lse) < 1e-12);
    const auto f = ran<float>(c, choice);
    const Dense wanted_f = dense(f);
    RC_ASSERT(distance(f.O, wanted_f.O) < 4e-5);
    if (writes_lse<S>(c.shape)) RC_ASSERT(distance(f.lse, wanted_f.lse) < 4e-5);
  });
}

RC_GTEST_PROP(ForwardSchedules, RunAlikeBehindAny, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    const auto direct = ran<double>(c, choice);
    Arrays<double> a(c.shape);
    Ram<double> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow());
    machine::Counted counted(ram);
    Any any(counted);
    S::run(any, a.operands(), choice.tiling);
    RC_ASSERT(same_bits(a.O, direct.O));
    RC_ASSERT(same_bits(a.lse, direct.lse));
    RC_ASSERT(counted.io() == S::io(c.shape, choice.tiling));
    RC_ASSERT(counted.peak() == S::footprint(c.shape, choice.tiling).to_index());
    RC_ASSERT(counted.macs() == S::macs(c.shape, choice.tiling).to_index());
  });
}

/// A trace holds the parts of composites where the RAM machine ran them as one body: replayed, the parts must give the
/// same bits.
// With the portable kernels: a trace holds the parts of composites, which fused bodies round in other places.
RC_GTEST_PROP(ForwardSchedules, TracesReplayFromTextToTheSameBits, ()) {
  const auto& portable = kernel::bodies<double>(Isa::portable);
  const Case c = any_case();
  RC_LOG() << c;
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    const auto direct = ran<double>(c, choice, portable);
    Trace trace;
    Null null;
    Traced<Null> traced(null, trace);
    Any any(traced);
    S::run(any, direct.operands(), choice.tiling);
    std::stringstream text;
    write_text(text, trace);
    const Trace read = machine::read_text(text);

    Arrays<double> a(c.shape);
    Ram<double> ram(S::footprint(c.shape, choice.tiling).to_index(), a.slow(), portable);
    machine::Counted counted(ram);
    machine::replay(read, counted);
    RC_ASSERT(same_bits(a.O, direct.O));
    RC_ASSERT(same_bits(a.lse, direct.lse));
    RC_ASSERT(counted.io() == S::io(c.shape, choice.tiling));
  });
}

RC_GTEST_PROP(ForwardSchedules, NeverMoveLessThanTheBound, ()) {
  const Case c = any_case();
  RC_LOG() << c;
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    RC_LOG() << S::name;
    const Words M = S::footprint(c.shape, choice.tiling);
    const bound::AttentionProblem x{c.shape, 1, M};
    for (const bound::Bound& b : bound::forward_bounds(x)) {
      RC_LOG() << b.name;
      RC_ASSERT(b.words <= S::io(c.shape, choice.tiling).total());
    }
  });
}

namespace {

/// Inputs that break unstable softmaxes, against the definition in fp64. Tolerances are relative to the largest entry.
void expect_stable(const Sizes& x, double spread, double tolerance, void (*change)(Arrays<double>&)) {
  Case c{x, {3, 2, 2, 3}};
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    if (!S::stable) return;
    Arrays<double> a(x, 7, spread);
    change(a);
    const Dense wanted = dense(a);
    Ram<double> ram(S::footprint(x, choice.tiling).to_index(), a.slow());
    S::run(ram, a.operands(), choice.tiling);
    double largest = 0;
    for (double v : wanted.lse) largest = std::max(largest, std::isfinite(v) ? std::abs(v) : 0);
    EXPECT_LT(distance(a.O, wanted.O), tolerance * 10) << S::name;
    if (writes_lse<S>(x)) {
      EXPECT_LT(distance(a.lse, wanted.lse), tolerance * (1 + largest)) << S::name;
    }
  });
}

Sizes shape(index_t n_q, index_t n_k, index_t d, index_t d_v, Mask mask = {}) { return {n_q, n_k, d, d_v, mask, true}; }

}  // namespace

TEST(ForwardNumbers, LogitsOfTenThousand) {
  expect_stable(shape(11, 13, 4, 3), 70, 1e-12, [](Arrays<double>&) {});
}

TEST(ForwardNumbers, AllScoresEqual) {
  expect_stable(shape(7, 9, 4, 3), 1, 1e-14, [](Arrays<double>& a) { std::fill(a.K.begin(), a.K.end(), 0.25); });
}

TEST(ForwardNumbers, OneDominantKey) {
  expect_stable(shape(7, 9, 4, 3), 1, 1e-13, [](Arrays<double>& a) {
    for (std::size_t t = 0; t < 4; ++t) a.K[5 * 4 + t] *= 200;
  });
}

TEST(ForwardNumbers, RowsThatSeeNothingGiveZeroAndMinusInfinity) {
  const auto x = shape(6, 4, 3, 2, {true, -3, 1});
  Case c{x, {2, 2, 1, 1}};
  for_each_schedule(c, [&]<class S>(Choice<S> choice) {
    const auto a = ran<double>(c, choice);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(a.lse[r], -std::numeric_limits<double>::infinity()) << S::name;
      EXPECT_EQ(a.O[2 * r], 0) << S::name;
      EXPECT_EQ(a.O[2 * r + 1], 0) << S::name;
    }
  });
}

}  // namespace redblue::test
