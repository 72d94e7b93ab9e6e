#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "redblue/hardware/isa.hpp"
#include "redblue/machines/counting.hpp"
#include "redblue/machines/trace.hpp"
#include "redblue/verify/oracle/dense.hpp"
#include "redblue/verify/verify.hpp"
#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/oracle.hpp"
#include "support/refusal.hpp"
#include "support/tolerance.hpp"
#include "threads/pools.hpp"

/// Gradients, and attention of A1 X, A2, A3 Y, on the caller's memory: every schedule against the definition.
namespace redblue::test {
namespace {

using enum SlowArray;
using testing::AllOf;
using testing::HasSubstr;

constexpr Operation kGradients[] = {Operation::backward, Operation::gradient_x, Operation::backward_x,
                                    Operation::backward_w};
constexpr Operation kAll[] = {Operation::forward,    Operation::forward_x,  Operation::backward,
                              Operation::gradient_x, Operation::backward_x, Operation::backward_w};
/// Arrays as contiguous [batch, heads, rows, columns].
using Values = std::map<SlowArray, std::vector<double>>;

/// What to compute in the end.
enum class What : std::uint8_t {
  outputs,  ///< O and lse
  exact,    ///< gradients from the inputs alone
  given,    ///< gradients from O and lse as they are given
  sizes,    ///< of all sums, their terms taken absolutely
};

/// The dense oracle in T, head by head; heads of a group add up.
template <class T>
Values definition(const Problem& p, const Values& in, What what) {
  Values out;
  for (index_t b = 0; b < p.batch; ++b)
    for (index_t h = 0; h < p.heads; ++h) {
      const auto first_of = [&](const std::array<index_t, 4>& shape) {
        return static_cast<std::size_t>((b * shape[1] + h * shape[1] / p.heads) * shape[2] * shape[3]);
      };
      oracle::Matrices<T> inputs;
      for (const auto& [a, words] : in) {
        if (what != What::given && (a == O || a == lse)) continue;
        const auto shape = shape_of(p, a);
        oracle::Matrix<T> m({shape[2], shape[3]});
        for (std::size_t i = 0; i < m.words.size(); ++i) m.words[i] = static_cast<T>(words[first_of(shape) + i]);
        inputs[a] = m;
      }
      const oracle::Dense<T> dense(head_of(p, b, h), inputs);
      for (const auto& [a, m] : what == What::outputs ? dense.forward()
                                : what == What::sizes ? dense.gradient_magnitudes()
                                                      : dense.gradients()) {
        const auto shape = shape_of(p, a);
        std::vector<double>& x = out[a];
        x.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
        for (std::size_t i = 0; i < m.words.size(); ++i) x[first_of(shape) + i] += static_cast<double>(m.words[i]);
      }
    }
  return out;
}

Problem of(Operation op, Problem p) {
  p.op = op;
  p.lse_required = !follows_forward(op);
  if (op == Operation::backward_w) p.d_in = p.d + 2;
  if (is_projected(op)) {
    p.kv_heads.reset();
    p.scale = op == Operation::backward_w ? 0.1 : 0.3 / static_cast<double>(p.d);  // scores of a few units
  }
  return p;
}
/// Every shape that has gone wrong somewhere.
std::vector<Problem> problems() {
  return {
      problem(1, 1, 1, 1),
      problem(1, 9, 5, 3),
      problem(9, 1, 5, 3),
      problem(7, 7, 4, 4),
      problem(5, 13, 3, 6),
      problem(13, 5, 6, 3),
      with_heads(problem(6, 8, 3, 4), 2, 4, 2),
      with_heads(problem(5, 6, 4, 4), 1, 3, 1),
      causal(problem(9, 9, 4, 3)),
      causal(problem(11, 5, 3, 4)),  // bottom-right: the first 6 rows see nothing
      causal(problem(6, 10, 3, 4), -3),
      causal(problem(5, 5, 3, 4), -100),  // no row sees anything
      causal(with_heads(problem(6, 8, 3, 4), 2, 4, 2), 1),
      windowed(problem(12, 12, 4, 3), 3, 0),
      windowed(problem(10, 14, 3, 4), 2, 3),
      windowed(problem(8, 8, 3, 4), 0, 0),  // one key each
      windowed(causal(problem(9, 9, 4, 3)), {}, {}, 4),
      windowed(with_heads(problem(9, 6, 3, 4), 2, 4, 2), 2, 1, 2),
      patterned(problem(14, 11, 3, 4), 2),
      patterned(with_heads(problem(9, 9, 3, 4), 2, 4, 2), 1, Own::head),
      patterned(with_heads(problem(9, 9, 3, 4), 2, 4, 2), 1, Own::batch),
  };
}

/// N(0, 1), exact in fp32; then O and lse.
Values values_of(const Problem& p, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Problem all = p;
  all.forward_given = false;  // O and lse are no random numbers
  Values x;
  for (const SlowArray a : inputs_of(all)) {
    const auto shape = shape_of(p, a);
    x[a] = normal(shape[0] * shape[1] * shape[2] * shape[3], random);
  }
  if (follows_forward(p.op) && p.score == Score::softmax)
    for (auto& [a, words] : definition<long double>(p, x, What::outputs)) x[a] = words;
  return x;
}

/// Types of inputs and outputs (lse: never narrower than fp32), and of the arithmetic.
struct GradientTypes {
  DType storage = DType::f64, compute = DType::f64;
};
constexpr GradientTypes kGradientTypes[] = {{DType::f64, DType::f64},  {DType::f32, DType::f32},
                                            {DType::f32, DType::f64},  {DType::f16, DType::f32},
                                            {DType::bf16, DType::f32}, {DType::f64, DType::f32}};

/// All tensors of a problem on memory of their own.
struct Memory {
  const Problem& p;
  std::map<SlowArray, Array> arrays;

  Memory(const Problem& problem, const Values& values, GradientTypes types = {}, Strides in = Strides::bhsd,
         Strides out = Strides::bhsd)
      : p(problem) {
    for (const SlowArray a : inputs_of(p)) add(a, types.storage, in).set(values.at(a));
    for (const SlowArray a : outputs_of(p)) add(a, types.storage, out);
  }
  Array& add(SlowArray a, DType storage, Strides strides) {
    if (a == lse && size_of(storage) < 4) storage = DType::f32;
    return arrays.emplace(a, Array(storage, shape_of(p, a), strides)).first->second;
  }
  Tensors tensors() {
    Tensors list;
    for (auto& [a, array] : arrays) list[a] = array.tensor();
    return list;
  }
  Tensor operator[](SlowArray a) { return arrays.at(a).tensor(); }
  Values get(const std::vector<SlowArray>& list) {
    Values x;
    for (const SlowArray a : list) x[a] = arrays.at(a).get();
    return x;
  }
  Values inputs() { return get(inputs_of(p)); }
  Values outputs() { return get(outputs_of(p)); }
};

/// The rule: at most twice the error of the plain way in the compute type, and a few roundings of the largest sum; a
/// rounding of lse or of a score of its size is a relative error of its own in a weight. `stored_lse`: weights come
/// from the lse that is stored, and the truth has another.
void expect_close(const Problem& p, const Values& in, const Values& ours, GradientTypes types, What what,
                  bool stored_lse = false) {
  const Values truth = definition<long double>(p, in, what),
               naive = types.compute == DType::f64 ? definition<double>(p, in, what) : definition<float>(p, in, what),
               sizes = what == What::outputs ? truth : definition<double>(p, in, What::sizes);
  double score = 4;
  if (p.score == Score::softmax)
    for (const double l : in.at(lse))
      if (std::isfinite(l)) score = std::max(score, std::abs(l));
  for (const auto& [a, words] : ours) {
    const double most = 2 * max_error(naive.at(a), truth.at(a)) +
                        (8 + 2 * score) * eps_of(types.compute) * largest(sizes.at(a)) +
                        (stored_lse ? score * eps_of(DType::f32) * largest(sizes.at(a)) : 0) +
                        2 * eps_of(types.storage) * largest(truth.at(a)) + (types.storage == DType::f16 ? 0x1p-24 : 0);
    EXPECT_LE(max_error(words, truth.at(a)), most) << tensor_name(a) << ", largest " << largest(truth.at(a));
  }
}

/// Runs one plan and holds it against the definition, its formula, the count and the rules of the caller's memory.
Values check(const plan::Plan& plan, const Values& values, GradientTypes types = {}, Strides in = Strides::bhsd,
             Strides out = Strides::bhsd) {
  const Problem& p = plan.problem;
  SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(types.storage)) + " in " +
               std::string(name_of(types.compute)) + ", " + std::string(name_of(in)) + " -> " +
               std::string(name_of(out)));
  const Memory filled(p, values, types, in, out);
  Memory memory = filled;
  RunOptions options;
  options.compute = types.compute;
  const Measured m = run(plan, memory.tensors(), options), counted = count(plan);
  EXPECT_EQ(m.io, plan.io());
  EXPECT_EQ(m.peak, plan.footprint());
  EXPECT_EQ(m.flops, plan.flops());
  EXPECT_EQ(counted.io, plan.io());
  EXPECT_EQ(counted.peak, plan.footprint());
  EXPECT_EQ(counted.flops, plan.flops());
  for (const SlowArray a : inputs_of(p))
    EXPECT_EQ(memory.arrays.at(a).memory(), filled.arrays.at(a).memory()) << tensor_name(a) << " was written";
  for (const SlowArray a : outputs_of(p)) EXPECT_TRUE(memory.arrays.at(a).surroundings_untouched()) << tensor_name(a);

  Values rounded = memory.inputs();  // as stored
  const bool uses_forward = p.forward_given && p.score == Score::softmax && plan.row().io.reads[index_of(O)] > 0;
  if (p.score == Score::softmax && !rounded.contains(lse))
    for (auto& [a, words] : definition<long double>(p, rounded, What::outputs)) rounded[a] = words;
  if (is_forward(p.op)) {
    expect_close(p, rounded, memory.outputs(), types, What::outputs);
    return memory.outputs();
  }
  const bool takes_lse_only = !uses_forward && p.forward_given && plan.row().io.reads[index_of(lse)] > 0;
  expect_close(p, rounded, memory.outputs(), types, uses_forward ? What::given : What::exact,
               takes_lse_only && types.storage != DType::f64);
  if (types.storage == DType::f64) expect_close(p, rounded, memory.outputs(), types, What::exact);
  return memory.outputs();
}

TEST(RunGradient, EveryScheduleSolvesEveryShape) {
  for (const Operation op : kGradients)
    for (const Problem& shape : problems()) {
      const Problem p = of(op, shape);
      const Values values = values_of(p);
      const std::vector<plan::Plan> plans = plans_in_turn(p);
      for (const plan::Plan& plan : plans) check(plan, values);
      EXPECT_TRUE(share_of_cases() > 1 || plans.size() >= (p.causal ? 2U : 8U)) << plans.size();
    }
}

TEST(RunGradient, EveryScheduleTakesEveryElementType) {
  for (const Operation op : kGradients)
    for (const std::size_t shape : {6U, 12U}) {
      const Problem p = of(op, problems()[shape]);
      const Values values = values_of(p, 2);
      const std::vector<plan::Plan> plans = plans_of_every_schedule(p);
      for (const GradientTypes& types : kGradientTypes)
        for (const plan::Plan& plan : in_turn(plans)) check(plan, values, types);
    }
}

TEST(RunGradient, EveryScheduleTakesEveryStride) {
  for (const Operation op : {Operation::backward, Operation::gradient_x}) {
    const Values values = values_of(of(op, problems()[6]), 3);
    const std::vector<plan::Plan> plans = plans_of_every_schedule(of(op, problems()[6]));
    for (const Strides in : kAllStrides)
      for (const Strides out : kAllStrides)
        for (const plan::Plan& plan : in_turn(plans)) check(plan, values, {DType::f32, DType::f32}, in, out);
  }
}

// docs/numerics.md: lse = -inf says that the row saw no key, whatever its scores are. It is as if its dO were 0.
TEST(RunGradient, RowsWhoseLseIsMinusInfinityHaveNoWeights) {
  for (const Operation op : kGradients)
    for (const Problem& shape : {problem(13, 40, 5, 6), causal(problem(37, 37, 8, 4))}) {
      const Problem p = of(op, shape);
      Values unseeing = values_of(p), silent = unseeing;
      for (const std::size_t i : {std::size_t{1}, std::size_t{7}, std::size_t{12}}) {
        unseeing.at(lse)[i] = kMinusInfinity;
        const auto first = silent.at(dO).begin() + static_cast<std::ptrdiff_t>(i) * p.d_v;
        std::fill(first, first + p.d_v, 0.0);
      }
      for (const GradientTypes& types : {kGradientTypes[0], kGradientTypes[1]})
        for (const plan::Plan& plan : plans_in_turn(p)) {
          const schedule::Traits& traits = plan.row().algorithm->traits;
          if (!traits.stable || traits.own_softmax) continue;  // they sum the exponentials themselves
          SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(types.storage)));
          Memory x(p, unseeing, types), y(p, silent, types);
          RunOptions options;
          options.compute = types.compute;
          run(plan, x.tensors(), options);
          run(plan, y.tensors(), options);
          const Values ours = x.outputs(), wanted = y.outputs();
          for (const SlowArray a : outputs_of(p)) EXPECT_EQ(ours.at(a), wanted.at(a)) << tensor_name(a);
        }
    }
}

TEST(RunGradient, NarrowOutputsAreRoundedOnceHoweverOftenTheyAreRevisited) {
  bool any_revisited = false;
  for (const Operation op : kGradients) {
    const Problem p = of(op, with_heads(problem(9, 11, 4, 3), 1, 2, 2));
    const Values values = values_of(p);
    for (const plan::Plan& plan : plans_of_every_schedule(p))
      for (const DType narrow : {DType::f16, DType::bf16}) {
        SCOPED_TRACE(text_of(plan));
        Memory wide(p, values, {DType::f32, DType::f32}), rounded = wide;
        for (const SlowArray a : outputs_of(p)) {
          rounded.arrays.erase(a);
          rounded.add(a, narrow, Strides::bhsd);
        }
        run(plan, wide.tensors());
        const Measured m = run(plan, rounded.tensors());
        EXPECT_EQ(m.io, plan.io());
        any_revisited = any_revisited || m.converted_words > 0;
        for (const SlowArray a : outputs_of(p)) {
          Array expected(narrow, shape_of(p, a), Strides::bhsd);
          expected.set(wide.arrays.at(a).get());
          EXPECT_EQ(rounded.arrays.at(a).get(), expected.get()) << tensor_name(a);
        }
      }
  }
  EXPECT_TRUE(any_revisited);
}

TEST(RunGradient, OtherScoreFunctionsNeedNoForwardPass) {
  for (const Score score : {Score::sigmoid, Score::relu, Score::identity})
    for (const Operation op : kGradients)
      for (const std::size_t shape : {3U, 6U, 12U}) {
        Problem p = of(op, problems()[shape]);
        p.score = score;
        const auto inputs = inputs_of(p);
        for (const SlowArray a : {O, lse}) EXPECT_EQ(std::count(inputs.begin(), inputs.end(), a), 0);
        const Values values = values_of(p);
        const auto plans = plans_in_turn(p);
        for (const plan::Plan& plan : plans) check(plan, values);
        EXPECT_TRUE(share_of_cases() > 1 || plans.size() >= 2U);
      }
}

/// Enough keys for groups, each with a dQ of its own.
TEST(RunGradient, GroupsOfKeysAddUp) {
  for (const std::optional<index_t> offset : {std::optional<index_t>(), std::optional<index_t>(500)})
    for (const GradientTypes& types : first_of<GradientTypes>({std::begin(kGradientTypes), std::end(kGradientTypes)})) {
      Problem p = of(Operation::backward, with_heads(problem(40, 530, 4, 3), 2, 4, 2));
      if (offset) p = causal(p, *offset);  // the last keys are seen by few queries
      const Values values = values_of(p);
      for (const plan::Plan& plan : in_turn(plans_of(p, "grouped_key_outer"))) {
        check(plan, values, types);
        EXPECT_EQ(plan.row().workspace, 80 + 80 * 4) << "two groups: D and one copy of dQ, of two stacked heads";
      }
    }
}

TEST(RunGradient, SharedSourcesAreReadFromOneTensor) {
  for (const Operation op : {Operation::gradient_x, Operation::backward_x, Operation::backward_w})
    for (const Sources sources : {Sources::shared, Sources::self})
      for (const Problem& shape :
           {problem(7, 7, 4, 3), with_heads(problem(6, 6, 3, 4), 2, 2, 2), causal(problem(8, 8, 3, 3))}) {
        Problem p = of(op, shape);
        p.sources = sources;
        const Values values = values_of(p);
        EXPECT_FALSE(values.contains(A3));
        EXPECT_EQ(values.contains(A2), sources == Sources::shared);
        for (const plan::Plan& plan : plans_in_turn(p)) check(plan, values);
      }
}

TEST(RunGradient, ForwardXGivesOutputAndStatistics) {
  for (const Sources sources : {Sources::distinct, Sources::shared})
    for (const Problem& shape : problems()) {
      Problem p = of(Operation::forward_x, shape);
      p.sources = sources;
      const Values values = values_of(p);
      for (const plan::Plan& plan : plans_in_turn(p)) check(plan, values);
    }
}

TEST(RunGradient, TheForwardPassIsRunAndCountedWhereItIsNotGiven) {
  for (const Operation op : {Operation::backward, Operation::gradient_x, Operation::backward_x})
    for (const Problem& shape : cases(problems())) {
      const Problem given = of(op, shape);
      Problem p = given;
      p.forward_given = false;
      const Values values = values_of(given);
      for (const std::string_view name : in_turn(plan::Registry::built_in().names(op)))
        for (const plan::Plan& alone : plans_of(given, name)) {
          plan::Options o = alone.options;
          o.M = std::max(o.M, Words(200));
          const plan::Plan plan = plan::make_plan(p, o), after = plan::make_plan(given, o);
          ASSERT_NE(plan.forward, nullptr);
          EXPECT_EQ(plan.io(), plan.forward->io() + after.io());
          EXPECT_EQ(plan.footprint(), std::max(plan.forward->footprint(), after.footprint()));
          for (const GradientTypes& types : {kGradientTypes[0], kGradientTypes[3]}) check(plan, values, types);
        }
    }
}

TEST(RunGradient, TheForwardPassIsKeptWhereTheCallerWantsIt) {
  for (const Operation op : {Operation::backward, Operation::gradient_x, Operation::backward_x})
    for (const GradientTypes types : kGradientTypes)
      for (const Strides strides : {Strides::bhsd, Strides::bshd}) {
        Problem p = of(op, with_heads(problem(6, 8, 4, 4), 2, 4, 2));
        p.forward_given = false;
        SCOPED_TRACE(testing::Message() << name_of(op) << ' ' << name_of(types.storage) << ' ' << name_of(strides));
        const Values values = values_of(p);
        const plan::Plan plan = some_plan(p);
        Memory memory(p, values, types), kept = memory;
        RunOptions options;
        options.compute = types.compute;
        run(plan, memory.tensors(), options);

        options.forward = {kept.add(O, types.storage, strides).tensor(),
                           kept.add(lse, types.storage, strides).tensor()};
        std::vector<std::byte> exactly(static_cast<std::size_t>(run_bytes(plan, kept.tensors(), options).to_index()));
        options.memory = exactly;
        const Measured m = run(plan, kept.tensors(), options);
        EXPECT_EQ(m.io, plan.io());
        EXPECT_EQ(m.bytes, exactly.size());
        for (const SlowArray a : outputs_of(p)) EXPECT_EQ(kept.arrays.at(a).memory(), memory.arrays.at(a).memory());

        const Problem forward = p.forward();
        Memory alone(forward, values, types, Strides::bhsd, strides);
        run(*plan.forward, alone.tensors(), {.compute = types.compute});
        for (const SlowArray a : {O, lse}) EXPECT_EQ(kept.arrays.at(a).memory(), alone.arrays.at(a).memory());

        options.memory = {};
        options.forward.o = kept[inputs_of(p).front()];
        EXPECT_THROW(run(plan, kept.tensors(), options), InvalidProblem) << "o on top of an input";
        options.forward.o = kept[O];
        options.forward.o.shape[2] += 1;
        EXPECT_THROW(run(plan, kept.tensors(), options), InvalidProblem) << "a row too many";
        EXPECT_THROW(run(*plan.forward, alone.tensors(), options), InvalidProblem) << "no gradient";
      }
}

TEST(RunGradient, TakesStructsAsItTakesTensors) {
  const Problem backward = of(Operation::backward, problems()[6]), gradient = of(Operation::gradient_x, problems()[4]);
  RunOptions options;
  options.compute = DType::f64;
  for (const plan::Plan& plan : plans_of_every_schedule(backward)) {
    SCOPED_TRACE(text_of(plan));
    Memory x(backward, values_of(backward), {}, Strides::bshd, Strides::bshd), y = x;
    const BackwardInputs in{x[Q], x[K], x[V], x[dO], x[O], x[lse]};
    const BackwardOutputs out{x[dQ], x[dK], x[dV]};
    EXPECT_EQ(run(plan, in, out, options).io, plan.io());
    EXPECT_TRUE(verify(backward, in, out, DType::f64).ok());
    run(plan, y.tensors(), options);
    EXPECT_EQ(x.outputs(), y.outputs());
  }
  for (const plan::Plan& plan : plans_of_every_schedule(gradient)) {
    SCOPED_TRACE(text_of(plan));
    Memory x(gradient, values_of(gradient), {}, Strides::bshd, Strides::bshd), y = x;
    const GradientXInputs in{x[A1], x[A2], x[A3], x[X], x[Y], x[dO], x[O], x[lse]};
    const GradientXOutputs out{x[g]};
    EXPECT_EQ(run(plan, in, out, options).io, plan.io());
    EXPECT_TRUE(verify(gradient, in, out, DType::f64).ok());
    run(plan, y.tensors(), options);
    EXPECT_EQ(x.outputs(), y.outputs());
  }
}

TEST(Run, ReportsProgressUpToTheEnd) {
  for (const Operation op : kAll)
    for (const bool given : {true, false}) {
      Problem p = of(op, with_heads(problem(20, 20, 4, 4), 2, 2, 2));
      if ((op == Operation::backward_w || is_forward(op)) && !given) continue;
      const Values values = values_of(p);
      p.forward_given = given;
      for (const plan::Plan& plan : plans_in_turn(p)) {
        SCOPED_TRACE(text_of(plan));
        Memory memory(p, values);
        std::vector<double> shares;
        RunOptions options;
        options.progress = [&](double share) { shares.push_back(share); };
        run(plan, memory.tensors(), options);
        EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
        ASSERT_FALSE(shares.empty());
        EXPECT_EQ(shares.back(), 1);
      }
    }
}

TEST(Trace, HoldsTheWordsOfTheFormula) {
  for (const Operation op : kAll) {
    const Problem p = of(op, with_heads(problem(6, 7, 3, 2), 1, 2, 1));
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      SCOPED_TRACE(text_of(plan));
      machine::Counting counting;
      machine::replay(trace(plan), counting);
      EXPECT_EQ(counting.io(), plan.row().io);
      EXPECT_EQ(Words(counting.peak()), plan.row().footprint);
      EXPECT_THROW(trace(plan, 10), InvalidProblem);
    }
  }
}

/// Runs the cheapest plan in fp32 or fp64, spoils what is asked for, and verifies.
Verification verified(
    const Problem& p, const GradientTypes& types, const std::function<void(Memory&)>& before,
    const std::function<void(Memory&)>& after = [](Memory&) {}) {
  Memory memory(p, values_of(p), types);
  for (const auto& [a, words] : definition<long double>(p, memory.inputs(), What::outputs))
    memory.arrays.at(a).set(words);  // of the inputs as they are stored
  before(memory);
  RunOptions options;
  options.compute = types.compute;
  plan::Options o;
  o.M = 400;
  const plan::Plan plan = plan::make_plan(p, o);
  run(plan, memory.tensors(), options);
  after(memory);
  return verify(p, memory.tensors(), types.compute, roundings_of(plan));
}
void nudge(Memory& memory, SlowArray a, std::size_t i, double by) {
  std::vector<double> x = memory.arrays.at(a).get();
  x[i] += by;
  memory.arrays.at(a).set(x);
}

TEST(VerifyGradient, PassesWhatIsRightAndSeesWhatIsNot) {
  for (const Operation op : kGradients)
    for (const GradientTypes& types : in_turn<GradientTypes>(
             {kGradientTypes[0], kGradientTypes[1], kGradientTypes[2], kGradientTypes[3], kGradientTypes[4]})) {
      const Problem p = of(op, with_heads(problem(9, 11, 4, 3), 2, 2, 2));
      SCOPED_TRACE(std::string(name_of(op)) + ", " + std::string(name_of(types.storage)));
      const auto nothing = [](Memory&) {};
      const Verification good = verified(p, types, nothing);
      EXPECT_TRUE(good.ok());
      EXPECT_EQ(good.outputs.size(), outputs_of(p).size());
      EXPECT_EQ(good.differences.size(), outputs_of(p).size());
      EXPECT_EQ(good.given.size(), 2U);
      for (const SlowArray a : outputs_of(p))
        for (const std::size_t i : {std::size_t{0}, good.outputs.size()})  // in the first head
          EXPECT_FALSE(
              verified(p, types, nothing, [&](Memory& m) { nudge(m, a, i, 0.2 * largest(m.arrays.at(a).get())); }).ok())
              << tensor_name(a);
      // A wrong lse or O makes wrong gradients, which are right as functions of it: it is the input that is wrong.
      for (const SlowArray a : {lse, O}) {
        const Verification bad = verified(p, types, [&](Memory& m) { nudge(m, a, 1, 1); });
        EXPECT_FALSE(bad.ok()) << tensor_name(a);
        for (const GivenInput& d : bad.given) EXPECT_EQ(d.ok(), d.name != tensor_name(a));
      }
      // dO is an input like any other: whatever it is, there are gradients.
      EXPECT_TRUE(verified(p, types, [](Memory& m) { nudge(m, dO, 1, 1); }).ok());
    }
}

TEST(VerifyGradient, ReportsNaN) {
  for (const Operation op : kGradients) {
    const Problem p = of(op, problem(5, 6, 4, 3));
    const Verification v =
        verified(p, {}, [](Memory& m) { nudge(m, dO, 2, std::numeric_limits<double>::quiet_NaN()); });
    EXPECT_FALSE(v.ok());
    ASSERT_EQ(v.nan_inputs.size(), 1U);
    EXPECT_EQ(v.nan_inputs[0], std::make_pair(std::string("do"), index_t{1}));
    EXPECT_GT(v.nan_outputs, 0);
    for (const Deviation& d : v.outputs) EXPECT_EQ(d.nan_mismatches, 0) << d.name;
  }
}

std::string refusal(const plan::Plan& plan, const Tensors& tensors) {
  return refusal_of([&] { run(plan, tensors); });
}
TEST(Run, RefusesTensorsOfAnyOtherShape) {
  for (const Operation op : kAll) {
    const Problem p = of(op, problems()[6]);
    const plan::Plan plan = some_plan(p);
    Memory memory(p, values_of(p));
    EXPECT_EQ(refusal(plan, memory.tensors()), "accepted");
    for (const auto& [a, array] : memory.arrays)
      for (std::size_t axis = 0; axis < 4; ++axis)
        for (const index_t change : {-1, 1}) {
          Tensors tensors = memory.tensors();
          tensors[a].shape[axis] += change;
          EXPECT_THAT(refusal(plan, tensors),
                      AllOf(HasSubstr("tensor " + tensor_name(a) + " is ["), HasSubstr("the problem wants [")));
        }
  }
}

TEST(Run, RefusesAMissingTensorAndOneOfTheForwardPassUnlessItIsNotGiven) {
  for (const Operation op : kAll) {
    Problem p = of(op, problems()[6]);
    const Values values = values_of(p);
    Memory memory(p, values);
    for (const auto& [a, array] : memory.arrays) {
      if (a == lse && is_forward(op)) continue;  // it may be left out
      Tensors tensors = memory.tensors();
      tensors[a].data = nullptr;
      EXPECT_THAT(refusal(some_plan(p), tensors), HasSubstr("tensor " + tensor_name(a) + " has no data"));
    }
    if (is_forward(op)) continue;
    p.forward_given = false;
    if (op == Operation::backward_w) {
      EXPECT_THROW(some_plan(p), InvalidProblem);
      continue;
    }
    Tensors tensors = memory.tensors();
    tensors[O] = tensors[lse] = Tensor();
    EXPECT_EQ(refusal(some_plan(p), tensors), "accepted");
  }
}

TEST(Run, RefusesOutputsThatOverlapAnything) {
  for (const Operation op : kAll) {
    const Problem p = of(op, problem(4, 4, 4, 4));
    const plan::Plan plan = some_plan(p);
    Memory memory(p, values_of(p), {DType::f32, DType::f32});
    const auto outputs = outputs_of(p);
    for (const SlowArray out : outputs) {
      for (const auto& [other, array] : memory.arrays) {
        if (other == out) continue;
        Tensors tensors = memory.tensors();
        // Its last word is the other's first.
        const auto shape = tensors[out].shape;
        tensors[out].data = static_cast<float*>(tensors[other].data) - (shape[0] * shape[1] * shape[2] * shape[3] - 1);
        EXPECT_THAT(refusal(plan, tensors),
                    AllOf(HasSubstr("overlaps"), HasSubstr(tensor_name(out)), HasSubstr(tensor_name(other))));
      }
      Tensors tensors = memory.tensors();
      tensors[out].strides[2] = tensors[out].shape[3] - 1;
      EXPECT_THAT(refusal(plan, tensors), HasSubstr("output " + tensor_name(out) + " overlaps itself"));
    }
  }
}

/// Gradients of bf16 tensors by this plan, computed in this type.
Values of_bf16(const plan::Plan& plan, const Memory& filled, DType compute, int threads) {
  Memory memory = filled;
  AllAtOnce pool;
  RunOptions options;
  options.compute = compute;
  options.pool = &pool;
  options.threads = threads;
  const Measured m = run(plan, memory.tensors(), options);
  EXPECT_EQ(m.io, plan.io());
  EXPECT_EQ(m.kernels, name_of(compute == DType::bf16 ? best_isa() : without_bf16(best_isa())));
  return memory.outputs();
}

// Weights and gradients of scores are rounded to bf16, gradients once at the end. M = 20000 makes blocks of one row or
// key, M = 200000 blocks that fill tiles.
TEST(RunGradient, ProductsOfBf16ErrLittleMoreThanFp32DoesAndDoNotDependOnThreads) {
  for (const Problem& shape :
       cases<Problem>({problem(130, 97, 40, 24), causal(problem(150, 150, 64, 64)), causal(problem(97, 33, 5, 6)),
                       windowed(problem(120, 120, 33, 17), 20, 10), with_heads(problem(50, 61, 16, 15), 2, 4, 2),
                       patterned(problem(70, 70, 8, 8), 2)})) {
    const Problem p = of(Operation::backward, shape);
    const Memory filled(p, values_of(p), {DType::bf16, DType::bf16});
    Memory inputs = filled;
    const Values truth = definition<double>(p, inputs.inputs(), What::given);
    for (const std::string_view schedule : in_turn(plan::Registry::built_in().names(p.op)))
      for (const index_t M : {20000, 200000}) {
        plan::Options o;
        o.schedule = schedule;
        if (const Words least = least_memory(p, o); least == 0 || least > M) continue;
        o.M = M;
        const plan::Plan plan = plan::make_plan(p, o);
        SCOPED_TRACE(text_of(plan));
        const Values ours = of_bf16(plan, filled, DType::bf16, 1), plain = of_bf16(plan, filled, DType::f32, 1);
        EXPECT_EQ(ours, of_bf16(plan, filled, DType::bf16, 3));
        for (const auto& [a, words] : ours)
          EXPECT_LE(max_error(words, truth.at(a)), 2 * max_error(plain.at(a), truth.at(a))) << tensor_name(a);
      }
  }
}

TEST(RunGradient, ProductsOfBf16AreForTheSoftmaxWithoutModifiers) {
  Problem capped = of(Operation::backward, problem(4, 4, 4, 4)), other = capped;
  capped.softcap = 2;
  other.score = Score::sigmoid;
  for (const Problem& p : {capped, other}) {
    Memory memory(p, values_of(p), {DType::bf16, DType::bf16});
    RunOptions options;
    options.compute = DType::bf16;
    EXPECT_THROW(run(some_plan(p), memory.tensors(), options), Unsupported);
  }
}

TEST(RunGradient, RefusesArithmeticInNarrowTypes) {
  const Problem p = of(Operation::backward, problem(4, 4, 4, 4));
  Memory memory(p, values_of(p));
  for (const DType compute : {DType::f16, DType::bf16}) {
    RunOptions options;
    options.compute = compute;
    EXPECT_THROW(run(some_plan(p), memory.tensors(), options), Unsupported);
    EXPECT_THROW(verify(p, memory.tensors(), compute), Unsupported);
  }
}

}  // namespace
}  // namespace redblue::test
