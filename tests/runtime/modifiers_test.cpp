#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "redblue/masks/patterns.hpp"
#include "redblue/masks/philox.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/verify/verify.hpp"
#include "support/cases.hpp"
#include "support/refusal.hpp"

/// Softcap, bias, ALiBi, sinks and dropout on whole tensors, with biases and sinks that batches and heads share, under
/// every score function that takes them, and with packed and padded sequences and patterns.
namespace redblue::test {
namespace {

using testing::HasSubstr;

class ModifiersTest : public testing::Test {
 protected:
  static constexpr std::array kScores{Score::sigmoid, Score::relu, Score::identity};
  std::mt19937 random{20261123};
  std::map<SlowArray, std::vector<float>> words;

  index_t draw(index_t least, index_t most) { return std::uniform_int_distribution<index_t>(least, most)(random); }
  bool coin() { return draw(0, 1) == 1; }

  /// Of three sequences, some perhaps empty.
  std::vector<index_t> cumulative(index_t n) {
    const index_t first = draw(0, n);
    return {0, first, draw(first, n), n};
  }
  Problem any_problem(Operation op) {
    Problem p{
        .op = op, .batch = draw(1, 2), .n_q = draw(1, 40), .n_k = draw(8, 40), .d = draw(1, 20), .d_v = draw(1, 20)};
    p.kv_heads = draw(1, 2);
    p.heads = *p.kv_heads * draw(1, 2);
    if (coin()) p.causal = true;
    if (draw(0, 3) == 0) p.window_left = draw(0, 9);
    if (draw(0, 3) == 0) p.cu_seqlens_q = cumulative(p.n_q), p.cu_seqlens_k = cumulative(p.n_k);
    if (draw(0, 3) == 0) {
      const auto used = [&](const std::vector<index_t>& ends, index_t n) {
        std::vector<index_t> lengths;
        for (std::size_t s = 1; s < ends.size(); ++s) lengths.push_back(draw(0, ends[s] - ends[s - 1]));
        for (index_t b = 0; ends.empty() && b < p.batch; ++b) lengths.push_back(draw(0, n));
        return lengths;
      };
      p.seqused_q = used(p.cu_seqlens_q, p.n_q), p.seqused_k = used(p.cu_seqlens_k, p.n_k);
    }
    if (draw(0, 3) == 0) p.patterns = {any_pattern(p)}, p.order = static_cast<PatternOrder>(draw(0, 2));
    const auto size = [&](index_t full) { return coin() ? full : 1; };
    if (coin()) p.bias = {size(p.batch), size(p.heads), size(p.n_q), coin() ? p.n_k : size(p.n_k)};
    p.alibi = coin();
    if (draw(0, 2) == 0 && op != Operation::second) p.score = kScores[static_cast<std::size_t>(draw(0, 2))];
    if (p.score == Score::softmax) {
      if (draw(0, 2) == 0) p.softcap = 2;
      p.sinks = coin();
      if (draw(0, 2) == 0) p.dropout = 0.3;
    }
    p.seed = draw(0, 1000);
    p.forward_given = !follows_forward(op);
    p.lse_required = op == Operation::forward && p.has_statistics();
    p.lse_gradient = (op == Operation::backward || op == Operation::second) && p.has_statistics() && coin();
    p.bias_direction = has_directions(op) && p.bias && coin();
    p.sinks_direction = has_directions(op) && p.sinks && coin();
    if (op != Operation::backward) return p;
    p.sinks_gradient = p.sinks && coin();
    p.bias_gradient = p.bias && coin();
    return p;
  }
  std::shared_ptr<const RunLists> any_pattern(const Problem& p) {
    std::vector<std::uint8_t> seen(static_cast<std::size_t>(p.n_q * p.n_k));
    for (std::uint8_t& pair : seen) pair = coin() ? 1 : 0;
    return std::make_shared<const RunLists>(patterns::of_mask({p.n_q, p.n_k}, seen));
  }
  /// Inputs N(0, 1), a third of the biases with pairs at -inf; outputs NaN.
  Tensors tensors(const Problem& p) {
    std::normal_distribution<float> normal;
    Tensors t;
    words.clear();
    const auto add = [&](SlowArray a, bool input) {
      const auto shape = shape_of(p, a);
      std::vector<float>& w = words[a];
      w.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
      for (float& x : w) x = input ? normal(random) : NAN;
      if (a == SlowArray::slopes)
        for (float& x : w) x = std::abs(x) * 0.1F;
      if (a == SlowArray::bias && draw(0, 2) == 0)
        for (float& x : w) x = draw(0, 3) == 0 ? -INFINITY : x;
      t[a] = Tensor(w, shape);
    };
    for (const SlowArray a : inputs_of(p)) add(a, true);
    for (const SlowArray a : outputs_of(p))
      if (a != SlowArray::lse || !follows_forward(p.op)) add(a, false);
    return t;
  }
  void expect_verified(const Problem& p, const plan::Plan& plan, const Tensors& t) {
    const Measured m = run(plan, t, {.threads = 1});
    EXPECT_EQ(m.io, plan.io());
    EXPECT_LE(m.peak, plan.footprint());
    const Verification v = verify(p, t, DType::f32, roundings_of(plan));
    for (const Deviation& d : v.outputs)
      EXPECT_TRUE(d.ok()) << d.name << " errs by " << d.error << " of " << d.tolerance;
    for (const Difference& d : v.differences)
      EXPECT_TRUE(d.ok()) << d.name << " " << d.gradient << " is not " << d.difference;
    EXPECT_EQ(v.nan_outputs, 0);
  }
  /// Every schedule that takes it, on random problems.
  void try_all(Operation op, int problems, std::size_t schedules) {
    std::map<std::string, int> tried;
    for (int i = 0; i < problems && !HasFailure(); ++i) {
      const Problem p = any_problem(op);
      const Tensors t = tensors(p);
      for (const auto& schedule : plan::Registry::built_in().of(op)) {
        if (schedule->obstacle(p, p.sizes()) || schedule->traits.printed) continue;
        SCOPED_TRACE(testing::Message() << "problem " << i << ", " << schedule->name);
        plan::Options o{.M = draw(200, 4000), .schedule = std::string(schedule->name)};
        o.multiple = {16, 16, 16};
        plan::Plan plan;
        try {
          plan = plan::make_plan(p, o);
        } catch (const Error&) {  // no tiling, with these multiples
          continue;
        }
        ++tried[std::string(schedule->name)];
        expect_verified(p, plan, t);
      }
    }
    EXPECT_GE(tried.size(), schedules);
    for (const auto& [name, times] : tried) EXPECT_GT(times, 0) << name;
  }
};

TEST_F(ModifiersTest, ForwardIsWhatItsDefinitionSays) { try_all(Operation::forward, cases(150), 6); }
TEST_F(ModifiersTest, GradientsAreWhatTheirDefinitionSays) { try_all(Operation::backward, cases(150), 6); }
TEST_F(ModifiersTest, TangentsAreWhatTheirDefinitionSays) { try_all(Operation::tangent, cases(150), 1); }
TEST_F(ModifiersTest, GradientsOfGradientsAreWhatTheirDefinitionSays) { try_all(Operation::second, cases(150), 1); }

TEST_F(ModifiersTest, ThreadsAndTilingsDropTheSameWeights) {
  Problem p{.op = Operation::backward, .batch = 2, .heads = 2, .n_q = 70, .n_k = 90, .d = 16, .d_v = 16};
  p.forward_given = false;
  p.dropout = 0.4;
  p.bias = {1, 1, 70, 90};
  p.bias_gradient = p.sinks = p.sinks_gradient = true;
  const Tensors t = tensors(p);
  const auto dQ_with = [&](index_t M, int threads) {
    run(plan::make_plan(p, {.M = M, .schedule = "two_pass"}), t, {.threads = threads});
    return words;
  };
  const auto one = dQ_with(3000, 1), two = dQ_with(3000, 2), other = dQ_with(9000, 2);
  EXPECT_EQ(one, two);
  for (const SlowArray a : {SlowArray::dQ, SlowArray::dBias, SlowArray::dSinks})
    for (std::size_t i = 0; i < one.at(a).size(); ++i) EXPECT_NEAR(one.at(a)[i], other.at(a)[i], 2e-4);
}

TEST_F(ModifiersTest, ASinkTakesItsShareAndASoftcapItsLimit) {
  // One key with score 0 beside a sink of log 3: a quarter of the weight is left.
  std::vector<float> q{0}, k{0}, v{8}, o(1), lse(1), sinks{std::log(3.0F)};
  Problem p{.n_q = 1, .n_k = 1, .d = 1, .d_v = 1};
  p.sinks = true;
  p.lse_required = true;
  const std::array<index_t, 4> one{1, 1, 1, 1};
  const Inputs in{{q, one}, {k, one}, {v, one}, {}, {}, {sinks, one}};
  run(plan::make_plan(p, {.M = 100}), in, {{o, one}, {lse, one}});
  EXPECT_FLOAT_EQ(o[0], 2);
  EXPECT_FLOAT_EQ(lse[0], std::log(4.0F));
  // A score of 1000 is capped at 5.
  q = k = {std::sqrt(1000.0F)};
  p.sinks = false;
  p.softcap = 5;
  const plan::Plan capped = plan::make_plan(p, {.M = 100});
  EXPECT_THROW(run(capped, in, {{o, one}, {lse, one}}), InvalidProblem) << "sinks that nothing reads";
  run(capped, {{q, one}, {k, one}, {v, one}}, {{o, one}, {lse, one}});
  EXPECT_FLOAT_EQ(lse[0], 5);
}

TEST_F(ModifiersTest, RowsWithoutAKeyHaveTheLseOfTheirSink) {
  Problem p{.n_q = 4, .n_k = 2, .d = 3, .d_v = 2, .causal = true};  // bottom-right: the first two queries see none
  p.sinks = true;
  const Tensors t = tensors(p);
  run(plan::make_plan(p, {.M = 100}), t);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(words.at(SlowArray::lse)[i], words.at(SlowArray::sinks)[0]);
    EXPECT_EQ(words.at(SlowArray::O)[2 * i], 0);
  }
}

/// The parts of a pattern count from the first query and key of their sequence: ALiBi is then the bias that says so.
TEST_F(ModifiersTest, ALiBiOfSequencesUnderAPatternIsThisBias) {
  Problem packed{.batch = 2, .heads = 2, .n_q = 12, .n_k = 15, .d = 4, .d_v = 3};
  packed.patterns = {any_pattern(packed)};
  packed.alibi = true;
  Problem padded = packed;
  packed.cu_seqlens_q = {0, 5, 12}, packed.cu_seqlens_k = {0, 9, 15};
  padded.seqused_q = {7, 12}, padded.seqused_k = {15, 4};
  for (const Problem& p : {packed, padded}) {
    Tensors t = tensors(p);
    run(plan::make_plan(p, {.M = 500}), t);
    const std::vector<float> o = words[SlowArray::O];
    std::vector<float>& bias = words[SlowArray::bias];
    for (index_t b = 0; b < 2; ++b)
      for (std::size_t h = 0; h < 2; ++h)
        for (index_t i = 0; i < p.n_q; ++i)
          for (index_t j = 0; j < p.n_k; ++j) {
            const bool second = !p.cu_seqlens_q.empty() && i >= 5;
            const auto batch = static_cast<std::size_t>(b);
            const index_t offset = second                ? (6 - 7) - 5 + 9
                                   : p.seqused_q.empty() ? 9 - 5
                                                         : p.seqused_k[batch] - p.seqused_q[batch];
            bias.push_back(-words[SlowArray::slopes][h] * static_cast<float>(std::abs(i + offset - j)));
          }
    Problem same = p;
    same.alibi = false;
    same.bias = {2, 2, p.n_q, p.n_k};
    t[SlowArray::slopes] = {};
    t[SlowArray::bias] = Tensor(bias, *same.bias);
    run(plan::make_plan(same, {.M = 500}), t);
    for (std::size_t k = 0; k < o.size(); ++k) EXPECT_NEAR(o[k], words[SlowArray::O][k], 1e-5) << k;
  }
}

/// Nothing but roundings is left of its gradient.
TEST_F(ModifiersTest, TheBiasOfAnOnlyKeyIsVerified) {
  Problem p{.op = Operation::backward, .heads = 4, .n_q = 1, .n_k = 1, .d = 3, .d_v = 5};
  p.forward_given = false;
  p.bias = {1, 4, 1, 1};
  p.bias_gradient = true;
  p.dropout = 0.1;
  expect_verified(p, plan::make_plan(p, {.M = 100}), tensors(p));
}

/// Every shape that broadcasts, with groups of two query heads: under the softmax, where a bias that all keys share
/// gets what the sinks leave, and under the sigmoid, where its gradient is a sum over the pairs.
TEST_F(ModifiersTest, TheGradientOfABiasIsSummedOverWhatSharesIt) {
  for (int shape = 0; shape < 16; ++shape)
    for (const Score score : {Score::softmax, Score::sigmoid}) {
      Problem p{
          .op = Operation::backward, .batch = 2, .heads = 4, .kv_heads = 2, .n_q = 9, .n_k = 11, .d = 3, .d_v = 2};
      const std::array<index_t, 4> full{2, 4, 9, 11};
      p.bias.emplace();
      for (std::size_t k = 0; k < 4; ++k) (*p.bias)[k] = (shape >> k & 1) != 0 ? full[k] : 1;
      p.score = score;
      p.forward_given = false;
      p.bias_gradient = true;
      p.sinks = score == Score::softmax;
      p.causal = coin();
      const Tensors t = tensors(p);
      const std::string schedule = coin() ? "two_pass" : "grouped_key_outer";
      SCOPED_TRACE(testing::Message() << testing::PrintToString(*p.bias) << ' ' << name_of(score) << ' ' << schedule);
      const plan::Plan plan = plan::make_plan(p, {.M = draw(100, 400), .schedule = schedule});
      expect_verified(p, plan, t);
      const auto one = words;
      run(plan, t, {.threads = 3});
      EXPECT_EQ(words, one);
    }
}

/// exp(sink - lse) D for each query, and nothing at all without sinks; no word of S is touched for it.
TEST_F(ModifiersTest, TheGradientOfABiasThatAllKeysShareNeedsNoPairs) {
  Problem p{.op = Operation::backward, .heads = 2, .n_q = 20, .n_k = 30, .d = 4, .d_v = 3};
  p.bias = {1, 2, 20, 1};
  p.bias_gradient = true;
  p.dropout = 0.3;
  for (const bool sinks : {false, true}) {
    p.sinks = sinks;
    const Tensors in = tensors(p);
    Problem f = p.forward();
    run(plan::make_plan(f, {.M = 300}), in);  // o and lse, inputs of the gradients
    for (const char* schedule : {"two_pass", "fused_query_outer", "ring"}) {
      SCOPED_TRACE(schedule);
      const plan::Plan plan = plan::make_plan(p, {.M = 2000, .schedule = schedule});
      const std::size_t a = index_of(SlowArray::dBias);
      EXPECT_EQ(plan.io().reads[a] + plan.io().writes[a], sinks ? 3 * 40 : 40);
      expect_verified(p, plan, in);
      for (std::size_t i = 0; i < 40; ++i) {
        float D = 0;
        for (std::size_t c = 0; c < 3; ++c) D += words.at(SlowArray::dO)[3 * i + c] * words.at(SlowArray::O)[3 * i + c];
        const float left = sinks ? std::exp(words.at(SlowArray::sinks)[i / 20] - words.at(SlowArray::lse)[i]) : 0;
        EXPECT_NEAR(words.at(SlowArray::dBias)[i], left * D, 1e-6F);
        EXPECT_TRUE(sinks || words.at(SlowArray::dBias)[i] == 0);
      }
    }
  }
}

/// A bias goes along where an order moves queries and keys, and so does its gradient.
TEST_F(ModifiersTest, OrdersOfAPatternTakeItsBiasAlong) {
  for (const std::array<index_t, 4>& shape :
       cases<std::array<index_t, 4>>({{2, 4, 7, 9}, {1, 1, 7, 9}, {2, 1, 1, 9}, {1, 4, 7, 1}})) {
    Problem p{.op = Operation::backward, .batch = 2, .heads = 4, .kv_heads = 2, .n_q = 7, .n_k = 9, .d = 3, .d_v = 2};
    p.patterns = {any_pattern(p)};
    p.bias = shape;
    p.bias_gradient = p.sinks = true;
    p.forward_given = false;
    ASSERT_TRUE(p.may_reorder());
    const Tensors t = tensors(p);
    std::map<SlowArray, std::vector<float>> natural;
    for (const PatternOrder order :
         {PatternOrder::natural, PatternOrder::rcm, PatternOrder::jaccard, PatternOrder::in_place}) {
      SCOPED_TRACE(name_of(order));
      p.order = order;
      EXPECT_EQ(p.sizes().sequences->orders.front() == nullptr, !is_searched(order));
      expect_verified(p, plan::make_plan(p, {.M = 400, .schedule = "two_pass"}), t);
      if (order == PatternOrder::natural) natural = words;
      for (const auto& [array, list] : natural)
        for (std::size_t i = 0; i < list.size(); ++i)
          EXPECT_TRUE(words.at(array)[i] == list[i] || std::abs(words.at(array)[i] - list[i]) < 1e-4F)
              << redblue::name_of(array) << ' ' << i;
    }
  }
}

/// Heads that have orders of their own cannot share one bias; a bias for each of them can follow.
TEST_F(ModifiersTest, OnlyABiasOfItsOwnFollowsAnOrderOfItsOwn) {
  Problem p{.heads = 2, .n_q = 9, .n_k = 9, .d = 2, .d_v = 2};
  p.patterns = {any_pattern(p), any_pattern(p)};
  p.bias = {1, 1, 9, 9};
  EXPECT_FALSE(p.may_reorder());
  p.bias = {1, 2, 9, 9};
  EXPECT_TRUE(p.may_reorder());
  p.order = PatternOrder::jaccard;
  expect_verified(p, plan::make_plan(p, {.M = 300}), tensors(p));
  p.alibi = true;
  EXPECT_FALSE(p.may_reorder());
}

TEST_F(ModifiersTest, ABiasThatAllShareIsReadAsItIs) {
  Problem p{.batch = 3, .heads = 2, .n_q = 5, .n_k = 7, .d = 2, .d_v = 2};
  p.bias = {1, 1, 1, 7};
  EXPECT_EQ(p.sizes().modifiers.bias, Modifiers::Bias::of_keys);
  expect_verified(p, plan::make_plan(p, {.M = 100}), tensors(p));
}

TEST_F(ModifiersTest, AMaskOfBoolIsABiasOfZerosAndMinusInfinities) {
  Problem p{.batch = 2, .heads = 2, .n_q = 30, .n_k = 40, .d = 8, .d_v = 8};
  p.bias = {2, 1, 30, 40};
  p.lse_required = true;
  Tensors t = tensors(p);
  std::vector<std::uint8_t> keep(2 * 30 * 40);
  for (std::size_t i = 0; i < keep.size(); ++i) {
    keep[i] = draw(0, 2) > 0 && i / 40 != 7 ? 1 : 0;  // row 7 sees no key
    words[SlowArray::bias][i] = keep[i] != 0 ? 0 : -INFINITY;
  }
  const plan::Plan plan = plan::make_plan(p, {.M = 2000});
  run(plan, t, {});
  const auto wanted = words;
  EXPECT_EQ(wanted.at(SlowArray::O)[7 * 8], 0);
  EXPECT_EQ(wanted.at(SlowArray::lse)[7], -INFINITY);
  t[SlowArray::bias] = Tensor(keep.data(), DType::boolean, *p.bias);
  run(plan, t, {});
  EXPECT_EQ(words, wanted);
  t[SlowArray::Q].dtype = DType::boolean;
  EXPECT_THROW(run(plan, t, {}), Unsupported);
}

TEST_F(ModifiersTest, RefusesWhatMakesNoSense) {
  Problem p{.op = Operation::backward, .heads = 4, .n_q = 5, .n_k = 7, .d = 2, .d_v = 2};
  const auto refusal = [](const Problem& bad) { return refusal_of<InvalidProblem>([&] { bad.validate(); }); };
  Problem bad = p;
  bad.bias = {1, 4, 6, 7};
  EXPECT_THAT(refusal(bad), HasSubstr("bias [1, 4, 6, 7] does not broadcast to [1, 4, 5, 7]"));
  bad = p;
  bad.dropout = 1;
  EXPECT_THAT(refusal(bad), HasSubstr("dropout = 1 is no share"));
  bad = p;
  bad.softcap = -1;
  EXPECT_THAT(refusal(bad), HasSubstr("softcap = -1"));
  bad = p;
  bad.op = Operation::gradient_x;
  bad.sinks = true;
  EXPECT_THAT(refusal(bad), HasSubstr("gradient-x knows no bias"));
  EXPECT_EQ(refusal(p), "accepted");
}

// The numbers of the authors' own test (Random123, kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  using W = PhiloxWords<std::uint32_t>;
  EXPECT_EQ(philox(W{0, 0, 0, 0}, 0, 0), (W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox(W{f, f, f, f}, f, f), (W{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(W{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (W{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DropsItsShare) {
  int kept = 0;
  for (index_t i = 0; i < 100; ++i)
    for (index_t j = 0; j < 100; ++j) kept += dropout_keeps(7, 0.3, 2, i, j) ? 1 : 0;
  EXPECT_NEAR(kept, 7000, 4 * std::sqrt(10000 * 0.3 * 0.7));
}

}  // namespace
}  // namespace redblue::test
