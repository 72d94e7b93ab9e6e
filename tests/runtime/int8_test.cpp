#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "redblue/hardware/isa.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/widths.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"

/// Keys and values of int8 with scales, against the same numbers in floats.
namespace redblue::test {
namespace {

enum class Order : std::uint8_t { heads_first, tokens_first };

struct Int8Arrays {
  Problem p;
  index_t keys;  ///< of a block; 0: all of a head
  index_t kv_heads, blocks;
  std::vector<std::int8_t> k, v;
  std::vector<float> k_scales, v_scales;
  std::vector<float> q, o, lse;
  Order order;

  Int8Arrays(const Problem& of, index_t keys_of_block, Order at)
      : p(of),
        keys(keys_of_block),
        kv_heads(p.kv_heads.value_or(p.heads)),
        blocks(keys == 0 ? 1 : ceil_div(p.n_k, keys)),
        order(at) {
    std::mt19937_64 random(7);
    const auto filled = [&](auto& list, index_t n, auto draw) {
      list.resize(static_cast<std::size_t>(n));
      for (auto& x : list) x = draw();
    };
    std::uniform_int_distribution<int> word(-127, 127);
    std::uniform_real_distribution<float> scale(0.002F, 0.02F);
    std::normal_distribution<float> number;
    const auto any_word = [&] { return static_cast<std::int8_t>(word(random)); };
    filled(k, p.batch * kv_heads * p.n_k * p.d, any_word);
    filled(v, p.batch * kv_heads * p.n_k * p.d_v, any_word);
    filled(k_scales, p.batch * kv_heads * blocks, [&] { return scale(random); });
    filled(v_scales, p.batch * kv_heads * blocks, [&] { return scale(random); });
    filled(q, p.batch * p.heads * p.n_q * p.d, [&] { return number(random); });
    o.resize(static_cast<std::size_t>(p.batch * p.heads * p.n_q * p.d_v));
    lse.resize(static_cast<std::size_t>(p.batch * p.heads * p.n_q));
  }

  std::array<index_t, 4> strides(index_t cols) const {
    return order == Order::heads_first ? detail::contiguous_strides({p.batch, kv_heads, p.n_k, cols})
                                       : std::array<index_t, 4>{p.n_k * kv_heads * cols, cols, kv_heads * cols, 1};
  }
  Tensor int8(std::vector<std::int8_t>& words, std::vector<float>& scales, index_t cols) {
    Tensor t(words.data(), DType::int8, {p.batch, kv_heads, p.n_k, cols}, strides(cols));
    t.scales = {scales.data(), keys, kv_heads * blocks, blocks, 1};
    return t;
  }
  Tensor q_tensor() { return {q, {p.batch, p.heads, p.n_q, p.d}}; }
  Outputs outputs() { return {{o, {p.batch, p.heads, p.n_q, p.d_v}}, {lse, {p.batch, p.heads, p.n_q, 1}}}; }
  Inputs inputs() { return {q_tensor(), int8(k, k_scales, p.d), int8(v, v_scales, p.d_v)}; }

  /// What the words stand for.
  std::vector<double> numbers(const std::vector<std::int8_t>& words, const std::vector<float>& scales,
                              index_t cols) const {
    std::vector<double> x(words.size());
    const auto s = strides(cols);
    for (index_t b = 0; b < p.batch; ++b)
      for (index_t h = 0; h < kv_heads; ++h)
        for (index_t j = 0; j < p.n_k; ++j)
          for (index_t t = 0; t < cols; ++t) {
            const auto at = static_cast<std::size_t>(b * s[0] + h * s[1] + j * s[2] + t);
            const index_t block = keys == 0 ? 0 : j / keys;
            x[at] = words[at] * double{scales[static_cast<std::size_t>((b * kv_heads + h) * blocks + block)]};
          }
    return x;
  }
  /// o, then lse, of these in fp64.
  std::vector<double> truth() {
    std::vector<double> k64 = numbers(k, k_scales, p.d), v64 = numbers(v, v_scales, p.d_v), q64(q.begin(), q.end());
    std::vector<double> all(o.size() + lse.size());
    const std::span<double> o64(all.data(), o.size()), lse64(all.data() + o.size(), lse.size());
    RunOptions exact;
    exact.compute = DType::f64;
    run(some_plan(p),
        {{q64, {p.batch, p.heads, p.n_q, p.d}},
         {k64, {p.batch, kv_heads, p.n_k, p.d}, strides(p.d)},
         {v64, {p.batch, kv_heads, p.n_k, p.d_v}, strides(p.d_v)}},
        {{o64, {p.batch, p.heads, p.n_q, p.d_v}}, {lse64, {p.batch, p.heads, p.n_q, 1}}}, exact);
    return all;
  }
};

Problem of_shape(index_t n_q, index_t n_k, index_t d, index_t d_v, index_t heads, index_t kv_heads) {
  Problem p = problem(n_q, n_k, d, d_v);
  p.batch = 2, p.heads = heads, p.kv_heads = kv_heads, p.lse_required = true;
  return p;
}

void check_int8(const Problem& p, index_t keys, Order order = Order::heads_first) {
  Int8Arrays a(p, keys, order);
  const std::vector<double> truth = a.truth();
  const std::vector<plan::Plan> least = plans_in_turn(p);
  for (std::size_t i = 0; i < 2 * least.size(); ++i) {
    plan::Plan plan = least[i / 2];
    if (!plan.row().algorithm->traits.stable) continue;
    if (i % 2 == 1) {
      plan::Options o;
      o.schedule = plan.row().schedule;
      o.M = std::max(plan.options.M, Words(100000));
      plan = plan::make_plan(p, o);
    }
    for (const DType compute : {DType::f32, DType::f64}) {
      SCOPED_TRACE(text_of(plan) + ", keys of a scale: " + std::to_string(keys) + ", " + std::string(name_of(compute)));
      RunOptions options;
      options.compute = compute;
      const Measured m = run(plan, a.inputs(), a.outputs(), options);
      EXPECT_EQ(m.io, plan.row().io);
      double error = 0;
      for (std::size_t j = 0; j < truth.size(); ++j) {
        const double got = j < a.o.size() ? a.o[j] : a.lse[j - a.o.size()];
        error = std::max(error, got == truth[j] ? 0.0 : std::abs(got - truth[j]));
      }
      EXPECT_LE(error, 1e-5);  // of values up to 2.5; NaN is not
    }
  }
}

TEST(Int8, EverySchedulesOutputIsThatOfWordsTimesScales) {
  Problem causal = of_shape(20, 57, 33, 20, 2, 2);
  causal.causal = true;
  Problem window = of_shape(2, 90, 64, 64, 4, 2);
  window.causal = true, window.window_left = 70;
  Problem modified = of_shape(3, 61, 16, 16, 4, 2);
  modified.softcap = 2, modified.seqused_k = {61, 7};
  for (const Problem& p : cases<Problem>({of_shape(1, 150, 64, 64, 8, 1), of_shape(1, 77, 17, 9, 4, 4), causal, window,
                                          modified, of_shape(5, 60, 96, 40, 2, 1)}))
    for (const index_t keys : {0, 16}) check_int8(p, keys);
  check_int8(of_shape(1, 90, 64, 32, 8, 2), 32, Order::tokens_first);
}

/// The output errs by the rounding of weights to bf16 alone: up to 2^-9 of the largest value, and scores not at all.
void check_bf16(const Problem& p, index_t keys) {
  Int8Arrays a(p, keys, Order::heads_first);
  std::vector<std::uint16_t> q16;
  for (float& x : a.q) {
    q16.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
    x = std::bit_cast<float>(std::uint32_t{q16.back()} << 16);
  }
  const std::vector<double> truth = a.truth();
  Inputs in = a.inputs();
  in.q = Tensor(q16.data(), DType::bf16, in.q.shape);
  RunOptions options;
  options.compute = DType::bf16;
  for (const plan::Plan& plan : in_turn(plans_of_every_schedule(p))) {
    if (!plan.row().algorithm->traits.stable) continue;
    SCOPED_TRACE(text_of(plan) + ", keys of a scale: " + std::to_string(keys));
    const Measured m = run(plan, in, a.outputs(), options);
    EXPECT_EQ(m.io, plan.row().io);
    if (facts_of(best_isa()).multiplies_bf16) {
      EXPECT_EQ(m.kernels, name_of(Isa::avx512_bf16));
    }
    double error = 0, lse_error = 0;
    for (std::size_t j = 0; j < truth.size(); ++j) {
      const bool of_o = j < a.o.size();
      const double got = of_o ? a.o[j] : a.lse[j - a.o.size()];
      double& worst = of_o ? error : lse_error;
      worst = std::max(worst, got == truth[j] ? 0.0 : std::abs(got - truth[j]));
    }
    EXPECT_LE(error, 2.54 / 512 + 1e-5);
    EXPECT_LE(lse_error, 1e-5);
  }
}

TEST(Int8, QueriesOfBf16TakeProductsOfBf16) {
  Problem causal = of_shape(2, 61, 33, 20, 4, 2);
  causal.causal = true, causal.softcap = 2;
  for (const Problem& p :
       cases<Problem>({of_shape(1, 150, 64, 64, 8, 1), of_shape(1, 77, 17, 9, 4, 4), of_shape(1, 90, 100, 36, 6, 2),
                       causal, of_shape(1, 40, 128, 200, 5, 1), of_shape(5, 60, 96, 40, 8, 2)}))
    for (const index_t keys : {0, 16}) check_bf16(p, keys);
}

TEST(Int8, OneScaleServesAllHeads) {
  const Problem p = of_shape(1, 70, 64, 64, 4, 2);
  Int8Arrays each(p, 0, Order::heads_first);
  std::ranges::fill(each.k_scales, 0.01F);
  std::ranges::fill(each.v_scales, 0.02F);
  const plan::Plan plan = some_plan(p);
  run(plan, each.inputs(), each.outputs());
  Int8Arrays shared = each;
  shared.o.assign(shared.o.size(), 0);
  Inputs in = shared.inputs();
  const float k = 0.01F, v = 0.02F;
  in.k.scales = {.data = &k}, in.v.scales = {.data = &v};
  run(plan, in, shared.outputs());
  EXPECT_EQ(shared.o, each.o);
}

TEST(Int8, PatternsTakeScalesOfHeads) {
  Problem p = of_shape(20, 20, 8, 8, 2, 2);
  p.patterns = {std::make_shared<const RunLists>(patterns::strided({20, 20}, 4))};
  p.order = PatternOrder::rcm;
  Int8Arrays a(p, 0, Order::heads_first);
  const std::vector<double> truth = a.truth();
  run(some_plan(p), a.inputs(), a.outputs());
  for (std::size_t j = 0; j < a.o.size(); ++j) EXPECT_NEAR(a.o[j], truth[j], 1e-5);
}

template <class E>
void expect_refused(const std::string& part, const Problem& p, const Inputs& in, const Outputs& out,
                    const RunOptions& options = {}) {
  try {
    run(some_plan(p), in, out, options);
    ADD_FAILURE() << "not refused: " << part;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Int8, WhatHasNoMeaningIsRefused) {
  const Problem p = of_shape(2, 30, 8, 8, 2, 2);
  Int8Arrays a(p, 10, Order::heads_first);
  Inputs in = a.inputs();
  in.k.scales = {};
  expect_refused<InvalidProblem>("k is int8 and has no scales", p, in, a.outputs());
  std::vector<float> floats(a.k.size());
  in = a.inputs();
  in.k = Tensor(floats, in.k.shape);
  expect_refused<Unsupported>("give both in int8", p, in, a.outputs());
  in.v = Tensor(floats, in.v.shape);
  in.v.scales = {.data = a.v_scales.data()};
  expect_refused<InvalidProblem>("has scales", p, in, a.outputs());
  in = a.inputs();
  in.q = in.k;
  expect_refused<Unsupported>("tensor q is int8", p, in, a.outputs());
  Problem pattern = of_shape(30, 30, 8, 8, 2, 2);
  pattern.patterns = {std::make_shared<const RunLists>(patterns::strided({30, 30}, 4))};
  Int8Arrays b(pattern, 10, Order::heads_first);
  expect_refused<Unsupported>("one scale for each head", pattern, b.inputs(), b.outputs());
  RunOptions bf16;
  bf16.compute = DType::bf16;
  expect_refused<Unsupported>("must be bf16", p, a.inputs(), a.outputs(), bf16);
}

/// By hand: one query of 4 heads that share keys; flash reads Q, K and V once, and writes O and lse.
TEST(Int8, BytesAreThoseOfWordsAndScales) {
  const index_t n = 1000, d = 64;
  Problem p = problem(1, n, d, d);
  p.heads = 8, p.kv_heads = 2;
  for (const index_t keys : {100, 300, 1000, 5000}) {
    plan::Options o;
    o.keys_per_scale = keys;
    o.memory = plan::ByteMemory{65536, residence_of(p.op, DType::f32, DType::f32, {})};
    set_widths(o, p, DType::f32, DType::f32, {});
    o.schedule = "flash";
    const plan::Plan plan = plan::make_plan(p, o);
    const Words words = 2 * n * d, scales = 2 * ceil_div(n, keys);
    const Io bytes = plan::bytes_of(plan);
    for (const SlowArray a : {SlowArray::K, SlowArray::V}) {
      EXPECT_EQ(plan.row().io.reads[index_of(a)], words);
      EXPECT_EQ(bytes.reads[index_of(a)], words + 4 * scales) << keys;
    }
    EXPECT_EQ(bytes.total(), 2 * (words + 4 * scales) + (2 * 8 * d + 8) * 4);
    EXPECT_EQ(plan.row().bytes, bytes.total());
    EXPECT_EQ(count(plan).moved_bytes, bytes.total());
  }
  p.op = Operation::backward;
  plan::Options o;
  o.keys_per_scale = 10;
  EXPECT_THROW(set_widths(o, p, DType::f32, DType::f32, {}), InvalidProblem);
  p.op = Operation::forward;
  EXPECT_THROW(set_widths(o, p, DType::f32, DType::f32, {{"K", 2}}), InvalidProblem);
}

}  // namespace
}  // namespace redblue::test
