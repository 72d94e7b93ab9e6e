#include <gtest/gtest.h>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/backward/two_pass.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/second/fused_key_outer.hpp"
#include "redblue/schedules/second/grouped_key_outer.hpp"
#include "redblue/schedules/second/materialised.hpp"
#include "redblue/schedules/second/tangent.hpp"
#include "redblue/schedules/second/tangent_small_cache.hpp"
#include "redblue/schedules/second/three_sweeps.hpp"
#include "redblue/verify/arrays.hpp"
#include "schedules/mutants/slips.hpp"

namespace redblue::test {

using namespace mutants;
using namespace schedule;

namespace {

Sizes with_mask() { return {7, 9, 3, 2, Mask{.hi = 3}, false}; }
Sizes without_mask() { return {7, 9, 3, 2, {}, false}; }
Sizes with_lse_gradient() {
  Sizes x = with_mask();
  x.lse_gradient = true;
  return x;
}

Sizes with_moving_bias() {
  Sizes x = with_mask();
  x.modifiers.bias = Modifiers::Bias::of_pairs;
  x.modifiers.bias_moves = true;
  return x;
}

Sizes with_moving_sinks() {
  Sizes x = with_mask();
  x.n_q = 8;
  x.mask.group = 2;
  x.modifiers.sinks = x.modifiers.sinks_move = true;
  return x;
}

/// Slips that change no count, on an instance with numbers: `slips_in(the right run)`. Run: S, or Masked<S>.
template <class S, class Run = S, class SlipsIn>
void expect_caught_by_numbers(Sizes x, const typename S::Tiling& tiles, const SlipsIn& slips_in) {
  const typename Run::Tiling t(tiles);
  x.modifiers.softcap = 1.5;
  if (S::unsupported(x)) x.modifiers.softcap = 0;
  x.modifiers.dropout = 0.25;
  claims::Arrays<double> a(describe<S>(), x, tile_sizes_of(tiles));
  Trace right;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, right);
  Run::run(traced, typename S::Operands(x, *a.problem.scale), t);
  std::vector<Mutant> list = slips_in(right);
  list.push_back({"none", right});
  const auto wanted = a.wanted();
  for (const auto& [slip, run] : list) {
    EXPECT_EQ(verdict_of<Run>(x, t, run), "") << slip;
    machine::Ram<double> ram(Run::footprint(x, t).to_index(), a.slow());
    machine::detail::play(run, ram);
    double gap = 0;
    for (const SlowArray output : S::Operands::outputs)
      gap = std::max(gap, claims::largest_gap(a.words.at(output), wanted.at(output).words));
    if (slip == "none")
      EXPECT_LT(gap, 1e-12);
    else
      EXPECT_GT(gap, 1e-3) << slip;
  }
}

}  // namespace

TEST(SecondMutants, OfTheGradientOfLseAreCaught) {
  using S = TwoPassBackward;
  const S::Tiling t{{3, 1}, {2, 2}};
  const Sizes x = with_lse_gradient();
  const Trace right = recorded<S>(x, t);
  const Is subtract = computes<kernel::Subtract>();
  expect_caught<S>(x, t,
                   {{"forgets dlse", without(right, all(subtract))},
                    {"takes it off twice", twice(right, all(subtract))},
                    {"takes off lse", mixed_up(right, subtract, dlse, lse)},
                    {"forms D after dlse is off", without(right, first(computes<kernel::RowDots>()))}});
}

TEST(SecondMutants, OfTangentsAreCaught) {
  using S = TangentQueryOuter;
  const S::Tiling t{3, 2};
  const Sizes x = with_mask();
  const Trace right = recorded<S>(x, t);
  const Is step = computes<kernel::Scores>(), values = computes<kernel::Gemm>(tO);
  expect_caught<S>(x, t,
                   {{"forgets O", without(right, all(computes<kernel::SubtractScaledRows>()))},
                    {"forgets the tangents of values", without(right, all(values && touches(tV)))},
                    {"takes values for their tangents", mixed_up(right, values, tV, V)},
                    {"takes keys for their tangents", mixed_up(right, computes<kernel::Gemm>(P), tK, K)},
                    {"loads keys for every product", again(right, loads(K), computes<kernel::Gemm>(P))},
                    {"loads lse for every key", again(right, loads(lse), step)},
                    {"skips the initialisation of tO", without(right, all(computes<kernel::Zero>(tO)))},
                    {"keeps scores of all keys", with_room(right, step, 2 * t.Br * (x.n_k - t.bc))},
                    {"visits invisible keys", recorded<S>(without_mask(), t)},
                    {"stores tO for every key", early(right, stores(tO), values)},
                    {"forgets the last tlse", without(right, last(stores(tlse)))}});
}

TEST(SecondMutants, OfThreeSweepsAreCaught) {
  using S = SecondThreeSweeps;
  const S::Tiling t{{3, 2}, 2, 2, {3, 2}};
  const Sizes x = with_lse_gradient();
  const Trace right = recorded<S>(x, t);
  const Is gradient = computes<kernel::SecondGradient>();
  expect_caught<S>(x, t,
                   {{"forms LQ before its statistics", phases_first(right, stores(LQ))},
                    {"forms LK and LV first", phases_first(right, stores(LK))},
                    {"forgets LK and LV", without_phases(right, stores(LK))},
                    {"forgets dlse", without(right, all(computes<kernel::Subtract>()))},
                    {"adds G K alone", without(right, all(computes<kernel::Gemm>(LQ) && Is([](const Operation& op) {
                                                            return op.args[2].block.array == gK;
                                                          })))},
                    {"multiplies O by no w", without(right, all(computes<kernel::RowDotsAndRest>()))},
                    {"forgets the change of values", without(right, all(computes<kernel::Gemm>(LV)))},
                    {"takes V for gV", mixed_up(right, computes<kernel::Gemm>(LdO), gV, V)},
                    {"reloads keys for their directions", again(right, loads(K), computes<kernel::Gemm>(LQ))},
                    {"skips the initialisation of LK", without(right, all(computes<kernel::Zero>(LK)))},
                    {"keeps a tile too many", with_room(right, gradient, t.keys.br * t.keys.Bc)},
                    {"forgets Ldlse", without(right, all(stores(Ldlse)))},
                    {"stores LQ for every key", early(right, stores(LQ), gradient)},
                    {"forgets the last LdO", without(right, last(stores(LdO)))}});
}

TEST(SecondMutants, OfFusedKeyOuterAreCaught) {
  using S = SecondFusedKeyOuter;
  const S::Tiling t{{3, 2}, {3, 2}};
  const Sizes x = with_mask();
  const Trace right = recorded<S>(x, t);
  const Is of_LQ = computes<kernel::Gemm>(LQ);
  expect_caught<S>(x, t,
                   {{"reads LQ before it is written", without(right, all(computes<kernel::Zero>(LQ)))},
                    {"forgets what LQ was", without(right, all(loads(LQ)))},
                    {"stores LQ for each product", early(right, stores(LQ), of_LQ)},
                    {"loads LQ for each product", again(right, loads(LQ), of_LQ)},
                    {"forgets the last LQ", without(right, last(stores(LQ)))},
                    {"visits queries that see nothing", recorded<S>(without_mask(), t)},
                    {"keeps LQ of other queries", with_room(right, of_LQ, t.keys.br * x.d)}});
}

TEST(SecondMutants, OfGroupedKeyOuterAreCaught) {
  using S = SecondGroupedKeyOuter;
  const S::Tiling t{{3, 2}, {{2, 3}, 3}};
  const Sizes x = with_mask();
  const Trace right = recorded<S>(x, t);
  const Is add = computes<kernel::Add>(), of_copies = loads(LQg);
  const auto to_one_LQ = [&](Operation& op) {
    op.args[0].block.array = LQ;
    op.args[0].block.row %= x.n_q;
  };
  expect_caught<S>(x, t,
                   {{"lets all groups store one LQ", changed(right, all(stores(LQg)), to_one_LQ)},
                    {"forgets what copies were", without(right, all(of_copies))},
                    {"forgets the last copy", without(right, last(add))},
                    {"adds a copy twice", twice(right, last(add))},
                    {"sums copies first", phases_first(right, add)},
                    {"keeps LQ of other queries", with_room(right, computes<kernel::Gemm>(LQ), t.keys.br * x.d)}});
}

TEST(SecondMutants, OfABiasThatMovesAreCaught) {
  using S = TangentQueryOuter;
  const S::Tiling t{3, 2};
  const Sizes x = with_moving_bias();
  const Trace right = recorded<S>(x, t);
  const Is adds = computes<kernel::ModifyScores>();
  expect_caught<S>(x, t,
                   {{"forgets its tangent", without(right, all(adds && touches(tBias)))},
                    {"takes the bias for its tangent", mixed_up(right, adds, tBias, bias)}});
  expect_caught_by_numbers<S>(x, t, [](const Trace& found) {
    return std::vector<Mutant>{
        {"weighs no tangents", without(found, all(computes<kernel::ScoreGradient>()))},
        {"sums tangents of one step", without(found, not_first(computes<kernel::AddRowSums>()))}};
  });
}

TEST(SecondMutants, OfTheGradientOfABiasThatMovesAreCaught) {
  using S = Masked<SecondFusedKeyOuter>;
  Sizes x = with_moving_bias();
  x.modifiers.bias_gradient = true;
  const S::Tiling t{{{3, 2}, {3, 2}}};
  const Trace right = recorded<S>(x, t);
  const Is adds = computes<kernel::ModifyScores>() || computes<kernel::SecondGradient>(),
           sum = computes<kernel::AddBiasGradient>();
  expect_caught<S>(x, t,
                   {{"forgets gBias", without(right, all(adds && touches(gBias)))},
                    {"takes the bias for gBias", mixed_up(right, adds, gBias, bias)},
                    {"forgets LBias", without(right, all(sum))},
                    {"begins LBias with nothing", without(right, all(computes<kernel::ZeroOver>() && touches(LBias)))},
                    {"adds the last tile to LBias twice", twice(right, last(sum))}});
  expect_caught_by_numbers<SecondFusedKeyOuter, S>(x, t.all, [&](const Trace& found) {  // under a softcap
    Arg G = kNoWords;
    const Is gradient = computes<kernel::SecondGradient>();
    return std::vector<Mutant>{
        {"adds G behind the softcap to LBias", changed(found, all(gradient || sum), [&](Operation& op) {
           if (gradient(op))
             G = op.args[0];
           else
             op.args[1] = G;
         })}};
  });
}

TEST(SecondMutants, OfSinksThatMoveAreCaught) {
  using S = TangentQueryOuter;
  const S::Tiling t{3, 2};
  const Sizes x = with_moving_sinks();
  const Trace right = recorded<S>(x, t);
  const Is begins = computes<kernel::BeginWithMovingSinks>();
  expect_caught<S>(x, t,
                   {{"forgets their tangents", without(right, all(begins))},
                    {"takes the sinks for their tangents", mixed_up(right, begins, tSinks, sinks)}});
  expect_caught_by_numbers<S>(x, t, [&](const Trace& found) {
    return std::vector<Mutant>{{"begins with the first head in every row",
                                with(found, begins, &kernel::BeginWithMovingSinks::row, index_t{0})}};
  });
}

TEST(SecondMutants, OfTheGradientOfSinksThatMoveAreCaught) {
  using S = Masked<SecondThreeSweeps>;
  Sizes x = with_moving_sinks();
  x.modifiers.sinks_gradient = true;
  const S::Tiling t{{{3, 2}, 2, 2, {3, 2}}};
  const Trace right = recorded<S>(x, t);
  const Is begins = computes<kernel::BeginWithMovingSinks>(), adds = computes<kernel::AddMovingSinkGradients>();
  expect_caught<S>(
      x, t,
      {{"forgets gSinks", without(right, all(begins))},
       {"takes the sinks for gSinks", mixed_up(right, begins, gSinks, sinks)},
       {"takes x for D", changed(right, last(loads(D)), [](Operation& op) { op.args[1].block.array = Xm; })},
       {"forgets LSinks", without(right, all(stores(LSinks)))},
       {"begins LSinks with nothing", without(right, all(computes<kernel::Zero>(LSinks)))},
       {"adds the last row to LSinks twice", twice(right, last(adds))}});
  expect_caught_by_numbers<SecondThreeSweeps, S>(x, t.all, [](const Trace& found) {
    return std::vector<Mutant>{
        {"leaves sinks out of the sum of weights", without(found, all(computes<kernel::AddSinkWeights>()))}};
  });
}

TEST(SecondMutants, OfTangentsThatOnlyNumbersCanTellAreCaught) {
  expect_caught_by_numbers<TangentQueryOuter>(with_mask(), {3, 2}, [](const Trace& right) {
    return std::vector<Mutant>{
        {"weighs no tangents", without(right, all(computes<kernel::ScoreGradient>()))},
        {"sums tangents of one step", without(right, not_first(computes<kernel::AddRowSums>()))},
        {"forgets the slope of the softcap", without(right, all(computes<kernel::ThroughSoftcap>()))},
        {"forgets the scale", with(right, anything(), &kernel::Scale::factor, 1.0)},
        {"drops no tangents", without(right, last(computes<kernel::Drop>()))}};
  });
}

TEST(SecondMutants, OfThreeSweepsThatOnlyNumbersCanTellAreCaught) {
  using S = SecondThreeSweeps;
  expect_caught_by_numbers<S>(with_lse_gradient(), {{3, 2}, 2, 2, {3, 2}}, [](const Trace& right) {
    const Is gradient = computes<kernel::SecondGradient>();
    const auto swapped = [](std::size_t a, std::size_t b) {
      return [=](Operation& op) { std::swap(op.args[a], op.args[b]); };
    };
    return std::vector<Mutant>{
        {"takes E for dP", changed(right, all(gradient), swapped(1, 2))},
        {"takes w for x", changed(right, all(gradient), swapped(6, 7))},
        {"takes D for x", changed(right, all(gradient), swapped(5, 7))},
        {"sums weights of all steps but the last", without(right, last(computes<kernel::AddRowSums>()))},
        {"forgets the softcap of G and dS", with(right, anything(), &kernel::SecondGradient::softcap, 1e9)},
        {"drops nothing of E", without(right, last(computes<kernel::Drop>()))}};
  });
}

TEST(SecondMutants, OfTangentsInASmallCacheAreCaught) {
  using S = TangentSmallCache;
  const S::Tiling t{{2, 3}, {3, 1}};
  const Sizes x = with_mask();
  const Trace right = recorded<S>(x, t);
  const Is products = computes<kernel::Gemm>(tO), scores = computes<kernel::Gemm>(SlowArray::S);
  expect_caught<S>(x, t,
                   {{"forms tO first", phases_first(right, stores(tO))},
                    {"forgets O", without(right, all(computes<kernel::SubtractScaledRows>()))},
                    {"forgets tangents of queries", without(right, all(scores && touches(tQ)))},
                    {"takes keys for their tangents", mixed_up(right, scores, tK, K)},
                    {"takes values for their tangents", mixed_up(right, products, tV, V)},
                    {"takes weights for how they move", mixed_up(right, products, SlowArray::S, P)},
                    {"loads keys for every product", again(right, loads(K), scores)},
                    {"stores weights alone", without(right, all(stores(SlowArray::S)))},
                    {"stores hidden pairs", recorded<S>(without_mask(), t)},
                    {"skips the initialisation of tO", without(right, all(computes<kernel::Zero>(tO)))},
                    {"keeps another tile", with_room(right, scores, t.weights.a * t.weights.b)},
                    {"stores tO for every column of weights", early(right, stores(tO), products)},
                    {"loads tlse for every block of columns", again(right, loads(Hm), computes<kernel::Zero>(tO))},
                    {"forgets the last tlse", without(right, last(stores(tlse)))}});
}

TEST(SecondMutants, OfMaterialisedAreCaught) {
  using S = SecondMaterialised;
  const S::Tiling t{{2, 3}, {3, 2}, {1, 1}, {3, 1}, {2, 2}, {2, 2}};
  const Sizes x = with_lse_gradient();
  const Trace right = recorded<S>(x, t);
  const Is gradient = computes<kernel::ScoreGradient>();
  expect_caught<S>(x, t,
                   {{"forms LQ first", phases_first(right, stores(LQ))},
                    {"forgets LK", without_phases(right, stores(LK))},
                    {"forgets dlse", without(right, all(computes<kernel::Subtract>()))},
                    {"forgets w in LV", in_phases(right, stores(LV),
                                                  [](const Trace& phase) {
                                                    const Is takes_off = computes<kernel::SubtractScaledRows>();
                                                    return without(phase, all(takes_off));
                                                  })},
                    {"takes V for gV", mixed_up(right, computes<kernel::Gemm>(LdO), gV, V)},
                    {"takes gK for K", mixed_up(right, computes<kernel::Gemm>(LQ), K, gK)},
                    {"adds dS^T gQ alone", without(right, all(computes<kernel::Gemm>(LK) && touches(Q)))},
                    {"loads P for each use of it", again(right, loads(P), gradient)},
                    {"forgets G", without(right, last(stores(SlowArray::S)))},
                    {"keeps a row too many", with_room(right, computes<kernel::Add>(SlowArray::S), t.G.b)},
                    {"keeps a tile too many", with_room(right, computes<kernel::Copy>(), t.G.a * t.G.b)},
                    {"skips the initialisation of LK", without(right, all(computes<kernel::Zero>(LK)))},
                    {"forgets Ldlse", without(right, all(stores(Ldlse)))},
                    {"forgets the last x", without(right, last(stores(Xm)))}});
}

TEST(SecondMutants, OfSmallCachesThatOnlyNumbersCanTellAreCaught) {
  expect_caught_by_numbers<TangentSmallCache>(with_mask(), {{2, 3}, {3, 1}}, [](const Trace& right) {
    return std::vector<Mutant>{
        {"weighs no tangents", without(right, all(computes<kernel::ScoreGradient>()))},
        {"sums tangents of one tile", without(right, not_first(computes<kernel::AddRowSums>()))},
        {"forgets the slope of the softcap", without(right, all(computes<kernel::ThroughSoftcap>()))},
        {"forgets the scale", with(right, anything(), &kernel::Scale::factor, 1.0)},
        {"drops no tangents", without(right, last(computes<kernel::Drop>()))}};
  });
  using S = SecondMaterialised;
  expect_caught_by_numbers<S>(
      with_lse_gradient(), {{2, 3}, {3, 2}, {1, 1}, {3, 1}, {2, 2}, {2, 2}}, [](const Trace& right) {
        return std::vector<Mutant>{
            {"takes no E", without(right, all(computes<kernel::Add>(SlowArray::S)))},
            {"takes x of the first values", without(right, not_first(computes<kernel::Add>(Xm)))},
            {"forgets the scale", with(right, anything(), &kernel::ScoreGradient::scale, 1.0)},
            {"drops nothing of E", without(right, last(computes<kernel::Drop>()))}};
      });
}

}  // namespace redblue::test
