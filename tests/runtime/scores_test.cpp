#include <gtest/gtest.h>

#include "filled.hpp"
#include "plans.hpp"
#include "problems.hpp"
#include "redblue/verify/verify.hpp"
#include "support/cases.hpp"

/// Operations scores and weights: whole problems, with batches, groups, sequences, patterns and modifiers.
namespace redblue::test::of_scores {
namespace {

Problem of(Operation op, Problem p) {
  p.op = op;
  return p;
}
Problem packed(Problem p) {
  p.cu_seqlens_q = {0, 4, 4, 9};
  p.cu_seqlens_k = {0, 3, 5, 11};
  return p;
}

std::vector<Problem> problems() {
  const Problem groups = with_heads(problem(9, 11, 5, 4), 2, 4, 2);
  return {
      problem(1, 1, 1, 1),
      groups,
      modified(groups),
      causal(groups),
      causal(with_heads(problem(11, 5, 3, 4), 2, 2, 1)),  // the first 6 queries see no key
      causal(problem(5, 5, 3, 4), -100),                  // none does
      windowed(groups, 2, 3),
      modified(windowed(groups, 2, 0)),
      windowed(problem(8, 8, 3, 4), 0, 0),
      windowed(causal(groups), {}, {}, 4),
      padded(groups, {9, 4}, {11, 6}),
      causal(padded(groups, {}, {3, 11})),
      packed(modified(groups)),
      patterned(groups, 2),
      patterned(modified(groups), 2),
      patterned(groups, 1, Own::head),
      patterned(groups, 1, Own::batch),
      causal(patterned(groups, 3)),
  };
}

/// The lse of a forward pass, or any other numbers where there is none.
void give_lse(Filled& x, DType dtype) {
  Filled forward(with_lse(of(Operation::forward, x.p)), dtype, Strides::bhsd);
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::bias, SlowArray::slopes})
    if (x.arrays.contains(a)) forward.arrays.at(a).set(x.arrays.at(a).get());
  run(some_plan(forward.p), forward.tensors());
  x.arrays.at(SlowArray::lse).set(forward.arrays.at(SlowArray::lse).get());
}

TEST(Scores, AreWhatTheirDefinitionSaysInWordsOfTheFormula) {
  for (const Operation op : {Operation::scores, Operation::weights})
    for (const Problem& p : problems()) {
      const std::vector<plan::Plan> plans = plans_of_every_schedule(of(op, p));
      for (const DType dtype : in_turn<DType>({DType::f32, DType::f64, DType::f16}))
        for (const plan::Plan& plan : plans) {
          SCOPED_TRACE(text_of(plan));
          Filled x(plan.problem, dtype, Strides::bshd);
          if (op == Operation::weights) give_lse(x, dtype);
          const DType compute = dtype == DType::f64 ? DType::f64 : DType::f32;
          const Tensors tensors = x.tensors();
          RunOptions options;
          options.compute = compute;
          const Measured moved = run(plan, tensors, options);
          EXPECT_EQ(moved.io, plan.io());
          EXPECT_EQ(moved.peak, plan.footprint());
          EXPECT_EQ(count(plan).io, plan.io());
          EXPECT_EQ(plan.io().total_writes(), Words(p.batch) * p.heads * p.n_q * p.n_k);
          const Verification v = verify(plan.problem, tensors, compute, roundings_of(plan));
          EXPECT_TRUE(v.ok()) << v.outputs.front().error << " of " << v.outputs.front().tolerance;
        }
    }
}

/// verify() finds a word that is off, and one that is finite where it should be -inf.
TEST(Scores, AreVerified) {
  const plan::Plan plan = some_plan(of(Operation::scores, causal(problem(6, 6, 3, 3))));
  for (const std::size_t wrong : {0, 1}) {  // word 1 is hidden
    Filled x(plan.problem, DType::f32, Strides::bhsd);
    run(plan, x.tensors());
    std::vector<double> words = x.arrays.at(SlowArray::S).get();
    words[wrong] = 0.5;
    x.arrays.at(SlowArray::S).set(words);
    EXPECT_FALSE(verify(plan.problem, x.tensors(), DType::f32, roundings_of(plan)).ok());
  }
}

/// A pair whose score is -inf has weight 0, not -0.
TEST(Scores, TheIdentityHasNoNegativeZeros) {
  for (Problem p : {causal(problem(6, 7, 3, 3)), patterned(problem(6, 7, 3, 3), 2)}) {
    p.score = Score::identity;
    p.bias = {1, 1, 6, 7};
    for (const plan::Plan& plan : plans_of_every_schedule(of(Operation::weights, p))) {
      SCOPED_TRACE(text_of(plan));
      Filled x(plan.problem, DType::f32, Strides::bhsd);
      std::vector<double> bias = x.arrays.at(SlowArray::bias).get();
      for (std::size_t i = 0; i < bias.size(); i += 2) bias[i] = -INFINITY;
      x.arrays.at(SlowArray::bias).set(bias);
      run(plan, x.tensors());
      for (const double weight : x.arrays.at(SlowArray::P).get()) EXPECT_FALSE(weight == 0 && std::signbit(weight));
    }
  }
}

/// What comes after the softmax plays no part.
TEST(Scores, KnowNeitherSinksNorDropout) {
  Problem p = of(Operation::weights, problem(6, 7, 3, 3));
  const Io plain = some_plan(p).io();
  p.sinks = true;
  p.dropout = 0.5;
  EXPECT_EQ(some_plan(p).io(), plain);
  EXPECT_EQ(inputs_of(p), (std::vector{SlowArray::Q, SlowArray::K, SlowArray::lse}));
}

}  // namespace
}  // namespace redblue::test::of_scores
