#include <gtest/gtest.h>

#include "redblue/masks/patterns.hpp"
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/ring/forward.hpp"
#include "redblue/schedules/sparse/backward.hpp"
#include "redblue/schedules/sparse/forward.hpp"
#include "redblue/schedules/sparse/spilled.hpp"
#include "redblue/schedules/sparse/values.hpp"
#include "schedules/mutants/rings.hpp"

namespace redblue::test {

using namespace mutants;
using namespace schedule;

namespace {

Sizes sizes_of(index_t n_q, index_t n_k, const std::vector<std::uint8_t>& seen) {
  Sizes x{.n_q = n_q, .n_k = n_k, .d = 3, .d_v = 2};
  x.pattern = std::make_shared<const Pattern>(patterns::of_mask({x.n_q, x.n_k}, seen), x.n_k);
  x.mask.pattern = x.pattern.get();
  return x;
}
/// Every query sees a key and every key is seen, so that the problem is its own core. Blocks of neighbours have gaps
/// between their keys, and between their queries.
Sizes sparse_sizes() {
  return sizes_of(7, 9,
                  {
                      1, 0, 1, 1, 0, 0, 0, 0, 1,  //
                      1, 0, 0, 1, 0, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 0, 0, 1, 1, 0,  //
                      1, 1, 1, 0, 0, 1, 0, 1, 1,  //
                      0, 0, 0, 0, 1, 0, 0, 0, 0,  //
                      1, 0, 1, 0, 0, 1, 1, 0, 1,  //
                      0, 1, 0, 0, 1, 0, 0, 1, 1,
                  });
}
/// With a bias for each pair, slopes and sinks.
Sizes modified_sizes() {
  Sizes x = sparse_sizes();
  x.modifiers = {.bias = Modifiers::Bias::of_pairs, .slopes = true, .sinks = true};
  return x;
}
/// Two windows that take turns, a query that sees nothing and a key that nobody sees.
Sizes turns() {
  return sizes_of(6, 7,
                  {
                      1, 0, 1, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 1, 0, 0,  //
                      1, 0, 0, 0, 0, 1, 0,  //
                      0, 0, 0, 0, 0, 0, 0,  //
                      0, 1, 0, 0, 0, 0, 1,  //
                      0, 0, 0, 0, 0, 1, 0,
                  });
}

/// Queries that take turns: each sees half of the keys that the ring holds.
Sizes halves() {
  return sizes_of(4, 6,
                  {
                      1, 1, 1, 0, 0, 0,  //
                      0, 0, 0, 1, 1, 1,  //
                      1, 1, 1, 0, 0, 0,  //
                      0, 0, 0, 1, 1, 1,
                  });
}
/// A window with a global token in its middle, and a query and a key that only it sees.
Sizes globals() {
  return sizes_of(6, 6,
                  {
                      1, 1, 0, 1, 0, 0,  //
                      1, 1, 0, 1, 0, 0,  //
                      0, 0, 0, 1, 0, 0,  //
                      1, 1, 1, 1, 1, 1,  //
                      0, 0, 0, 1, 1, 1,  //
                      0, 0, 0, 1, 0, 1,
                  });
}

/// A core's text leaves dBias as 0 to parts/cores.hpp: this one begins with that.
struct BeginsWithZeros : SparseBackward {
  static Io io(const Sizes& sizes, const Tiling& t) {
    return SparseBackward::io(sizes, t) + Io().write(dBias, Words(sizes.n_q) * sizes.n_k);
  }
  template <Machine M>
  static void run(M& m, const BackwardOperands& operands, const Tiling& t) {
    m.update(kernel::ZeroOver{}, operands.dBias.all());
    SparseBackward::run(m, operands, t);
  }
};

/// The queries of a step that visit their first keys come last, as under a mask.
struct KeyOuterOfMasks : FusedKeyOuterBackward {
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, const Tiling& t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range J = blocks(j);
      key_pass(m, x, J, t.br, [&](auto& w, Range I, const Arg& dS_ij, const auto& K_j) {
        const Range again{I.begin, first_visit(pairs, I, J)}, fresh{again.end, I.end};
        for (const Range part : {again, fresh})
          if (part.size() > 0)
            add_query_gradients(w, x, {I, J}, part, part.begin == fresh.begin, x.dQ.rows(part), dS_ij, K_j);
      });
    }
  }
};

/// Does an operation have a kernel at this place?
Is is_at(const std::function<bool(const Place&)>& fits) {
  return [=](const Operation& op) {
    const Place* place = op.kernel.place();
    return place != nullptr && fits(*place);
  };
}
/// Is this row of the array copied?
Is of_row(index_t row) {
  return has([=](const Arg& a) { return a.kind == Arg::Kind::stream && a.block.row == row; });
}
/// Another row of V, or of what the operation reads, which nobody asked for.
Change to_row(index_t row) {
  return [=](Operation& op) {
    for (Arg& a : op.args)
      if (a.kind == Arg::Kind::stream) a.block.row = row;
  };
}
/// Words of a pair's array that are copied begin a word later, or end a word later.
Change shifted(index_t begin, index_t end) {
  return [=](Operation& op) {
    for (Arg& a : op.args)
      if (a.kind == Arg::Kind::stream) a.block.col += begin, a.block.shape.cols += end - begin;
  };
}

/// Tilings of phases of `sparse` that no slip is in.
constexpr GemmTiling kdV{2, 2}, kdQ{3, 2}, kdK{4, 1};
/// The phase that forms dS, and that which forms P.
const Is forms_dS = touches(D) && !stores(D), forms_P = touches(lse);

}  // namespace

TEST(SparseMutants, OfSparseAreCaught) {
  using S = SparseForward;
  const S::Tiling t{{3, 9}, {3, 1}};
  S::Tiling less_room = t;
  --less_room.scores.room;
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const Is below_the_first_row = has([](const Arg& a) { return a.kind == Arg::Kind::tile && a.block.row > 0; });
  const auto loads_statistics = [](const Operation& op, index_t) {
    const Arg rows = Arg::streaming({.array = lse, .shape = op.args[0].shape()});
    return Operations{{.kind = Operation::Kind::read, .args = {op.args[0], rows}}, op};
  };
  expect_caught<S>(
      x, t,
      {{"multiplies before there are scores", phases_first(right, stores(O))},
       {"leaves a word of room unused", recorded<S>(x, less_room)},
       {"keeps a word for each pair of the box", with_room(right, computes<kernel::PairProducts>(), t.scores.room)},
       {"stores only the first row of a tile", without(right, all(stores(SlowArray::S) && below_the_first_row))},
       {"stores scores twice", twice(right, all(stores(SlowArray::S)))},
       {"begins statistics for every tile", replaced(right, all(computes<kernel::PairStatistics>()), loads_statistics)},
       {"skips the initialisation of z", without(right, all(computes<kernel::Zero>(lse)))},
       {"loads lse for every column block", again(right, loads(lse), computes<kernel::Zero>(O))},
       {"reads a key that no row of the block sees", also(right, first(touches(V)), to_row(8))},
       {"misses the last key", without(right, all(computes<kernel::PairWeightsAccumulate>() &&
                                                  is_at([&](const Place& p) { return p.col + 1 == x.n_k; })))},
       {"forgets to store lse", without(right, all(stores(lse)))}});
}

/// Its six phases, left out, repeated or out of order.
TEST(SparseMutants, OfSparseBackwardAreCaught) {
  using S = SparseBackward;
  const S::Tiling t{{3, 9}, {2, 7}, kdV, kdQ, kdK};
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const S::Operands operands(x, 0.5);
  /// The phases that store this array, as another product.
  const auto replace_product = [&](SlowArray a, const auto& product) {
    Trace other = without_phases(right, stores(a));
    machine::Null null;
    machine::Traced<machine::Null> traced(null, other);
    product(traced);
    return other;
  };
  const auto dense_dQ = [&](auto& m) {
    gemm(m, x.fast, operands.dQ, {SlowMatrix{P, {x.n_q, x.n_k}}}, {operands.K}, t.dQ);
  };
  const auto untransposed_dK = [&](auto& m) { spmm(m, x, operands.dK, operands.P, false, operands.Q, t.dK); };
  expect_caught<S>(
      x, t,
      {{"forgets D", without_phases(right, stores(D))},
       {"forms D too late", phases_last(right, stores(D))},
       {"forms dV before the probabilities", phases_first(right, stores(dV))},
       {"forms dS before the probabilities", phases_first(right, forms_dS)},
       {"forms the probabilities twice", phases_twice(right, forms_P)},
       {"forms dS twice", phases_twice(right, forms_dS)},
       {"forgets to transpose P", replace_product(dK, untransposed_dK)},
       {"multiplies dV by O", in_phases(right, stores(dV), [](auto& p) { return mixed_up(p, anything(), dO, O); })},
       {"multiplies a matrix with hidden words", replace_product(dQ, dense_dQ)},
       {"forgets dK", without_phases(right, stores(dK))},
       {"stores dK into dV", mixed_up(right, anything(), dK, dV)}});
}

/// The phase that is a panel takes the most room.
TEST(SparseMutants, OfPanelsOfRowsAreCaught) {
  using S = SparseBackward;
  const S::Tiling t{{3, 2, index_t(Panel::rows)}, {1, 2, index_t(Panel::keys), 1}, kdV, kdQ, kdK};
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const auto of_weights = [&](const auto& slip) { return in_phases(right, forms_P, slip); };
  const Is scores = computes<kernel::PairScores>();
  const index_t last_row = t.P.a - 1;
  expect_caught<S>(
      x, t,
      {{"loads the rows for every key", of_weights([&](auto& p) { return again(p, loads(Q), scores); })},
       {"loads lse for every key", of_weights([&](auto& p) { return again(p, loads(lse), scores); })},
       {"passes keys that no row of the panel sees",
        of_weights([&](auto& p) { return also(p, first(scores), to_row(4)); })},
       {"keeps a word for each row of the panel", of_weights([&](auto& p) { return with_room(p, scores, last_row); })},
       {"misses the last key",
        without(right, all(scores && is_at([&](const Place& p) { return p.col + 1 == x.n_k; })))}});
}

TEST(SparseMutants, OfPanelsOfKeysAreCaught) {
  using S = SparseBackward;
  const S::Tiling t{{1, 2, index_t(Panel::rows)}, {1, 2, index_t(Panel::keys), 7}, kdV, kdQ, kdK};
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const auto of_gradients = [&](const auto& slip) { return in_phases(right, forms_dS, slip); };
  const auto loads_of = [&](SlowArray a, index_t more) {
    return of_gradients([=](const Trace& p) {
      const Trace loaded = resident(p, anything(), a);
      return more == 0 ? loaded : with_room(loaded, loads(a), more);
    });
  };
  const Is of_a_later_query = is_at([](const Place& p) { return p.row > 0; });
  expect_caught<S>(
      x, t,
      {{"loads queries instead of streaming", loads_of(dO, 0)},
       {"loads D, and other words", loads_of(D, 2)},
       {"loads P instead of streaming", loads_of(P, 0)},
       {"takes dP of the query before",
        of_gradients([&](auto& p) { return without(p, all(computes<kernel::PairScores>() && of_a_later_query)); })},
       {"visits queries that see nothing of the panel",
        of_gradients([&](auto& p) { return also(p, first(computes<kernel::PairScores>()), to_row(4)); })},
       {"misses the last panel of keys", of_gradients([&](auto& p) { return without(p, last(loads(V))); })},
       {"forgets to store dS of the last query", of_gradients([&](auto& p) { return without(p, last(stores(P))); })}});
}

TEST(SparseMutants, OfSparseValuesAreCaught) {
  using S = SparseValuesBackward;
  const S::Tiling t{{3, 9}, 4, {3, 2}, {4, 1}};
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const Is gradients = computes<kernel::PairValueGradients>();
  const auto in_the_pass = [&](const auto& slip) { return in_phases(right, stores(dV), slip); };
  const auto in_two_passes = [&](const Operation& op, index_t) {
    Operation again = op;
    const auto& k = *op.kernel.get_if<kernel::PairValueGradients>();
    again.kernel = kernel::PairAccumulate{k.place, 0, op.args[3].shape().rows, true};
    again.args = {op.args[1], op.args[2], op.args[4]};
    return Operations{op, again};
  };
  const auto keep_D = [](const Operation& op, index_t tiles) { return with_room(op, tiles, 2); };
  expect_caught<S>(
      x, t,
      {{"forms D after the pass", phases_last(right, stores(D))},
       {"takes probabilities for granted", in_the_pass([](auto& p) { return without(p, all(loads(P))); })},
       {"forms the probabilities too late", phases_last(right, forms_P)},
       {"loads values for every query", again(right, loads(V), gradients)},
       {"loads dO instead of streaming", resident(right, gradients, dO)},
       {"streams dO once for dP and once for dV", replaced(right, all(gradients), in_two_passes)},
       {"keeps D of the query", replaced(right, all(computes<kernel::PairSubtract>()), keep_D)},
       {"skips the initialisation of dP", without(right, all(computes<kernel::Zero>(P)))},
       {"skips the initialisation of dV",
        in_the_pass([](auto& p) { return without(p, all(computes<kernel::Zero>(dV))); })},
       {"keeps a third row of scores", with_room(right, gradients, 1)},
       {"visits queries that see nothing of the block", also(right, first(gradients), to_row(4))},
       {"misses the last block of values", without(right, last(loads(V)))},
       {"forgets to store dS of the last query", in_the_pass([](auto& p) { return without(p, last(stores(P))); })},
       {"forgets to store the last dV", without(right, last(stores(dV)))},
       {"stores dV for every query", early(right, stores(dV), gradients)}});
}

TEST(SparseMutants, OfSparseSpilledAreCaught) {
  using S = SparseSpilledBackward;
  const S::Tiling t{4, {3, 2}};
  const Sizes x = sparse_sizes();
  const Trace right = recorded<S>(x, t);
  const Is gradients = computes<kernel::PairValueGradients>(), scores = computes<kernel::PairScores>();
  const auto also_P = [](const Operation& op, index_t) {
    Operation spill = op;
    spill.kind = Operation::Kind::write;
    spill.args = {op.args[0], op.args[2]};
    spill.args[0].kind = Arg::Kind::stream;
    spill.args[0].block = {.array = P, .shape = op.args[2].shape()};
    return Operations{op, spill};
  };
  const auto to_the_first_query = [](Operation& op) { op.args[0].block.row = 0; };
  Trace with_statistics = resident(right, computes<kernel::PairWeights>(), lse);
  with_statistics = with_room(resident(with_statistics, computes<kernel::PairSubtract>(), D),
                              computes<kernel::PairWeights>() || computes<kernel::PairSubtract>(), 1);
  expect_caught<S>(x, t,
                   {{"forgets D", without_phases(right, stores(D))},
                    {"multiplies before the pass", phases_first(right, stores(dQ))},
                    {"loads keys for every query", again(right, loads(K), scores)},
                    {"keeps queries of the whole block", with_room(right, gradients, 3 * x.d)},
                    {"loads lse and D", with_statistics},
                    {"loads dO instead of streaming", resident(right, gradients, dO)},
                    {"keeps scores of hidden keys", with_room(right, gradients, 2)},
                    {"skips the initialisation of dK", without(right, all(computes<kernel::Zero>(dK)))},
                    {"spills the probabilities too", replaced(right, all(gradients), also_P)},
                    {"spills to the rows of another query", changed(right, all(stores(P)), to_the_first_query)},
                    {"forgets to spill for the last query", without(right, last(stores(P)))},
                    {"misses the last block of keys", without(right, last(loads(K)))},
                    {"forgets to store the last dK", without(right, last(stores(dK)))},
                    {"stores dV into V", mixed_up(right, anything(), dV, V)}});
}

TEST(SparseMutants, OfModifiersAreCaught) {
  using S = SparseForward;
  const S::Tiling t{{3, 9}, {3, 1}};
  const Sizes x = modified_sizes();
  const Trace right = recorded<S>(x, t);
  const Is adds_bias = touches(bias);
  expect_caught<S>(x, t,
                   {{"begins without sinks", without(right, all(computes<kernel::BeginWithSinks>()))},
                    {"loads slopes for every tile", again(right, loads(slopes), computes<kernel::PairStatistics>())},
                    {"forgets the bias", without(right, all(adds_bias))},
                    {"forgets the bias of the first run", without(right, first(adds_bias))},
                    {"streams the bias of hidden pairs", changed(right, first(adds_bias), shifted(0, 1))},
                    {"streams the bias of a tile at once", also(right, first(adds_bias), shifted(1, 1))}});
}

TEST(SparseMutants, OfTheGradientOfABiasAreCaught) {
  Sizes x = sparse_sizes();
  x.modifiers = {.bias = Modifiers::Bias::of_pairs, .bias_gradient = true};
  using S = BeginsWithZeros;
  const S::Tiling t{{3, 9}, {2, 7}, kdV, kdQ, kdK};
  const Trace right = recorded<S>(x, t);
  const Is adds = computes<kernel::PairBiasGradient>();
  expect_caught<S>(x, t,
                   {{"forgets the gradient", without(right, all(adds))},
                    {"forgets the last row", without(right, all(adds && of_row(x.n_q - 1)))},
                    {"adds hidden pairs", changed(right, first(adds), shifted(0, 1))},
                    {"adds twice", twice(right, all(adds))},
                    {"begins at 0 for every run", with(right, adds, &kernel::PairBiasGradient::first, true)}});
}

/// It goes from the first key to the last, as it may under a mask.
TEST(SparseMutants, FlashThatVisitsTheKeysBetweenRunsIsCaught) {
  using S = FlashForward;
  const S::Tiling t{3, 1};
  const Sizes x = sparse_sizes();
  const Sizes envelope = sizes_of(7, 9,
                                  {
                                      1, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                      1, 1, 1, 1, 0, 0, 0, 0, 0,  //
                                      0, 1, 1, 1, 1, 1, 1, 1, 0,  //
                                      1, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                      0, 0, 0, 0, 1, 0, 0, 0, 0,  //
                                      1, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                      0, 1, 1, 1, 1, 1, 1, 1, 1,
                                  });
  EXPECT_EQ(verdict_of<S>(x, t, recorded<S>(x, t)), "");
  EXPECT_EQ(verdict_of<S>(x, t, recorded<S>(envelope, t)), "words differ from the formula");
}

TEST(SparseMutants, KeyOuterThatTakesFirstVisitsForAnIntervalIsCaught) {
  using S = FusedKeyOuterBackward;
  const S::Tiling t{4, 2};
  const Sizes x = sparse_sizes();
  expect_caught<S>(x, t, {{"takes first visits for an interval", recorded<KeyOuterOfMasks>(x, t)}});
}

TEST(SparseMutants, OfRingsThatPinGlobalTokensAreCaught) {
  const Sizes x = globals();
  const index_t pin = 3;
  /// A step whose keys, or queries, are those of the pins, which are loaded before all others.
  const auto of_pins = [](const Trace& trace, SlowArray a) {
    const auto load = std::ranges::find_if(trace.operations, loads(a));
    return has(
        [depth = load->args[0].depth](const Arg& arg) { return arg.kind == Arg::Kind::tile && arg.depth == depth; });
  };
  {
    using S = RingForward;
    const S::Tiling t{1, 1, 1};
    const Trace right = recorded<S>(x, t);
    const Is meets = computes<kernel::Scores>() && of_pins(right, Q);
    const Is other = computes<kernel::Scores>() && !meets;
    const auto of_the_pin = [&](SlowArray a) { return stores(a) && of_row(pin); };
    expect_caught<S>(x, t,
                     {{"attends to keys with every block", again(right, meets, other)},
                      {"never attends to keys", without(right, all(meets))},
                      {"misses keys that only pinned queries see", without(right, last(meets))},
                      {"forgets to store pinned outputs", without(right, all(of_the_pin(O)))},
                      {"lets pinned queries pass too", also(right, last(loads(Q)), to_row(pin))}});
  }
  {
    using S = RingQueriesBackward;
    const S::Tiling t{1, 1, 1};
    const Trace right = recorded<S>(x, t);
    const Is meets = computes<kernel::Scores>() && of_pins(right, K);
    const Is other = computes<kernel::Scores>() && !meets;
    expect_caught<S>(x, t,
                     {{"meets pinned keys with every block", again(right, meets, other)},
                      {"never meets pinned keys", without(right, all(meets))},
                      {"misses queries that only pinned keys see", without(right, all(stores(dQ) && of_row(2)))},
                      {"forgets to store pinned gradients", without(right, all(stores(dK) && of_row(pin)))}});
  }
}

TEST(SparseMutants, OfRingsAreCaught) {
  const Is zero = computes<kernel::ZeroOver>();
  const Sizes x = turns();
  std::vector<Mutant> slips = slips_in_ring_backward(x, {1, 1});
  slips.push_back({"forgets keys that nobody sees", without(recorded<RingBackward>(x, {1, 1}), all(zero))});
  expect_caught<RingBackward>(x, {1, 1}, slips);

  slips = slips_in_ring_queries(x, {1, 1});
  slips.push_back({"forgets queries that see nothing", without(recorded<RingQueriesBackward>(x, {1, 1}), all(zero))});
  expect_caught<RingQueriesBackward>(x, {1, 1}, slips);

  using TwoPass = RingTwoPassBackward;
  expect_caught<TwoPass>(x, {1, 1}, slips_in_ring_two_pass(x, {1, 1}));
  const auto more_room = [](const Trace& pass) { return with_room(pass, computes<kernel::Gemm>(P), 3); };
  const Trace holding_all = in_phases(recorded<TwoPass>(halves(), {1, 1}), stores(D), more_room);
  expect_caught<TwoPass>(halves(), {1, 1}, {{"leaves room for all that the ring holds", holding_all}});
}

}  // namespace redblue::test
