#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "filled.hpp"
#include "plans.hpp"
#include "problems.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/runtime/partial.hpp"
#include "redblue/verify/verify.hpp"
#include "support/approximations.hpp"
#include "support/cases.hpp"
#include "support/oracle.hpp"
#include "support/refusal.hpp"

/// Attention to some of the keys at a time, and merges: whole problems against the oracle of all keys.
namespace redblue::test::of_parts {
namespace {

/// The last keys of all, unless the problem says which.
Problem accumulating(Problem p, Operation op = Operation::forward) {
  p.op = op;
  p.accumulate = true;
  p.causal_offset = p.causal_offset.value_or(p.n_k - p.n_q);
  if (op == Operation::merge) {  // it has no keys
    p.kv_heads.reset();
    p.n_k = p.d = 1;
  }
  return p;
}
Problem in_order(Problem p, PatternOrder order) {
  p.order = order;
  return p;
}
Problem with_score(Problem p, Score score) {
  p.score = score;
  return p;
}

/// Heads, queries and keys from the middle of a whole.
Problem with_dropout(Problem p) {
  p.dropout = 0.3;
  p.seed = 5;
  p.dropout_from = {1, p.heads + 3, 6, 7};
  return p;
}

std::vector<Problem> problems() {
  const Problem groups = with_heads(problem(9, 11, 5, 4), 2, 4, 2);
  return {
      problem(1, 1, 1, 1),
      groups,
      modified(groups),
      with_dropout(groups),
      with_dropout(causal(groups)),
      with_dropout(padded(groups, {9, 4}, {11, 6})),
      with_score(groups, Score::sigmoid),
      causal(groups),
      causal(with_heads(problem(11, 5, 3, 4), 2, 2, 1)),  // the first 6 queries see no key
      causal(problem(5, 5, 3, 4), -100),                  // none does
      windowed(groups, 2, 3),
      windowed(causal(groups), {}, {}, 4),
      padded(groups, {9, 4}, {11, 6}),
      patterned(groups, 2),
      in_order(patterned(groups, 2), PatternOrder::rcm),
      patterned(groups, 1, Own::batch),
      causal(patterned(groups, 3)),
  };
}

/// Outputs that were added to before: every third row of a forward pass has met no key.
void give_outputs(Filled& x) {
  std::mt19937_64 random(3);
  for (const SlowArray a : outputs_of(x.p)) {
    const auto [B, H, rows, cols] = shape_of(x.p, a);
    if (!x.arrays.contains(a))
      x.arrays.emplace(a, Array(x.arrays.begin()->second.tensor().dtype, shape_of(x.p, a), Strides::bhsd));
    std::vector<double> words = normal(B * H * rows * cols, random);
    if (is_forward(x.p.op) && x.p.has_statistics())
      for (std::size_t i = 0; i < words.size(); i += static_cast<std::size_t>(3 * cols))
        std::fill_n(words.begin() + static_cast<std::ptrdiff_t>(i), cols, a == SlowArray::lse ? kMinusInfinity : 0.0);
    x.arrays.at(a).set(words);
  }
}

/// Every schedule that can, on every problem: words of the formula, footprint, and numbers.
TEST(Accumulate, AddsToWhatIsGivenInWordsOfTheFormula) {
  int ran = 0;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::merge})
    for (Problem p : problems()) {
      if (op == Operation::merge &&
          (p.masked() || p.several() || !p.patterns.empty() || p.modifiers().any() || !p.has_statistics()))
        continue;
      p = accumulating(p, op);
      const std::vector<plan::Plan> plans = plans_in_turn(p);
      for (const DType dtype : {DType::f32, DType::f64})
        for (const plan::Plan& plan : plans) {
          SCOPED_TRACE(text_of(plan));
          Filled x(plan.problem, dtype, Strides::bshd);
          give_outputs(x);
          Filled before = x;
          RunOptions options;
          options.compute = dtype;
          const Measured moved = run(plan, x.tensors(), options);
          EXPECT_EQ(moved.io, plan.io());
          EXPECT_EQ(moved.peak, plan.footprint());
          EXPECT_EQ(count(plan).io, plan.io());
          EXPECT_GE(plan.io().total(), plan.bound.words);
          const Verification v = verify(plan.problem, x.tensors(), before.tensors(), dtype, roundings_of(plan));
          for (const Deviation& d : v.outputs) EXPECT_TRUE(d.ok()) << d.name << " " << d.error << " of " << d.tolerance;
          ++ran;
        }
    }
  EXPECT_GT(ran, few_cases() ? 30 : cases(300));
}

TEST(Accumulate, VerifyFindsARunThatForgotWhatWasGiven) {
  const Problem p = accumulating(problem(6, 7, 3, 2));
  Filled x(p, DType::f64, Strides::bhsd);
  give_outputs(x);
  Filled before = x;
  Problem plain = p;
  plain.accumulate = false;
  RunOptions options;
  options.compute = DType::f64;
  run(some_plan(plain), x.tensors(), options);
  EXPECT_FALSE(verify(p, x.tensors(), before.tensors(), DType::f64).ok());
  EXPECT_THROW(verify(p, x.tensors(), DType::f64), InvalidProblem);
}

/// Keys and values from `begin` to `end` of contiguous ones.
template <class T>
Tensor part(std::vector<T>& x, const std::array<index_t, 4>& shape, index_t begin, index_t end) {
  const auto [B, H, n, d] = shape;
  return {x.data() + begin * d,
          std::same_as<T, float> ? DType::f32 : DType::f64,
          {B, H, end - begin, d},
          {H * n * d, n * d, d, 1}};
}
template <class T>
std::vector<T> random_words(index_t count, std::mt19937_64& random) {
  const std::vector<double> x = normal(count, random);
  return std::vector<T>(x.begin(), x.end());
}
std::vector<double> wide(const auto& x) { return std::vector<double>(x.begin(), x.end()); }

/// The problem of some of the keys: its offset is that of these.
Problem of_keys(const Problem& p, index_t begin, index_t end) {
  Problem some = p;
  some.causal_offset = p.causal_offset.value_or(p.n_k - p.n_q) - begin;
  some.prefix = std::clamp<index_t>(p.prefix - begin, 0, end - begin);
  return some;
}

template <class T>
void expect_near(const std::vector<T>& ours, const std::vector<double>& truth, double tolerance, const char* what) {
  ASSERT_EQ(ours.size(), truth.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::isinf(truth[i]))
      EXPECT_EQ(static_cast<double>(ours[i]), truth[i]) << what << ' ' << i;
    else
      EXPECT_NEAR(static_cast<double>(ours[i]), truth[i], tolerance) << what << ' ' << i;
}

/// All parts that these cuts leave, in any order, one after another and merged, are the whole; and so are gradients.
template <class T>
void split(const Problem& p, std::vector<index_t> cuts, std::mt19937_64& random) {
  const index_t kv = p.kv_heads.value_or(p.heads);
  const std::array<index_t, 4> of_q{p.batch, p.heads, p.n_q, p.d}, of_k{p.batch, kv, p.n_k, p.d},
      of_v{p.batch, kv, p.n_k, p.d_v}, of_o{p.batch, p.heads, p.n_q, p.d_v}, of_lse{p.batch, p.heads, p.n_q, 1};
  const auto words = [](const std::array<index_t, 4>& s) { return s[0] * s[1] * s[2] * s[3]; };
  std::vector<T> q = random_words<T>(words(of_q), random), k = random_words<T>(words(of_k), random),
                 v = random_words<T>(words(of_v), random), dO = random_words<T>(words(of_o), random);
  const Result truth = truth_of(p, wide(q), wide(k), wide(v));
  const T minus_infinity = static_cast<T>(kMinusInfinity);
  std::vector<T> o(static_cast<std::size_t>(words(of_o))), lse(static_cast<std::size_t>(words(of_lse)), minus_infinity),
      merged_o = o, merged_lse = lse, dq(q.size()), dk(k.size()), dv(v.size());
  plan::Options options;
  options.M = 40 + 3 * (p.d + p.d_v) * 2 + 60;
  RunOptions how;
  how.compute = kDTypeOf<T>;
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(p.n_k);
  std::vector<std::size_t> order(cuts.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const auto for_parts = [&](const auto& f) {
    for (const std::size_t i : order)
      if (cuts[i + 1] > cuts[i])
        f(of_keys(p, cuts[i], cuts[i + 1]), part(k, of_k, cuts[i], cuts[i + 1]), part(v, of_v, cuts[i], cuts[i + 1]),
          i);
  };
  for_parts([&](const Problem& kind, const Tensor& k_part, const Tensor& v_part, std::size_t) {
    attention_partial(Inputs{{q, of_q}, k_part, v_part}, Outputs{{o, of_o}, {lse, of_lse}}, kind, options, how);
    std::vector<T> one(o.size()), one_lse(lse.size(), minus_infinity);
    attention_partial(Inputs{{q, of_q}, k_part, v_part}, Outputs{{one, of_o}, {one_lse, of_lse}}, kind, options, how);
    merge({{one, of_o}, {one_lse, of_lse}}, {{merged_o, of_o}, {merged_lse, of_lse}}, {}, how);
  });
  const double eps = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53, tolerance = 200 * eps;
  expect_near(o, truth.o, tolerance, "o");
  expect_near(lse, truth.lse, tolerance, "lse");
  expect_near(merged_o, truth.o, tolerance, "merged o");
  expect_near(merged_lse, truth.lse, tolerance, "merged lse");

  for_parts([&](const Problem& kind, const Tensor& k_part, const Tensor& v_part, std::size_t i) {
    const BackwardInputs in{{q, of_q}, k_part, v_part, {dO, of_o}, {o, of_o}, {lse, of_lse}};
    attention_partial(
        in, BackwardOutputs{{dq, of_q}, part(dk, of_k, cuts[i], cuts[i + 1]), part(dv, of_v, cuts[i], cuts[i + 1])},
        kind, options, how);
  });
  Problem whole = p;
  whole.op = Operation::backward;
  std::vector<T> all_dq(q.size()), all_dk(k.size()), all_dv(v.size());
  const BackwardInputs in{{q, of_q}, {k, of_k}, {v, of_v}, {dO, of_o}, {o, of_o}, {lse, of_lse}};
  const BackwardOutputs out{{all_dq, of_q}, {all_dk, of_k}, {all_dv, of_v}};
  run(plan::make_plan(whole, options), in, out, how);
  EXPECT_TRUE(verify(whole, in, out, kDTypeOf<T>).ok());
  for (const auto& [ours, theirs, what] : {std::tuple(&dq, &all_dq, "dq"), {&dk, &all_dk, "dk"}, {&dv, &all_dv, "dv"}})
    expect_near(*ours, wide(*theirs), 40 * tolerance, what);
}

TEST(Accumulate, EverySplitOfTheKeysIsTheWhole) {
  std::mt19937_64 random(11);
  const Problem groups = with_heads(problem(7, 13, 4, 3), 2, 4, 2);
  const std::vector<Problem> wholes = {groups,
                                       causal(groups),
                                       causal(groups, -2),
                                       causal(groups, 40),
                                       windowed(groups, 3, 1),
                                       windowed(causal(groups), {}, {}, 5),
                                       windowed(problem(9, 9, 3, 5), 0, 0)};
  for (const Problem& p : cases(wholes))
    for (const std::vector<index_t>& cuts :
         std::vector<std::vector<index_t>>{{}, {5}, {1, 2, 3, 4, 5, 6, 7, 8}, {4, 4, 8}, {p.n_k - 1}, {3, 7}}) {
      SCOPED_TRACE(::testing::PrintToString(cuts));
      split<float>(p, cuts, random);
      split<double>(p, cuts, random);
    }
}

/// A part without a visible key changes no bit of its rows, whatever they hold.
TEST(Accumulate, RowsThatSeeNoKeyStayAsTheyAre) {
  for (const Problem& shown :
       {causal(problem(20, 6, 3, 4)), causal(problem(5, 5, 3, 4), -100), patterned(problem(20, 6, 3, 4), 2)})
    for (const plan::Plan& plan : plans_of_every_schedule(accumulating(shown))) {
      SCOPED_TRACE(text_of(plan));
      Filled x(plan.problem, DType::f32, Strides::bhsd);
      give_outputs(x);
      const std::vector<double> o = x.arrays.at(SlowArray::O).get(), lse = x.arrays.at(SlowArray::lse).get();
      run(plan, x.tensors());
      const std::vector<double> new_o = x.arrays.at(SlowArray::O).get(), new_lse = x.arrays.at(SlowArray::lse).get();
      Problem alone = shown;
      alone.lse_required = true;
      Filled keys(alone, DType::f32, Strides::bhsd);
      run(some_plan(alone), keys.tensors());
      const std::vector<double> seen = keys.arrays.at(SlowArray::lse).get();
      int stayed = 0;
      for (index_t i = 0; i < shown.n_q; ++i) {
        if (seen[static_cast<std::size_t>(i)] != kMinusInfinity) continue;
        ++stayed;
        EXPECT_EQ(new_lse[static_cast<std::size_t>(i)], lse[static_cast<std::size_t>(i)]);
        for (index_t t = 0; t < shown.d_v; ++t)
          EXPECT_EQ(new_o[static_cast<std::size_t>(i * shown.d_v + t)], o[static_cast<std::size_t>(i * shown.d_v + t)]);
      }
      EXPECT_GT(stayed, 0);
    }
}

/// Sets row i of an array with rows of this many columns.
void set_row(Filled& x, SlowArray a, index_t i, index_t cols, double value) {
  std::vector<double> words = x.arrays.at(a).get();
  std::fill_n(words.begin() + i * cols, cols, value);
  x.arrays.at(a).set(words);
}

/// Where lse = -inf, o may hold anything.
TEST(Accumulate, TakesNothingFromAnOutputThatNoKeyGave) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Problem p = problem(20, 37, 3, 4);
  for (const Problem& shown : {p, causal(p), causal(problem(20, 6, 3, 4)), patterned(p, 2)})
    for (const Operation op : {Operation::forward, Operation::merge}) {
      if (op == Operation::merge && (shown.causal || !shown.patterns.empty())) continue;
      const std::vector<plan::Plan> plans = plans_of_every_schedule(accumulating(shown, op));
      for (const DType dtype : {DType::f32, DType::f64})
        for (const plan::Plan& plan : plans) {
          SCOPED_TRACE(text_of(plan));
          Filled clean(plan.problem, dtype, Strides::bhsd);
          give_outputs(clean);
          if (op == Operation::merge)
            for (const index_t i : {0, 7, 8}) {
              set_row(clean, SlowArray::lse_g, i, 1, kMinusInfinity);
              set_row(clean, SlowArray::Og, i, p.d_v, 0);
            }
          Filled spoilt = clean;
          for (index_t i = 0; i < p.n_q; ++i)
            for (const auto& [o, lse] : {std::pair(SlowArray::O, SlowArray::lse), {SlowArray::Og, SlowArray::lse_g}})
              if (spoilt.arrays.contains(lse) &&
                  spoilt.arrays.at(lse).get()[static_cast<std::size_t>(i)] == kMinusInfinity)
                set_row(spoilt, o, i, p.d_v, i % 2 == 0 ? nan : inf);
          Filled before = spoilt;
          RunOptions options;
          options.compute = dtype;
          run(plan, clean.tensors(), options);
          run(plan, spoilt.tensors(), options);
          const std::vector<double> lse = clean.arrays.at(SlowArray::lse).get(),
                                    o = clean.arrays.at(SlowArray::O).get(),
                                    other = spoilt.arrays.at(SlowArray::O).get();
          EXPECT_EQ(spoilt.arrays.at(SlowArray::lse).get(), lse);
          for (std::size_t w = 0; w < o.size(); ++w) {
            const bool given = lse[w / static_cast<std::size_t>(p.d_v)] != kMinusInfinity;
            EXPECT_TRUE(!given || other[w] == o[w]) << "word " << w << ": " << other[w] << " for " << o[w];
          }
          EXPECT_TRUE(verify(plan.problem, spoilt.tensors(), before.tensors(), dtype, roundings_of(plan)).ok());
        }
    }
}

/// NaN that keys gave comes through, however small its share.
TEST(Accumulate, MergesNaNOfASmallShare) {
  const Problem p = accumulating(problem(2, 1, 1, 3), Operation::merge);
  Filled x(p, DType::f32, Strides::bhsd);
  give_outputs(x);
  for (const index_t i : {0, 1}) {
    set_row(x, i == 0 ? SlowArray::O : SlowArray::Og, i, p.d_v, std::numeric_limits<double>::quiet_NaN());
    set_row(x, SlowArray::lse, i, 1, i == 0 ? -1000 : 1000);
    set_row(x, SlowArray::lse_g, i, 1, i == 0 ? 1000 : -1000);
  }
  run(some_plan(p), x.tensors());
  for (const double o : x.arrays.at(SlowArray::O).get()) EXPECT_TRUE(std::isnan(o));
}

/// The bound of a problem without masks grows by what is read of the given state, and so do the words of flash.
TEST(Accumulate, CostsTheWordsOfWhatIsGiven) {
  const Problem p = with_heads(problem(100, 200, 8, 6), 2, 3, 3);
  const Words state = Words(6) * 100 * (6 + 1), gradients = Words(6) * (100 * 8 + 200 * (8 + 6));
  for (const auto& [op, schedule, words] : {std::tuple(Operation::forward, "flash", state),
                                            {Operation::backward, "two_pass", gradients},
                                            {Operation::backward, "fused_key_outer", gradients},
                                            {Operation::backward, "fused_query_outer", gradients},
                                            {Operation::backward, "spilled", gradients},
                                            {Operation::backward, "fused_values", gradients},
                                            {Operation::backward, "materialised", gradients}}) {
    Problem plain = is_forward(op) ? with_lse(p) : p;
    plain.op = op;
    plan::Options o;
    o.M = 500;
    o.schedule = schedule;
    const plan::Plan given = plan::make_plan(accumulating(plain, op), o), without = plan::make_plan(plain, o);
    EXPECT_EQ(given.io().total(), without.io().total() + words) << schedule;
    EXPECT_EQ(given.io().total_writes(), without.io().total_writes());
    EXPECT_EQ(given.footprint(), without.footprint());
    EXPECT_EQ(given.bound.words, without.bound.words + words) << schedule;
  }
  // small_cache keeps the lse that was given, and reads it for each of ceil(6 / 3) blocks of columns.
  plan::Options o;
  o.M = 20;
  o.schedule = "small_cache";
  o.tiling = plan::Tiling{{"panel", 0}, {"a", 3}, {"b", 3}, {"a2", 3}, {"c2", 3}};
  const Words rows = Words(6) * 100;
  const plan::Plan given = plan::make_plan(accumulating(p), o), without = plan::make_plan(with_lse(p), o);
  EXPECT_EQ(given.io().total_reads(), without.io().total_reads() + state + 2 * rows);
  EXPECT_EQ(given.io().total_writes(), without.io().total_writes() + rows);
  EXPECT_EQ(given.footprint(), without.footprint());
  EXPECT_EQ(given.row().workspace, without.row().workspace + 100);

  const Problem merging = accumulating(p, Operation::merge);
  const plan::Plan plan = some_plan(merging);
  EXPECT_EQ(plan.io().total(), 3 * state);
  EXPECT_EQ(plan.bound.words, 3 * state);
}

/// Below M = d^2 schedules for small caches take it, at every M that attention itself takes.
TEST(Accumulate, TakesSmallCaches) {
  const Problem p = problem(96, 96, 64, 64);
  for (const auto& [op, M, schedule] : {std::tuple(Operation::forward, 5, "small_cache"),
                                        {Operation::forward, 1024, "small_cache"},
                                        {Operation::backward, 5, "materialised"},
                                        {Operation::backward, 512, "materialised"}}) {
    plan::Options o;
    o.M = M;
    const plan::Plan plan = plan::make_plan(accumulating(p, op), o);
    EXPECT_EQ(plan.row().schedule, schedule) << M;
    EXPECT_EQ(count(plan).io, plan.io());
  }
}

/// A run takes no other type for them.
TEST(Accumulate, WordsThatAreAddedToAreAsWideAsTheArithmetic) {
  for (const Operation op : {Operation::forward, Operation::backward, Operation::merge}) {
    const Problem p = accumulating(problem(6, 7, 3, 2), op);
    plan::Options o;
    set_widths(o, p, DType::bf16, DType::f32, {});
    for (const SlowArray a : outputs_of(p)) EXPECT_EQ(o.width[index_of(a)], 4) << name_of(a);
    EXPECT_EQ(o.width[index_of(inputs_of(p).front())], 2);
  }
}

TEST(Accumulate, RefusesWhatHasNoMeaning) {
  const Problem p = accumulating(problem(6, 7, 3, 2));
  const auto refused = [](const auto& f, std::string_view why) { EXPECT_THAT(refusal_of(f), testing::HasSubstr(why)); };
  Problem bad = p;
  bad.sinks = true;
  refused([&] { bad.validate(); }, "sink");
  bad = p;
  bad.dropout = 0.5;
  refused([&] { bad.validate(); }, "a part does not know; a Problem of C++ says it in dropout_from");
  bad.dropout_from = {2, p.heads + 1, 0, 0};
  refused([&] { bad.validate(); }, "dropout_from: 1 heads from head 2 on are no part of 2");
  bad.dropout_from = {0, p.heads, 0, -1};
  refused([&] { bad.validate(); }, "dropout_from: key -1 is out of range");
  bad.dropout_from = {0, p.heads, 0, 3};
  bad.validate();
  bad.dropout = 0;
  refused([&] { bad.validate(); }, "dropout_from is for dropout");
  if (has_approximations()) {
    bad = p;
    bad.approximate("2:1.0");
    refused([&] { bad.validate(); }, "exact attention");
  }
  Problem alibi = p;
  alibi.alibi = true;
  for (const Operation op : {Operation::forward, Operation::backward})
    for (const Problem& masked : {causal(p), windowed(p, 2, {}), windowed(p, {}, 3), alibi}) {
      bad = accumulating(masked, op);
      bad.causal_offset.reset();
      refused([&] { bad.validate(); }, "give a number, n_k - n_q - s");
      bad.causal_offset = 0;
      EXPECT_NO_THROW(bad.validate());
    }
  const Problem merging = accumulating(problem(6, 1, 1, 2), Operation::merge);
  EXPECT_NO_THROW(merging.validate());
  for (const auto& [set, why] : std::initializer_list<std::pair<void (*)(Problem&), std::string_view>>{
           {[](Problem& m) { m.n_k = 7; }, "n_k = 7"},
           {[](Problem& m) { m.d = 3; }, "d = 3"},
           {[](Problem& m) { m.heads = 4, m.kv_heads = 2; }, "kv_heads = 2"},
           {[](Problem& m) { m.scale = 2; }, "scale is for operation forward, backward"},
           {[](Problem& m) { m.d_in = 2; }, "d_in (--d-in) is for operation backward-w"},
           {[](Problem& m) { m.forward_given = false; }, "a part of the keys needs the o and lse of all keys"},
           {[](Problem& m) { m.op = Operation::backward, m.lse_required = true; }, "lse_required (--lse) is for"}}) {
    bad = merging;
    set(bad);
    refused([&] { bad.validate(), bad.require_heeded(); }, why);
  }
  bad = p;
  bad.op = Operation::scores;
  refused([&] { bad.validate(); }, "scores");
  bad = accumulating(p, Operation::backward);
  bad.forward_given = false;
  refused([&] { bad.validate(); }, "o and lse of all keys");
  plan::Options o;
  o.M = 300;
  o.schedule = "key_outer";
  refused([&] { plan::make_plan(p, o); }, "does not continue a given o and lse");
  Filled halves(p, DType::f16, Strides::bhsd);
  halves.arrays.emplace(SlowArray::lse, Array(DType::f32, shape_of(p, SlowArray::lse), Strides::bhsd));
  refused([&] { run(some_plan(p), halves.tensors()); }, "o is f16");
  Filled no_lse(p, DType::f32, Strides::bhsd);
  no_lse.arrays.erase(SlowArray::lse);
  refused([&] { run(some_plan(p), no_lse.tensors()); }, "lse");
}

}  // namespace
}  // namespace redblue::test::of_parts
