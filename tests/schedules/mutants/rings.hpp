#pragma once
#include "redblue/schedules/ring/backward.hpp"
#include "redblue/schedules/ring/queries.hpp"
#include "redblue/schedules/ring/two_pass.hpp"
#include "slips.hpp"

/// Slips in rings, under a mask or a pattern.
namespace redblue::test::mutants {

/// Rows of this array that take the first place of a ring after others had it: the second part of a step that wraps.
inline Is wraps(SlowArray a) {
  return loads(a) && touches(a, 1) &&
         has([](const Arg& arg) { return arg.kind == Arg::Kind::tile && arg.block.row == 0; });
}

inline std::vector<Mutant> slips_in_ring_backward(const Sizes& x, const schedule::RingBackward::Tiling& t) {
  using S = schedule::RingBackward;
  const Trace right = recorded<S>(x, t);
  return {{"has a place too few", with_fewer_places(right, {K, V, dK, dV}, S::places(x, t))},
          {"has a place too many", with_room_throughout(right, 2 * (x.d + x.d_v))},
          {"loads keys again", again(right, loads(K), computes<kernel::Gemm>())},
          {"forgets to begin gradients with zero", without(right, all(computes<kernel::Zero>(dK)))},
          {"forgets to store the last gradients", without(right, last(stores(dK)))},
          {"leaves out the second part", without(right, all(wraps(K)))}};
}

inline std::vector<Mutant> slips_in_ring_queries(const Sizes& x, const schedule::RingQueriesBackward::Tiling& t) {
  using S = schedule::RingQueriesBackward;
  const Trace right = recorded<S>(x, t);
  const Is step = computes<kernel::Scores>(), dots = computes<kernel::RowDots>();
  const index_t place = 2 * x.d + x.d_v + 2;  // Q, dQ, dO, lse and D of a query
  return {{"has a place too few", with_fewer_places(right, {Q, dQ, dO, lse, D}, S::places(x, t))},
          {"has a place too many", with_room_throughout(right, place)},
          {"loads queries again", again(right, loads(Q), step)},
          {"forms D for every key", again(right, dots, step)},
          {"holds weights while O passes", with_room(right, dots, 2 * t.br * t.Bc)},
          {"stores dQ for every key", early(right, stores(dQ), step)},
          {"forgets to store the last dQ", without(right, last(stores(dQ)))},
          {"leaves out the second part", without(right, all(wraps(Q)))},
          {"lets a query not enter", without(right, first(loads(Q)))}};
}

/// In its passes as wholes, and in the first one, whose ring is resident in all of it.
inline std::vector<Mutant> slips_in_ring_two_pass(const Sizes& x, const schedule::RingTwoPassBackward::Tiling& t) {
  using S = schedule::RingTwoPassBackward;
  const Trace right = recorded<S>(x, t);
  const Is of_P = computes<kernel::Gemm>(P);
  return {{"forms D too late", phases_last(right, stores(D))},
          {"forgets dK and dV", without_phases(right, stores(dK))},
          {"keeps the first ring", with_room_throughout(right, schedule::most_seen_keys(x, t.Br) * x.d)},
          {"loads keys again", again(right, loads(K), of_P)},
          {"streams queries for each part of the ring", again(right, loads(Q), of_P)},
          {"forgets to store D", without(right, all(stores(D)))}};
}

}  // namespace redblue::test::mutants
