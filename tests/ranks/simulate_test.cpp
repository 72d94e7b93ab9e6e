#include "redblue/ranks/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ranks/worlds.hpp"
#include "redblue/ranks/loads.hpp"

/// Simulated time against closed forms.
namespace redblue::test::of_ranks {
namespace {

using ranks::Network;
using ranks::Simulated;
using ranks::World;

Problem whole(index_t n) {
  Problem p;
  p.n_q = p.n_k = n;
  p.d = p.d_v = 8;
  return p;
}

double slowest(const std::vector<Simulated>& all) { return std::ranges::max(all, {}, &Simulated::total).total; }

constexpr ranks::WireWidths kWidths{4, 4};

/// A step of a ring takes as long as the slower of its work and its message.
TEST(Simulate, RingTakesTheSlowerOfWorkAndMessages) {
  constexpr int kRanks = 8;
  constexpr double kRate = 1e9;
  const World ring(whole(64), {.grid_rows = kRanks, .transfer = ranks::Transfer::ring});
  const double work = 8.0 * 8 * ranks::operations_of_pair(ring.problem()).to_double() / kRate;
  const double bytes = 8.0 * (8 + 8) * 4;
  for (const double bandwidth : {1e12, 1e6}) {
    const Network network{.latency = 1e-7, .bandwidth = bandwidth, .overlap = 1, .arithmetic = kRate};
    // Work hides all messages; or each message but the last hides the work, and the last block is worked on at the end.
    const double message = bytes / bandwidth, last = (kRanks - 1) * message + network.latency;
    const double expected = work > message ? kRanks * work : std::max(work, last) + work;
    EXPECT_NEAR(slowest(simulate(ring, kWidths, network)), expected, 0.02 * expected) << bandwidth;
  }
}

/// What is gathered comes before the work: all of it at the bandwidth of a link, and one latency.
TEST(Simulate, AllGatherWaitsForAllBeforeItWorks) {
  constexpr int kRanks = 6;
  const World gather(whole(60), {.grid_rows = kRanks, .transfer = ranks::Transfer::gather});
  const Network network{.latency = 1e-5, .bandwidth = 1e6, .overlap = 1, .arithmetic = 1e9};
  const double work = 10.0 * 60 * ranks::operations_of_pair(gather.problem()).to_double() / network.arithmetic;
  const double come = 50.0 * 16 * 4 / network.bandwidth + network.latency;
  for (const Simulated& s : simulate(gather, kWidths, network)) {
    EXPECT_NEAR(s.total, come + work, 1e-9);
    EXPECT_NEAR(s.working, work, 1e-12);
    EXPECT_NEAR(s.waiting, come, 1e-9);
  }
}

/// Gradients of sinks go from the first rank to the last, and round to the others, once all work is done.
TEST(Simulate, SumsOverRanksTakeTwoHopsForEachRankButOne) {
  constexpr int kRanks = 5;
  Problem p = whole(50);
  p.op = Operation::backward;
  p.heads = 7;
  const Network network{.latency = 1e-3, .bandwidth = 1e6, .overlap = 1, .arithmetic = 1e9};
  const auto seconds = [&] {
    const World w(p, {.grid_rows = kRanks, .transfer = ranks::Transfer::gather});
    const ranks::Load load = loads_of(w)[0];
    return std::pair(slowest(simulate(w, kWidths, network)), seconds_of(p, w.layout(), load, kWidths, network));
  };
  const auto [simulated, modelled] = seconds();
  p.sinks = p.sinks_gradient = true;
  const auto [with_sums, modelled_with_sums] = seconds();
  const double expected = 2 * (kRanks - 1) * (1e-3 + 7 * 4 / 1e6);
  EXPECT_NEAR(with_sums - simulated, expected, 1e-9);
  EXPECT_NEAR(modelled_with_sums - modelled, expected, 1e-9);
}

/// Inputs come beside the first half of the work on a rank's own rows, and the last results beside the second.
TEST(Simulate, WorkHidesMessagesThatTakeLessThanHalfABlock) {
  constexpr double kRate = 1e9;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const ranks::Transfer transfer : {ranks::Transfer::exchange, ranks::Transfer::ring})
      for (const int P : {2, 3, 4, 8})
        for (const ranks::Layout& shape : {ranks::Layout{1, P, 1}, ranks::Layout{1, 1, P}}) {
          Problem p = whole(16 * P);
          p.op = op;
          const World w(p, {.grid_rows = shape.grid_rows, .grid_cols = shape.grid_cols, .transfer = transfer});
          const double block = 16.0 * 16 * ranks::operations_of_pair(p).to_double() / kRate;
          constexpr double kWidest = 16.0 * (8 + 8 + 2) * 4;  // bytes of a block of queries of a gradient
          const Network network{
              .latency = 1e-9, .bandwidth = kWidest / (0.49 * block), .overlap = 1, .arithmetic = kRate};
          for (const Simulated& s : simulate(w, kWidths, network)) {
            EXPECT_NEAR(s.total, P * block, 1e-3 * block) << w.layout() << ' ' << name_of(op);
            EXPECT_NEAR(s.waiting, 0, 1e-3 * block) << w.layout() << ' ' << name_of(op);
          }
        }
}

/// Neighbours send what a window reaches before they work, whatever the step that needs it.
TEST(Simulate, WorkHidesTheHaloOfAWindow) {
  for (const Operation op : {Operation::forward, Operation::backward}) {
    Problem p = whole(128);
    p.op = op;
    p.window_left = 4;
    p.window_right = 0;
    const World w(p, {.grid_rows = 8});
    const Network network{.latency = 0, .bandwidth = 1e9, .overlap = 1, .arithmetic = 1e8};
    const double work = (ranks::pairs_of(w, 1) * ranks::operations_of_pair(p)).to_double() / network.arithmetic;
    EXPECT_NEAR(slowest(simulate(w, kWidths, network)), work, 1e-6 * work) << name_of(op);
  }
}

RC_GTEST_PROP(Simulate, EveryLayoutEnds, ()) {
  const ranks::test::Spread s = ranks::test::any_spread(12);
  const World w(s.problem, s.layout);
  const Network network{.latency = 1e-6, .bandwidth = 1e8, .overlap = 1, .arithmetic = 1e9};
  double working = 0, pairs = 0;
  for (const Simulated& one : simulate(w, kWidths, network)) working += one.working;
  for (int r = 0; r < w.ranks(); ++r) pairs += pairs_of(w, r).to_double();
  const double expected = pairs * ranks::operations_of_pair(s.problem).to_double() / network.arithmetic;
  RC_ASSERT(std::abs(working - expected) <= 1e-9 * expected);
}

TEST(Simulate, NothingIsHiddenWithoutOverlap) {
  const World w(whole(64), {.grid_rows = 4});
  const Network network{.latency = 0, .bandwidth = 1e6, .overlap = 0, .arithmetic = 1e9};
  const double work = 16.0 * 64 * ranks::operations_of_pair(w.problem()).to_double() / network.arithmetic;
  const double sent = 48.0 * 16 * 4 / network.bandwidth;
  EXPECT_GE(slowest(simulate(w, kWidths, network)), work + sent - 1e-12);
}

}  // namespace
}  // namespace redblue::test::of_ranks
