#include <gtest/gtest.h>

#include "redblue/methods/kernels/list.hpp"
#include "redblue/methods/schedules/coreset.hpp"
#include "redblue/methods/schedules/hyper_attention.hpp"
#include "redblue/methods/schedules/linear_attention.hpp"
#include "redblue/methods/schedules/linformer.hpp"
#include "redblue/methods/schedules/nystroemformer.hpp"
#include "redblue/methods/schedules/performer.hpp"
#include "redblue/methods/schedules/performer_tiled.hpp"
#include "redblue/methods/schedules/reformer.hpp"
#include "redblue/methods/schedules/smyrf.hpp"
#include "redblue/methods/schedules/uniform_sample.hpp"
#include "schedules/mutants/slips.hpp"

/// Slips in the published approximations.
namespace redblue::test {

using namespace mutants;
using namespace schedule;

namespace {

Sizes sizes_for(const Method& method, index_t n_q = 7, index_t n_k = 9) {
  Sizes x{n_q, n_k, 5, 3};
  x.approximation = approximate_by(method);
  return x;
}

}  // namespace

TEST(MethodMutants, OfLinearAttentionAreCaught) {
  using S = LinearAttentionForward;
  const Sizes x = sizes_for(LinearAttention{});
  const Trace right = recorded<S>(x, {});
  const Is add = computes<kernel::AddElu>();
  expect_caught<S>(x, {},
                   {{"loads the keys", resident(right, add, K)},
                    {"reads the values twice", twice(right, all(loads(V)))},
                    {"forgets the last key", without(right, last(add))},
                    {"forgets the row sums", without(right, all(computes<kernel::Zero>(den)))}});
}

TEST(MethodMutants, OfPerformerAreCaught) {
  using S = PerformerForward;
  const S::Tiling t{1, 1, 4};
  const Sizes x = sizes_for(Performer{4, 3});
  const Trace right = recorded<S>(x, t);
  expect_caught<S>(x, t,
                   {{"takes the maximum in a pass of its own", twice(right, all(touches(K)))},
                    {"keeps the maximum when no more keys come", with_room_throughout(right, 1)},
                    {"lets the first key in twice", twice(right, first(touches(K)))},
                    {"never begins the maximum", without(right, all(computes<kernel::MinusInfinity>()))}});
}

/// Groups of two features, all columns.
TEST(MethodMutants, OfPerformerInTilesAreCaught) {
  using S = PerformerTiledForward;
  const S::Tiling t{.gs = 2, .values = 3};
  const Sizes x = sizes_for(Performer{4, 3});
  const Trace right = recorded<S>(x, t);
  expect_caught<S>(x, t,
                   {{"begins anew with each group", begun_anew(right, {O, ids, den})},
                    {"leaves the last sums, which nobody reads", also_stored(right, last(stores(O)), den)},
                    {"reads the sums twice", twice(right, all(loads(den)))}});
}

TEST(MethodMutants, OfLinformerAreCaught) {
  using S = LinformerForward;
  const Sizes x = sizes_for(Linformer{4, false, 0});
  const Trace right = recorded<S>(x, {});
  const Is project = computes<kernel::ProjectRows>();
  expect_caught<S>(x, {},
                   {{"loads the keys, to project them", resident(right, project, K)},
                    {"projects the keys a second time", twice(right, first(project))},
                    {"loads the queries", resident(right, anything(), Q)},
                    {"forgets the last query", without(right, last(computes<kernel::GemmOver>()))}});
}

TEST(MethodMutants, OfUniformSamplesAreCaught) {
  using S = UniformSampleForward;
  const Sizes x = sizes_for(UniformSample{4, 3});
  const Trace right = recorded<S>(x, {});
  expect_caught<S>(x, {},
                   {{"keeps a word beside the keys", with_room_throughout(right, 1)},
                    {"loads the queries", resident(right, anything(), Q)},
                    {"reads a value twice", twice(right, first(loads(V)))},
                    {"forgets the last query", without(right, last(computes<kernel::GemmOver>()))}});
}

TEST(MethodMutants, OfNystroemformerAreCaught) {
  using S = NystroemformerForward;
  constexpr index_t landmarks = 4;
  const Sizes x = sizes_for(Nystroemformer{landmarks, 3});
  const Trace right = recorded<S>(x, {});
  const Is step = computes<kernel::PseudoInverseStep>();
  expect_caught<S>(x, {},
                   {{"makes room for the statistics beside A", with_room(right, step, 2 * landmarks)},
                    {"misses an iteration", without(right, last(step))},
                    {"forgets the pseudo-inverse", without(right, all(computes<kernel::MultiplyFromLeft>()))},
                    {"attends to the values twice", twice(right, all(touches(V)))}});
}

TEST(MethodMutants, OfCoresetsAreCaught) {
  using S = CoresetForward;
  const Sizes x = sizes_for(Coreset{.block = 4, .rank = 2, .seed = 3});
  const Trace right = recorded<S>(x, {});
  const Is add = computes<kernel::AddValues>();
  expect_caught<S>(x, {},
                   {{"makes room for the room beside", with_room(right, computes<kernel::InterpolationWeights>(), 2)},
                    {"measures the queries, for a tau that is 1", twice(right, first(touches(Q)))},
                    {"loads the values before they pass", twice(right, all(touches(V)))},
                    {"forgets the last block", without(right, last(add))},
                    {"never begins the bounds", without(right, all(computes<kernel::MinusInfinity>()))}});
}

TEST(MethodMutants, OfSmyrfAreCaught) {
  using S = SmyrfForward;
  for (const index_t keep : {0, 1}) {
    const S::Tiling t{2, 2, keep, 3, 2};
    const Sizes x = sizes_for(Smyrf{2, 4, 3});
    const Trace right = recorded<S>(x, t);
    const Is projects_queries = computes<kernel::ProjectRow>() && touches(Q);
    expect_caught<S>(x, t,
                     {{"keeps a word of the sorts", with_room_throughout(right, 1)},
                      {"projects in every round", twice(right, all(projects_queries))},
                      {"begins every round anew", begun_anew(right, {O, lse})},
                      {"writes lse in the last round", also_stored(right, last(stores(O)), lse)},
                      {"forgets the last cluster", without(right, last(stores(O)))}});
  }
}

/// Keys of a block and samples pass.
TEST(MethodMutants, OfHyperAttentionAreCaught) {
  using S = HyperAttentionForward;
  const S::Tiling t{2, 1, 0, 0};
  const Sizes x = sizes_for(HyperAttention{4, 5, 3, 1});
  const Trace right = recorded<S>(x, t);
  const Is meets_a_sample = computes<kernel::Scores>();  // the last time that it meets a key
  expect_caught<S>(x, t,
                   {{"counts in a second pass", twice(right, all(loads(hash_k)))},
                    {"brings a sample again", twice(right, last(meets_a_sample))},
                    {"samples of the own block too", twice(right, first(loads(order_k)))},
                    {"forgets a sample", without(right, last(meets_a_sample))}});
}

TEST(MethodMutants, OfReformerAreCaught) {
  using S = ReformerForward;
  const S::Tiling t{2, 2, 1};
  const Sizes x = sizes_for(Reformer{2, 3, 4, 1}, 8, 8);
  Sizes causal = x;
  causal.mask.hi = 1;
  const Trace right = recorded<S>(x, t);
  const auto reads_a_key = [](Operation& op) { op.args[1].block.array = K; };
  expect_caught<S>(x, t,
                   {{"reads the keys", also(right, first(loads(Q)), reads_a_key)},
                    {"hashes in every round", phases_twice(right, stores(hash_q))},
                    {"forgets to wrap: the first chunk looks at no other", recorded<S>(causal, t)},
                    {"begins every round anew", begun_anew(right, {O, lse})}});
}

}  // namespace redblue::test
