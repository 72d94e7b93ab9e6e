#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "redblue/masks/patterns.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/flash_pinned.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "redblue/schedules/forward/split_keys.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/schedules/ring/forward.hpp"
#include "redblue/schedules/scores/sddmm.hpp"
#include "redblue/schedules/strips/backward.hpp"
#include "redblue/schedules/strips/forward.hpp"
#include "redblue/verify/bytes_moved.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/mutants/rings.hpp"

namespace redblue::test {

using namespace mutants;
using namespace schedule;

namespace {

Sizes masked() { return {7, 9, 3, 2, {.hi = 3}, true}; }
Sizes plain() { return {7, 9, 3, 2, {}, true}; }
Sizes window() { return {7, 9, 3, 2, {.lo = -2, .hi = 3}, true}; }
Sizes without_the_last_key(Sizes x) {
  --x.n_k;
  return x;
}

/// Pairs that are not there are formed, and not hidden. Words and room are right: only numbers show it.
struct KeyOuterHidesNothing : KeyOuterForward {
  static constexpr std::string_view name = "key_outer_hides_nothing";
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    ForwardOperands y = x;
    y.shape.hiding = nullptr;
    KeyOuterForward::run(m, y, t);
  }
};

/// Its output is read again when it is finished, and its formula says so: its words are right, and bytes that take what
/// is read for unfinished are not.
struct FlashReadsItsOutput : FlashForward {
  static constexpr std::string_view name = "flash_reads_its_output";
  static Io io(const Sizes& x, Tiling t) { return FlashForward::io(x, t).read(SlowArray::O, Words(x.n_q) * x.d_v); }
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    FlashForward::run(m, x, t);
    const auto again = m.load(x.O.all());
  }
};

}  // namespace

TEST(Mutants, OfFlashAreCaught) {
  using S = FlashForward;
  const S::Tiling t{3, 1};
  const Trace flash = recorded<S>(masked(), t);
  const auto step = computes<kernel::Scores>();
  expect_caught<S>(
      masked(), t,
      {{"loads keys instead of streaming", resident(flash, step, K)},
       {"reloads queries for every key", again(flash, loads(Q), step)},
       {"forgets to store lse", without(flash, all(stores(lse)))},
       {"forgets to store the last block", without(flash, last(stores(O)))},
       {"allocates scores too early", with_room_throughout(flash, t.Br)},
       {"keeps scores as a square tile",
        with_room(flash, computes<kernel::OnlineSoftmax>(), t.Br * (masked().n_k - 1))},
       {"streams values twice", twice(flash, all(computes<kernel::Gemm>()))},
       {"skips the initialisation", without(flash, all(computes<kernel::SoftmaxInit>()))},
       {"stores into an input", also(flash, all(stores(O)), [](Operation& op) { op.args[0].block.array = Q; })},
       {"visits invisible keys", recorded<S>(plain(), t)},
       {"misses the last key", recorded<S>(without_the_last_key(masked()), t)}});
}

TEST(Mutants, FlashThatForgetsAGivenStateIsCaught) {
  using S = FlashForward;
  const S::Tiling t{3, 1};
  Sizes given = masked();
  given.accumulate = true;
  expect_caught<S>(given, t, {{"begins with nothing, whatever was given", recorded<S>(masked(), t)}});
}

TEST(Mutants, KeyOuterThatForgetsWhatWasIsCaught) {
  using S = KeyOuterForward;
  const S::Tiling t{4, 1};
  const Trace right = recorded<S>(plain(), t);
  EXPECT_EQ(verdict_of<S>(plain(), t, right), "");
  EXPECT_EQ(verdict_of<S>(plain(), t, with(right, anything(), &kernel::MergeOutput::first, true)),
            "words differ from the formula");
}

TEST(Mutants, OfSplitKeysAreCaught) {
  using S = SplitKeysForward;
  const S::Tiling t{3, 1, 5};
  const Trace split = recorded<S>(masked(), t);
  const auto merge = computes<kernel::MergeRows>();
  expect_caught<S>(masked(), t,
                   {{"merges before the groups", phases_first(split, loads(lse_g))},
                    {"forgets the last group", without(split, all(merge && touches(Og, (t.G - 1) * masked().n_q)))},
                    {"forgets lse of the groups", without(split, all(stores(lse_g)))},
                    {"keeps lse of all groups", with_room(split, merge, t.Br * (t.G - 1))}});
}

TEST(Mutants, OfRingAreCaught) {
  using S = RingForward;
  const S::Tiling t{2, 1};
  const Trace ring = recorded<S>(window(), t);
  expect_caught<S>(window(), t,
                   {{"has a place too few", with_fewer_places(ring, {K, V}, S::places(window(), t))},
                    {"has a place too many", with_room_throughout(ring, window().d + window().d_v)},
                    {"loads keys again", again(ring, loads(K), computes<kernel::Scores>())},
                    {"misses the last key of all", without(ring, last(loads(K)))}});
}

TEST(Mutants, OfRingBackwardAreCaught) {
  const RingBackward::Tiling t{2, 1};
  expect_caught<RingBackward>(window(), t, slips_in_ring_backward(window(), t));
}

TEST(Mutants, OfSddmmAreCaught) {
  using S = Masked<WeightMatrix>;
  for (const ScoreTiling scores : {ScoreTiling{0, 3, 2}, ScoreTiling{1, 3, 2}}) {
    const S::Tiling t{S::One{scores}};
    const Trace weights = recorded<S>(window(), t);
    const auto scale = computes<kernel::Scale>();
    const Is in_a_row = has([](const Arg& a) { return a.kind == Arg::Kind::tile && a.block.col > 0; });
    expect_caught<S>(
        window(), t,
        {{"leaves hidden pairs unwritten", without(weights, all(computes<kernel::ZeroOver>()))},
         {"forgets keys before the window",
          without(weights, all(computes<kernel::ZeroOver>() && has([](const Arg& a) { return a.block.col == 0; })))},
         {"stores a hidden pair", changed(weights, first(stores(P) && in_a_row),
                                          [](Operation& op) {
                                            for (Arg& a : op.args) --a.block.col, ++a.block.shape.cols;
                                          })},
         {"loads lse for every tile", again(weights, loads(lse), scale)},
         {"forgets lse", without(weights, all(loads(lse)))},
         {"streams keys twice", twice(weights, all(computes<kernel::Gemm>()))}});
  }
}

TEST(Mutants, OfKeysThatStayUnderAWindowAreCaught) {
  using S = FlashPinnedForward;
  const S::Tiling t{2, 3, 1};
  const auto keeping = [&](index_t rho) {
    S::Tiling other = t;
    other.rho = rho;
    return recorded<S>(window(), other);
  };
  expect_caught<S>(window(), t,
                   {{"loads kept keys again", again(keeping(t.rho), loads(K), computes<kernel::Scores>())},
                    {"keeps one key less", keeping(t.rho - 1)},
                    {"keeps one key more", keeping(t.rho + 1)}});
}

TEST(Mutants, OfHiddenPairsThatAreFormedAreCaught) {
  const std::vector<std::uint8_t> seen{1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0};
  Sizes x{.n_q = 3, .n_k = 4, .d = 3, .d_v = 2};
  x.hiding = std::make_shared<const Pattern>(patterns::of_mask({x.n_q, x.n_k}, seen), x.n_k);
  const WeightMatrix::Tiling t{{0, 2, 2}};
  const auto store_pairs_only = [&](const Operation& op, index_t) {
    const Block& box = op.args[0].block;
    Operations words;
    for (index_t r = 0; r < box.shape.rows; ++r)
      for (index_t c = 0; c < box.shape.cols; ++c) {
        if (seen[static_cast<std::size_t>((box.row + r) * x.n_k + box.col + c)] == 0) continue;
        words.push_back(op);
        for (Arg& a : words.back().args) a.block.row += r, a.block.col += c, a.block.shape = {1, 1};
      }
    return words;
  };
  expect_caught<WeightMatrix>(
      x, t, {{"stores pairs only", replaced(recorded<WeightMatrix>(x, t), all(stores(P)), store_pairs_only)}});
  EXPECT_NO_THROW(claims::check(describe<KeyOuterForward>()));
  EXPECT_ANY_THROW(claims::check(describe<KeyOuterHidesNothing>()));
}

TEST(Mutants, ThatReadFinishedOutputsAreCaught) {
  const plan::Schedule right = describe<FlashForward>(), wrong = describe<FlashReadsItsOutput>();
  const plan::Tiling t = right.smallest(plain(), {});
  machine::Counting counting;
  machine::Any any(counting);
  wrong.run(any, {plain(), 1, 1}, t);
  EXPECT_EQ(counting.io(), wrong.io(plain(), t));
  EXPECT_NO_THROW(claims::bytes_are_those_of_unfinished_words(right, plain(), t));
  EXPECT_THROW(claims::bytes_are_those_of_unfinished_words(wrong, plain(), t), claims::Broken);
}

TEST(Mutants, ThatLoadSlopesForEverySequenceAreCaught) {
  Sequences sequences;
  sequences.list = {{0, {0, 3}, {0, 4}}, {0, {3, 7}, {4, 9}}};
  Sizes x{.n_q = 7, .n_k = 9, .d = 3, .d_v = 2, .modifiers = {.slopes = true}};
  x.sequences = std::make_shared<const Sequences>(sequences);
  using S = Masked<FlashForward>;
  const S::Tiling t{S::One{2, 1}};
  expect_caught<S>(
      x, t,
      {{"loads slopes for every sequence", again(recorded<S>(x, t), loads(slopes), computes<kernel::SoftmaxInit>())}});
}

TEST(Mutants, OfStripsAreCaught) {
  using S = StripsForward;
  const S::Tiling t{3};
  const Sizes x{10, 11, 3, 2, {.lo = -1, .hi = 3}, true};
  const Trace strips = recorded<S>(x, t);
  const auto product = computes<kernel::PairProducts>();
  constexpr index_t hidden = 6;  // in a strip of 3 queries that see 4 keys each
  expect_caught<S>(x, t,
                   {{"keeps words for hidden pairs", with_room(strips, product, hidden)},
                    {"starts from the first key", recorded<S>({10, 11, 3, 2, {.hi = 3}, true}, t)},
                    {"misses the last key", recorded<S>(without_the_last_key(x), t)},
                    {"keeps keys instead of streaming", resident(strips, product, K)},
                    {"keeps lse beside the values", with_room(strips, computes<kernel::PairTimesColumn>(), t.a)},
                    {"forgets to store lse", without(strips, first(stores(lse)))},
                    {"forgets the last column of outputs", without(strips, last(stores(O)))},
                    {"skips the initialisation of outputs", without(strips, all(computes<kernel::Zero>(O)))},
                    {"stores outputs twice", twice(strips, all(stores(O)))}});
}

TEST(Mutants, OfStripsBackwardAreCaught) {
  using S = StripsBackward;
  const S::Tiling t{3, 4};
  const Sizes x{10, 11, 3, 2, {.lo = -1, .hi = 3}};
  const Trace strips = recorded<S>(x, t);
  const auto product = computes<kernel::PairProducts>();
  constexpr index_t pairs = 12;  // of a strip of 3 queries
  const auto spills = stores(P_b) || stores(dS_b);
  const auto to_first_query = [&](Operation& op) {  // strips begin with queries 0, 1, 4 and 7
    if (op.args[0].block.col > 0) op.args[0].block.col = 1 + (op.args[0].block.col - 1) / t.a * t.a;
  };
  const auto to_own_rows = [&](Operation& op) {
    op.args[0].block.row = x.pairs().keys_of({op.args[0].block.col, op.args[0].block.col + 1}).begin;
  };
  std::vector<Operations> misses_the_last_keys = phases_of(strips);
  while (!has(misses_the_last_keys.back(), stores(dV))) misses_the_last_keys.pop_back();
  misses_the_last_keys.pop_back();
  expect_caught<S>(
      x, t,
      {{"forms dK before dS", phases_first(strips, stores(dK))},
       {"forms dK of the probabilities",
        in_phases(strips, stores(dK), [&](auto& p) { return mixed_up(p, anything(), dS_b, P_b); })},
       {"stores dQ into dK", mixed_up(strips, anything(), dQ, dK)},
       {"reads lse", replaced(strips, all(computes<kernel::PairSoftmax>()),
                              [&](const Operation& op, index_t) {
                                const Arg rows = Arg::streaming({.array = lse, .shape = op.args[1].shape()});
                                return Operations{{.kind = Operation::Kind::read, .args = {op.args[1], rows}}, op};
                              })},
       {"keeps lse to the end", with_room(strips, product, t.a)},
       {"keeps a third strip", with_room(strips, product, pairs)},
       {"loads words of dS twice", twice(strips, first(loads(dS_b)))},
       {"loads dS and P together",
        in_phases(strips, stores(dV),
                  [](auto& p) { return with_room(p, computes<kernel::PairTimesColumn>(), pairs); })},
       {"spills to the column of the first query", changed(strips, all(spills), to_first_query)},
       {"spills keys to their own rows", changed(strips, all(spills), to_own_rows)},
       {"forgets to spill the last query",
        without(strips, all(spills && has([&](const Arg& a) { return a.block.col + 1 == x.n_q; })))},
       {"misses the last block of keys", joined(strips, misses_the_last_keys)},
       {"takes dO for Q", in_phases(strips, stores(dK), [&](auto& p) { return mixed_up(p, anything(), Q, dO); })}});
}

/// The core of a problem of any sizes under any interval mask; nothing where no query sees a key. draw(least, most).
template <class Draw>
std::optional<Sizes> any_core(const Draw& draw) {
  Sizes x{.n_q = draw(1, 30), .n_k = draw(1, 30)};
  x.mask.group = draw(1, 3);
  x.n_q *= x.mask.group;
  if (draw(0, 3) == 0) {
    x.sequences = claims::uneven_intervals(x, draw);
    const std::vector<Sizes> parts = sequences_of(with_envelopes(x));
    return parts.empty() || parts.front().hiding != nullptr ? std::nullopt : core_of(parts.front());
  }
  if (draw(0, 3) > 0) x.mask.lo = draw(-12, 12);
  if (draw(0, 3) > 0) x.mask.hi = std::max(draw(-12, 20), x.mask.lo == -Mask::kFar ? -99 : x.mask.lo + 1);
  if (x.mask.hi != Mask::kFar && draw(0, 2) == 0) x.mask.prefix = draw(0, x.n_k);
  return core_of(x);
}

/// Closed forms against block by block, on random cores.
TEST(Ring, HasAPlaceForEachKeyThatTwoBlocksSee) {
  std::mt19937 random(7);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core) continue;
    const index_t a = draw(1, core->n_q), b = draw(1, core->n_k);
    const Pairs pairs = core->pairs();
    const Blocks rows = pairs.row_blocks(a), keys = pairs.key_blocks(b);
    const std::string what = fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} b {}", core->n_q, core->n_k,
                                         core->mask.lo, core->mask.hi, core->mask.prefix, core->mask.group, a, b);
    index_t kept_keys = 0, kept_rows = 0, seen = 0, seeing = 0;
    for (index_t i = 0; i < rows.count(); ++i) {
      const Range I = rows(i), J = pairs.keys_of(I);
      if (i + 1 < rows.count()) kept_keys = std::max(kept_keys, J.end - pairs.keys_of(rows(i + 1)).begin);
      seen = std::max(seen, J.size());
    }
    for (index_t j = 0; j < keys.count(); ++j) {
      const Range J = keys(j), I = pairs.rows_of(J);
      if (j + 1 < keys.count()) kept_rows = std::max(kept_rows, I.end - pairs.rows_of(keys(j + 1)).begin);
      seeing = std::max(seeing, I.size());
    }
    ASSERT_EQ(pairs.most_kept(a), kept_keys) << what;
    ASSERT_EQ(pairs.most_kept_rows(b), kept_rows) << what;
    ASSERT_EQ(schedule::most_seen_keys(*core, a), seen) << what;
    ASSERT_EQ(schedule::most_seeing_rows(*core, b), seeing) << what;
  }
}

TEST(KeptKeys, AreReadOnce) {
  std::mt19937 random(9);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core || core->mask.from_first_key()) continue;
    const index_t a = draw(1, core->n_q), most = draw(0, core->n_k);
    const Pairs pairs = core->pairs();
    const Blocks blocks = pairs.row_blocks(a);
    index_t visits = 0;
    bool streams = false;
    Range kept;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range keys = pairs.keys_of(blocks(i)), keep{std::max(keys.begin, keys.end - most), keys.end};
      for (index_t j = keys.begin; j < keys.end; ++j) {
        visits += kept.holds(j) ? 0 : 1;
        streams = streams || (!kept.holds(j) && !keep.holds(j) && blocks(i).size() == a);
      }
      kept = keep;
    }
    const schedule::KeptKeys closed(pairs, a, most);
    const std::string what =
        fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} most {}", core->n_q, core->n_k, core->mask.lo,
                    core->mask.hi, core->mask.prefix, core->mask.group, a, most);
    ASSERT_EQ(closed.visits(), visits) << what;
    ASSERT_EQ(closed.streams(), streams) << what;
  }
}

/// Closed form against row by row.
TEST(Strips, KnowTheirPairs) {
  std::mt19937 random(8);
  const auto draw = [&](index_t least, index_t most) {
    return std::uniform_int_distribution<index_t>(least, most)(random);
  };
  for (int round = 0; round < 20000; ++round) {
    const std::optional<Sizes> core = any_core(draw);
    if (!core) continue;
    const Pairs pairs = core->pairs();
    const auto pairs_in = [&](Range rows, Range keys) {
      Words sum;
      for (index_t i = rows.begin; i < rows.end; ++i) sum += intersection(pairs.keys_of({i, i + 1}), keys).size();
      return sum;
    };
    const index_t a = draw(1, core->n_q), b = draw(1, core->n_k);
    Words of_rows, of_keys;
    for (index_t i = core->n_q % a; i < core->n_q; i += a)
      of_rows = std::max(of_rows, pairs_in({i, i + a}, {0, core->n_k}));
    for (index_t j = 0; j + b <= core->n_k; j += b) of_keys = std::max(of_keys, pairs_in({0, core->n_q}, {j, j + b}));
    const std::string which =
        fmt::format("n_q {} n_k {} lo {} hi {} prefix {} group {} a {} b {}", core->n_q, core->n_k, core->mask.lo,
                    core->mask.hi, core->mask.prefix, core->mask.group, a, b);
    ASSERT_EQ(pairs.most_pairs_of_rows(a), of_rows) << which;
    ASSERT_EQ(pairs.most_pairs_of_keys(b), of_keys) << which;
  }
}

TEST(Mutants, SmallCacheWithSwappedPhasesIsCaught) {
  using S = SmallCacheForward;
  const S::Tiling t{{0, 3, 2}, {2, 2}};
  expect_caught<S>(plain(), t, {{"swaps its phases", phases_first(recorded<S>(plain(), t), stores(O))}});
}

}  // namespace redblue::test
