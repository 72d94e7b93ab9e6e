#include <gtest/gtest.h>

#include "redblue/machines/ram/ram.hpp"
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/backward/fused_query_outer.hpp"
#include "redblue/schedules/backward/grouped_key_outer.hpp"
#include "redblue/schedules/backward/materialised.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/gradient/query_outer.hpp"
#include "redblue/verify/arrays.hpp"
#include "schedules/mutants/rings.hpp"

namespace redblue::test {

using namespace mutants;
using namespace schedule;

namespace {

Mask causal(index_t offset) { return {.hi = offset + 1}; }
Sizes masked_gradient() { return {7, 9, 3, 2, causal(2), false}; }
Sizes plain_gradient() { return {7, 9, 3, 2, {}, false}; }
/// Queries leave before others enter, and rings wrap.
Sizes square_window() { return {9, 9, 3, 2, {.lo = -2, .hi = 3}, true}; }

const MaterialisedBackward::Tiling kPhases{{0, 3, 2}, {1, 2, 1}, {2, 2}, {3, 2}, {4, 1}};
/// The phase of `materialised` that forms dS.
const Is forms_dS_or_D = touches(D) && !stores(D);

Trace dS_before_dV(const Trace& right) {
  std::vector<Operations> phases = phases_of(right);
  const auto begin = std::ranges::find_if(phases, [](const auto& p) { return has(p, stores(dV)); });
  std::stable_partition(begin, phases.end(), [](const auto& p) { return has(p, forms_dS_or_D); });
  return joined(right, phases);
}

}  // namespace

TEST(BackwardMutants, OfFusedKeyOuterAreCaught) {
  using S = FusedKeyOuterBackward;
  const S::Tiling t{2, 2};
  const Sizes x = masked_gradient();
  Sizes fewer_queries = x, fewer_keys = x;
  fewer_queries.n_q -= 1;
  fewer_keys.n_k -= t.Bc;
  const Trace right = recorded<S>(x, t);
  const Is step = computes<kernel::Scores>(), gradients = computes<kernel::ValueGradients>(),
           update = computes<kernel::GemmOver>();
  const auto two_products = [](const Operation& op, index_t) {
    Operations products{op, op};
    const Arg dP = op.args[0], dV_j = op.args[1], weights = op.args[2], V_j = op.args[3], dO_i = op.args[4];
    products[0].kernel = kernel::Gemm{false, true};
    products[0].args = {dP, dO_i, V_j};
    products[1].kernel = kernel::Gemm{true, false};
    products[1].args = {dV_j, weights, dO_i};
    return products;
  };
  expect_caught<S>(x, t,
                   {{"forgets D", without_phases(right, stores(D))},
                    {"forms D after the pass", phases_last(right, stores(D))},
                    {"reloads keys for every query", again(right, loads(K), step)},
                    {"loads dO instead of streaming", resident(right, gradients, dO)},
                    {"streams dO once for dP and once for dV", replaced(right, all(gradients), two_products)},
                    {"loads lse for every key", again(right, loads(lse), step)},
                    {"reads dQ before it is written", with(right, update, &kernel::GemmOver::first, false)},
                    {"forgets what dQ was", with(right, update, &kernel::GemmOver::first, true)},
                    {"stores dQ into Q", mixed_up(right, update, dQ, Q)},
                    {"allocates scores too early", with_room_throughout(right, t.br * t.Bc)},
                    {"keeps scores for all queries", with_room(right, gradients, 2 * (x.n_q - t.br) * t.Bc)},
                    {"skips the initialisation of dK", without(right, all(computes<kernel::Zero>(dK)))},
                    {"skips the initialisation of dP", without(right, all(computes<kernel::Zero>(P)))},
                    {"visits queries that see nothing", recorded<S>(plain_gradient(), t)},
                    {"misses the last query", recorded<S>(fewer_queries, t)},
                    {"misses the last block of keys", recorded<S>(fewer_keys, t)},
                    {"forgets to store the last dK", without(right, last(stores(dK)))},
                    {"stores dV for every query", early(right, stores(dV), gradients)}});
}

/// Groups of 1, 1 and 3 blocks.
TEST(BackwardMutants, OfGroupedKeyOuterAreCaught) {
  using S = GroupedKeyOuterBackward;
  const S::Tiling t{{2, 2}, 3};
  const Sizes x{9, 9, 3, 2, causal(0), false};
  const Trace right = recorded<S>(x, t);
  const auto add = computes<kernel::Add>();
  const auto to_one_dQ = [&](Operation& op) {
    op.args[0].block.array = dQ;
    op.args[0].block.row %= x.n_q;
  };
  expect_caught<S>(x, t,
                   {{"lets all groups revisit one dQ", changed(right, all(computes<kernel::GemmOver>(dQg)), to_one_dQ)},
                    {"reads a copy before it is written",
                     with(right, computes<kernel::GemmOver>(dQg), &kernel::GemmOver::first, false)},
                    {"forgets the first read of dQ in the sum", without(right, all(loads(dQ)))},
                    {"adds rows that a copy does not have",
                     also(right, first(add), [&](Operation& op) { op.args[1].block.row += x.n_q; })},
                    {"forgets the last copy", without(right, all(add && touches(dQg, x.n_q)))},
                    {"sums before the groups", phases_first(right, loads(dQ))},
                    {"sums rows of the first group alone",
                     also(right, first(loads(dQ)), [](Operation& op) { op.args[1].block.row = 0; })}});
}

TEST(BackwardMutants, OfFusedQueryOuterAreCaught) {
  using S = FusedQueryOuterBackward;
  const S::Tiling t{3, 1};
  const Sizes x = masked_gradient();
  const Trace right = recorded<S>(x, t);
  const Is step = computes<kernel::Scores>(), of_dV = computes<kernel::GemmOver>(dV),
           of_dK = computes<kernel::GemmOver>(dK);
  expect_caught<S>(x, t,
                   {{"takes the first block first", phases_reversed(right)},
                    {"reads dK before it is written", with(right, of_dK, &kernel::GemmOver::first, false)},
                    {"forgets what dV was", with(right, of_dV, &kernel::GemmOver::first, true)},
                    {"forgets dK", without(right, all(of_dK))},
                    {"reloads queries for every key", again(right, loads(Q), step)},
                    {"loads values instead of streaming", resident(right, anything(), V)},
                    {"forms D for every key", again(right, computes<kernel::RowDots>(), step)},
                    {"loads O", resident(right, anything(), O)},
                    {"keeps scores as a square tile", with_room(right, step, 2 * t.Br * (x.n_k - t.bc))},
                    {"visits invisible keys", recorded<S>(plain_gradient(), t)},
                    {"stores dQ for every key", early(right, stores(dQ), of_dK)},
                    {"forgets the last dQ", without(right, last(stores(dQ)))}});
}

/// Its six phases, left out, repeated or out of order.
TEST(BackwardMutants, OfMaterialisedAreCaught) {
  using S = MaterialisedBackward;
  const Trace right = recorded<S>(plain_gradient(), kPhases);
  const Is forms_P = touches(lse);
  const auto untransposed = [](const Trace& phase) {
    return changed(phase, all(touches(P)), [](Operation& op) {
      for (Arg& a : op.args)
        if (a.block.array == P) std::swap(a.block.row, a.block.col);
    });
  };
  expect_caught<S>(
      plain_gradient(), kPhases,
      {{"forgets D", without_phases(right, stores(D))},
       {"forms D too late", phases_last(right, stores(D))},
       {"forms dV before the probabilities", phases_first(right, stores(dV))},
       {"forms dS before the probabilities", phases_first(right, forms_dS_or_D)},
       {"forms the probabilities twice", phases_twice(right, forms_P)},
       {"forms dS twice", phases_twice(right, forms_dS_or_D)},
       {"forgets to transpose P", in_phases(right, stores(dK), untransposed)},
       {"multiplies dV by O", in_phases(right, stores(dV), [](auto& p) { return mixed_up(p, anything(), dO, O); })},
       {"forgets dK", without_phases(right, stores(dK))},
       {"stores dK into dV", mixed_up(right, anything(), dK, dV)}});
}

TEST(BackwardMutants, OfTheQueryOuterGradientAreCaught) {
  using S = QueryOuterGradient<RowsGo::into_slow_g>;
  const S::Tiling t{{3, 2}, {2, 2}, {3, 1}, {}};
  const Sizes x = masked_gradient();
  const Trace right = recorded<S>(x, t);
  const auto update = computes<kernel::GemmOver>();
  expect_caught<S>(
      x, t,
      {{"forgets what g was", with(right, update, &kernel::GemmOver::first, true)},
       {"reads g before it is written", with(right, update, &kernel::GemmOver::first, false)},
       {"forms the values too late", phases_last(right, stores(h))},
       {"projects queries again", phases_twice(right, stores(A1X))},
       {"loads A1 before the pass", with_room(right, computes<kernel::ScoreGradient>(), t.queries.Br * x.d)},
       {"streams A1 twice", twice(right, all(loads(A1)))}});
}

/// What moves the same words in as many tiles, of words that all have been written, no check without data can see: the
/// dense reference does.
TEST(BackwardMutants, ThatOnlyNumbersCanTellAreCaughtByNumbers) {
  using S = MaterialisedBackward;
  const Sizes x = plain_gradient();
  claims::Arrays<double> a(describe<S>(), x, tile_sizes_of(kPhases));
  const S::Operands operands(x, *a.problem.scale);
  Trace right;
  machine::Null null;
  machine::Traced<machine::Null> traced(null, right);
  S::run(traced, operands, kPhases);
  using Gradient = kernel::ScoreGradient;
  const Mutant list[] = {{"none", right},
                         {"forms dS before dV", dS_before_dV(right)},
                         {"forgets D in dS", with(right, anything(), &Gradient::score, Score::identity)},
                         {"forgets the scale", with(right, anything(), &Gradient::scale, 1.0)}};
  for (const auto& [slip, run] : list) {
    EXPECT_EQ(verdict_of<S>(x, kPhases, run), "") << slip;
    machine::Ram<double> ram(S::footprint(x, kPhases).to_index(), a.slow());
    machine::detail::play(run, ram);
    const auto wanted = a.wanted();
    double gap = 0;
    for (const SlowArray output : S::Operands::outputs)
      gap = std::max(gap, claims::largest_gap(a.words.at(output), wanted.at(output).words));
    if (slip == "none")
      EXPECT_LT(gap, 1e-13);
    else
      EXPECT_GT(gap, 1e-2) << slip;
  }
}

TEST(BackwardMutants, OfRingQueriesAreCaught) {
  const RingQueriesBackward::Tiling t{1, 1};
  expect_caught<RingQueriesBackward>(square_window(), t, slips_in_ring_queries(square_window(), t));
}

/// The first pass has the larger footprint.
TEST(BackwardMutants, OfRingTwoPassAreCaught) {
  using S = RingTwoPassBackward;
  const S::Tiling t{2, 1};
  const Sizes x = square_window();
  std::vector<Mutant> slips = slips_in_ring_two_pass(x, t);
  const Trace right = recorded<S>(x, t);
  slips.push_back({"loads queries whole", with_room(right, computes<kernel::Gemm>(P), t.Br * (x.d - t.bd))});
  slips.push_back({"keeps dQ resident", with_room_throughout(right, x.n_q * x.d)});
  expect_caught<S>(x, t, slips);
}

}  // namespace redblue::test
