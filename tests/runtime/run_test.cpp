#include <gtest/gtest.h>

#include <optional>

#include "redblue/verify/verify.hpp"
#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "runtime/problems.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"
#include "support/tolerance.hpp"

namespace redblue::test {
namespace {

/// Every shape that has gone wrong somewhere.
std::vector<Problem> awkward_problems() {
  std::vector<Problem> list = {
      problem(1, 1, 1, 1),
      problem(1, 17, 5, 3),
      problem(17, 1, 5, 3),
      problem(13, 13, 8, 8),
      problem(7, 29, 4, 9),
      problem(29, 7, 9, 4),
      with_heads(problem(11, 11, 6, 5), 2, 3, 3),
      with_heads(problem(11, 14, 6, 5), 2, 6, 2),
      with_heads(problem(5, 9, 4, 4), 1, 4, 1),
      causal(problem(13, 13, 8, 8)),
      causal(problem(7, 19, 4, 3)),
      causal(problem(19, 7, 4, 3)),  // bottom-right: the first 12 rows see nothing
      causal(problem(19, 7, 4, 3), 0),
      causal(problem(9, 9, 4, 3), 3),
      causal(problem(9, 9, 4, 3), -3),
      causal(problem(9, 9, 4, 3), -100),  // no row sees anything
      causal(problem(9, 9, 4, 3), 100),   // every row sees everything
      causal(with_heads(problem(10, 12, 4, 6), 2, 4, 2), -2),
      windowed(problem(40, 40, 4, 6), 5, 0),
      windowed(problem(30, 50, 5, 4), 3, 4),
      windowed(problem(50, 30, 5, 4), 7, {}),  // the first 20 see the keys before key 20, too
      windowed(problem(20, 20, 4, 4), 0, 0),   // one key each
      windowed(causal(problem(9, 40, 4, 3)), 12, {}),
      windowed(causal(problem(30, 30, 4, 3)), {}, {}, 11),
      windowed(with_heads(problem(33, 21, 4, 6), 2, 6, 2), 4, 2, 3),
      patterned(problem(40, 31, 4, 6), 3),
      patterned(causal(problem(24, 24, 5, 5)), 1),
      patterned(with_heads(problem(18, 21, 4, 3), 2, 6, 2), 2, Own::head),
      patterned(with_heads(problem(18, 21, 4, 3), 2, 6, 2), 2, Own::batch),
  };
  for (Problem& p : list) p = with_lse(p);
  list.push_back(list[3]);
  list.back().scale = -0.3;
  list.push_back(with_lse(causal(with_heads(problem(5, 4200, 3, 2), 2, 4, 2), 2100)));  // split_keys: two groups
  return list;
}

/// Element types of inputs and o, of lse, and the arithmetic; of keys and values where they have their own.
struct Types {
  DType storage, lse, compute;
  std::optional<DType> k{}, v{};
};
constexpr Types kAllTypes[] = {{DType::f64, DType::f64, DType::f64},  {DType::f32, DType::f32, DType::f32},
                               {DType::f32, DType::f32, DType::f64},  {DType::f16, DType::f32, DType::f32},
                               {DType::bf16, DType::f32, DType::f32}, {DType::f64, DType::f64, DType::f32},
                               {DType::bf16, DType::bf16, DType::f32}};

/// Runs these plans on these arrays and holds them against the oracle, their formulas and the rules of the caller's
/// memory.
void check(const Problem& p, const std::vector<plan::Plan>& plans, const Data& data, const Types& types, Strides in,
           Strides out) {
  Arrays filled(p, types.storage, types.lse, in, out);
  if (types.k) filled.k = Array(*types.k, filled.k.tensor().shape, in);
  if (types.v) filled.v = Array(*types.v, filled.v.tensor().shape, in);
  filled.q.set(data.q);
  filled.k.set(data.k);
  filled.v.set(data.v);
  const auto q = filled.q.get(), k = filled.k.get(), v = filled.v.get();  // as rounded
  const Result truth = truth_of(p, q, k, v), naive = types.compute == DType::f64 ? truth : attend<float>(p, q, k, v);
  for (const plan::Plan& plan : plans) {
    SCOPED_TRACE(text_of(plan) + ", " + std::string(name_of(types.storage)) + " in " +
                 std::string(name_of(types.compute)) + ", " + std::string(name_of(in)) + " -> " +
                 std::string(name_of(out)));
    Arrays a = filled;
    RunOptions options;
    options.compute = types.compute;
    for (const Measured& m : {run(plan, a.inputs(), a.outputs(), options), count(plan)}) {
      EXPECT_EQ(m.io, plan.row().io);
      EXPECT_EQ(m.peak, plan.row().footprint);
      EXPECT_EQ(m.flops, plan.row().flops);
    }

    const double eps = std::max({eps_of(types.compute), eps_of(types.storage), eps_of(types.lse)});
    // A schedule with a caveat errs with every visit: verify() below allows for that.
    if (plan.row().algorithm->caveat(p.sizes(), plan.row().tiling).empty()) {
      EXPECT_TRUE(close({a.o.get(), a.lse.get()}, truth, naive, eps));
    }
    EXPECT_TRUE(a.q.memory() == filled.q.memory() && a.k.memory() == filled.k.memory() &&
                a.v.memory() == filled.v.memory());
    EXPECT_TRUE(a.o.surroundings_untouched());
    EXPECT_TRUE(a.lse.surroundings_untouched());
    EXPECT_TRUE(verify(p, a.inputs(), a.outputs(), types.compute, roundings_of(plan)).ok());
  }
}

TEST(Run, EveryScheduleSolvesEveryShape) {
  for (const Problem& p : awkward_problems())
    check(p, plans_in_turn(p), generate(p), kAllTypes[0], Strides::bhsd, Strides::bhsd);
}

TEST(Run, EveryScheduleTakesEveryElementType) {
  for (const Problem& p : {awkward_problems()[7], awkward_problems()[17]}) {
    const std::vector<plan::Plan> plans = plans_of_every_schedule(p);
    for (const Types& types : kAllTypes)
      check(p, in_turn(plans), generate(p, Kind::normal, 2), types, Strides::bhsd, Strides::bhsd);
  }
}

TEST(Run, EveryScheduleTakesKeysAndValuesOfTypesOfTheirOwn) {
  const Problem few = with_lse(with_heads(problem(3, 40, 19, 5), 1, 4, 2)), many = with_lse(problem(20, 40, 19, 5));
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};
  for (const Problem& p : {few, causal(few), many}) {
    const std::vector<plan::Plan> plans = plans_of_every_schedule(p);
    for (const DType k : kTypes)
      for (const DType v : kTypes)
        for (const Strides in : first_of<Strides>({Strides::bhsd, Strides::bshd, Strides::reversed}))
          check(p, in_turn(plans), generate(p, Kind::normal, 5), {DType::f32, DType::f32, DType::f32, k, v}, in,
                Strides::bhsd);
  }
}

TEST(Run, EveryScheduleTakesEveryStride) {
  for (const Problem& p : {awkward_problems()[7], awkward_problems()[17]}) {
    const std::vector<plan::Plan> plans = plans_of_every_schedule(p);
    for (const Strides in : kAllStrides)
      for (const Strides out : first_of<Strides>({kAllStrides.rbegin(), kAllStrides.rend()}))
        for (const Types& types : {kAllTypes[1], kAllTypes[3]})
          check(p, in_turn(plans), generate(p, Kind::normal, 3), types, in, out);
  }
}

TEST(Run, DoesNotNeedLse) {
  Problem p = problem(9, 11, 4, 3);
  const Data data = generate(p);
  const auto truth = truth_of(p, data.q, data.k, data.v);
  for (const bool required : {false, true}) {
    p.lse_required = required;
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      SCOPED_TRACE(text_of(plan));
      Arrays a(p, DType::f64, DType::f64);
      a.q.set(data.q), a.k.set(data.k), a.v.set(data.v);
      RunOptions options;
      options.compute = DType::f64;
      const Measured m = run(plan, a.inputs(), {a.o.tensor(), Tensor()}, options);
      EXPECT_EQ(m.io, plan.row().io);
      EXPECT_LE(max_error(a.o.get(), truth.o), tolerance(truth.o, truth.o, eps_of(DType::f64)));
    }
  }
}

TEST(Run, BroadcastInputsAreReadWhereTheyAre) {
  // One head of keys for three heads of queries, by stride 0 rather than by kv_heads.
  const Problem p = with_lse(with_heads(problem(6, 7, 4, 4), 1, 3, 3)),
                shared = with_lse(with_heads(problem(6, 7, 4, 4), 1, 3, 1));
  const Data data = generate(shared);
  const auto truth = truth_of(shared, data.q, data.k, data.v);
  for (const plan::Plan& plan : plans_of_every_schedule(p)) {
    SCOPED_TRACE(text_of(plan));
    Arrays a(shared, DType::f64, DType::f64);
    a.q.set(data.q), a.k.set(data.k), a.v.set(data.v);
    Inputs in = a.inputs();
    for (Tensor* t : {&in.k, &in.v}) t->shape[1] = 3, t->strides[1] = 0;
    RunOptions options;
    options.compute = DType::f64;
    EXPECT_EQ(run(plan, in, a.outputs(), options).io, plan.row().io);
    EXPECT_TRUE(close({a.o.get(), a.lse.get()}, truth, truth, eps_of(DType::f64)));
  }
}

}  // namespace
}  // namespace redblue::test
