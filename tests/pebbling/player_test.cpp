#include "redblue/pebbling/play/player.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "redblue/kernels/kinds.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/machines/ram/ram.hpp"
#include "redblue/verify/arrays.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/registered.hpp"
#include "support/cases.hpp"
#include "support/refusal.hpp"

/// The machine that plays: every exact schedule is a legal play whose moves are the counted words, with as many pebbles
/// as its footprint has words, and whose graph has the values that the portable kernels compute.
namespace redblue::test {
namespace {

using pebbling::IllegalMove;
using pebbling::Play;
using pebbling::Rules;

constexpr std::size_t kNoLimit = std::size_t{1} << 40U;

void require(bool holds, const std::string& what) {
  if (!holds) throw claims::Broken(what);
}

/// Given outputs have met some key in each row: exp(-inf - -inf) is no number in a graph.
void finite(claims::Arrays<double>& a) {
  if (!a.sizes.accumulate || !a.words.contains(SlowArray::lse)) return;
  for (double& word : a.words[SlowArray::lse])
    if (std::isinf(word)) word = 0.25;
}

/// Where a row of weights is divided by its sum with all of the row resident and no word passing, the sum stands beside
/// it: one of the temporaries that footprints leave out. In double backward it is the gradient of a score on both sides
/// of a softcap, where a row of the bias stays, and no word passes.
bool may_need_a_temporary(const plan::Schedule& s, const Sizes& sizes) {
  const bool full_row = s.operation == Operation::backward && s.name == "ring" && sizes.d_v == 1;
  const bool both_sides = s.operation == Operation::second && sizes.modifiers.derivative_apart();
  return full_row || both_sides || s.name == "strips" || s.name == "ring_two_pass";
}

Io counts_of(const Play& play) {
  Io io;
  const auto array_of = [&](pebbling::Node v) {
    const std::string& name = play.graph.name(v);
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      if (name.substr(0, name.find('[')) == kSlowArrayNames[a]) return static_cast<SlowArray>(a);
    throw claims::Broken(fmt::format("{} is a word of no array", name));
  };
  for (const pebbling::Move& m : play.moves)
    if (m.kind == pebbling::Move::Kind::read && play.graph.is_input(m.node)) io.read(array_of(m.node), 1);
  return io;
}

Play play(const plan::Schedule& s, const claims::Arrays<double>& a, const plan::Tiling& t, const Rules& rules,
          std::size_t M) {
  return pebbling::play(s, a.sizes, *a.problem.scale, a.words, t, rules, M);
}

void require_counts(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t, const Play& play) {
  const Io io = s.io(x, t);
  require(play.cost.reads == static_cast<std::size_t>(io.total_reads().to_index()),
          fmt::format("it reads {} words, the formula says {}", play.cost.reads, io.total_reads().str()));
  require(play.cost.writes == static_cast<std::size_t>(io.total_writes().to_index()),
          fmt::format("it writes {} words, the formula says {}", play.cost.writes, io.total_writes().str()));
  if (x.accumulate) return;  // given outputs are inputs, too
  const Io of_inputs = counts_of(play);
  for (const SlowArray a : plan::inputs_of(s.operation))
    require(of_inputs.reads[index_of(a)] == io.reads[index_of(a)],
            fmt::format("it reads {} words of {}, the formula says {}", of_inputs.reads[index_of(a)].str(), name_of(a),
                        io.reads[index_of(a)].str()));
}

void require_portable_values(const plan::Schedule& s, claims::Arrays<double>& a, const plan::Tiling& t,
                             const Play& play) {
  machine::Ram<double> ram(s.footprint(a.sizes, t).to_index(), a.slow(),
                           kernel::implementations<double>(Isa::portable));
  machine::Any any(ram);
  s.run(any, {a.sizes, *a.problem.scale, 1}, t);
  for (const auto& [array, words] : play.outputs) {
    const double gap = claims::largest_gap(a.words.at(array), words);
    require(gap < 1e-10, fmt::format("{} of its graph differs by {} from that of the kernels", name_of(array), gap));
  }
}

void plays(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t) {
  Sizes sizes = x;
  sizes.fast = {};
  claims::Arrays<double> a(s, sizes, t, finite);
  if (x.score == Score::relu) {
    EXPECT_THROW(play(s, a, t, {}, kNoLimit), Error);
    return;
  }
  const auto footprint = static_cast<std::size_t>(s.footprint(sizes, t).to_index());
  const std::size_t most = footprint + (may_need_a_temporary(s, sizes) ? 1 : 0);
  const Play slid = play(s, a, t, {.compute = Rules::Compute::slide}, most);
  require(slid.cost.peak == footprint || slid.cost.peak == most,
          fmt::format("its peak is {}, its footprint {}", slid.cost.peak, footprint));
  require_counts(s, sizes, t, slid);
  const Play placed = play(s, a, t, {.compute = Rules::Compute::place}, most + 1);
  require(placed.cost.io() == slid.cost.io(), "placing moves other words than sliding");
  if (slid.cost.peak > 0) {
    EXPECT_THROW(play(s, a, t, {.compute = Rules::Compute::slide}, slid.cost.peak - 1), IllegalMove);
  }
  require_portable_values(s, a, t, slid);
}

std::vector<Registered> exact_schedules() {
  std::vector<Registered> list = all_schedules();
  std::erase_if(list, [](const Registered& s) { return s->traits.method != MethodKind::exact; });
  return list;
}

/// T <- T + 1: a kernel of somebody else.
struct AddOne {
  static constexpr std::string_view name = "add_one";
  static constexpr std::array access{kernel::Access::update};
  static constexpr bool fits(Shape) { return true; }
  static constexpr index_t macs(Shape) { return 0; }
  template <class T>
  void run(View<T> t) const {
    t(0, 0) += T(1);
  }
};

}  // namespace

class Plays : public testing::TestWithParam<Registered> {};

TEST_P(Plays, EveryWordAsAPebble) {
  const claims::Claim claim{"PlaysLegally", plays};
  EXPECT_NO_THROW(claims::check(*GetParam(), claim, cases(30), 1, 45));
}

INSTANTIATE_TEST_SUITE_P(Exact, Plays, testing::ValuesIn(exact_schedules()),
                         [](const auto& info) { return test_name_of(info.param); });

TEST(Player, RefusesKernelsThatItHasNoGraphOf) {
  pebbling::Player player({.compute = Rules::Compute::slide}, kNoLimit);
  const auto tile = player.alloc(SlowArray::Q, {1, 1});
  player.compute(kernel::Zero{}, tile);
  EXPECT_EQ(refusal_of([&] { player.compute(AddOne{}, tile); }),
            "kernel add_one has no scalar graph: it is none of the exact schedules");
}

TEST(Player, RefusesDecisions) { EXPECT_THROW(pebbling::Player::read_index(Question::decision, {}, 1), Error); }

TEST(Player, RefusesWordsThatNobodyHasWritten) {
  pebbling::Player player({.compute = Rules::Compute::slide}, kNoLimit);
  const auto a = player.alloc(SlowArray::Q, {1, 1});
  EXPECT_THROW(player.compute(kernel::Scale{2}, a), Error);
  EXPECT_THROW(player.store(a, Block{SlowArray::Q, 0, 0, 0, {1, 1}}), Error);
}

/// A product whose two factors both pass needs a word of one of them again for each word of the other.
TEST(Player, RefusesStreamsThatNoOrderServes) {
  pebbling::Player player({.compute = Rules::Compute::slide}, kNoLimit);
  const std::vector<double> words(4, 0.5);
  const SlowMatrix Q{SlowArray::Q, {2, 2}}, K{SlowArray::K, {2, 2}};
  player.give(Q, words);
  player.give(K, words);
  const auto S = player.alloc(SlowArray::S, {2, 2});
  EXPECT_EQ(refusal_of([&] { player.compute(kernel::Scores{}, S, player.stream(Q.all()), player.stream(K.all())); }),
            "kernel scores cannot be played word by word: no order of its streams has the words together that belong "
            "together");
}

}  // namespace redblue::test
