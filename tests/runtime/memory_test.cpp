#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "support/cases.hpp"

/// What a run takes beside inputs and outputs: said beforehand, given by the caller, capped by the plan.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A problem of every operation, and what makes memory differ: groups, masks, ragged edges, a forward pass that runs
/// first.
std::vector<Problem> problems_of_every_operation() {
  std::vector<Problem> list;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::forward_x, Operation::gradient_x,
                             Operation::backward_x, Operation::backward_w, Operation::scores, Operation::weights}) {
    Problem p = problem(13, 11, 6, 5);
    p.op = op;
    p.batch = 2;
    p.heads = 4;
    p.d_in = op == Operation::backward_w ? 7 : 0;
    p.lse_required = op == Operation::forward;
    list.push_back(p);
    if (!is_projected(op)) list.back().kv_heads = 2;
    if (!is_projected(op)) {
      list.push_back(list.back());
      list.back().causal = true;
    }
    if (follows_forward(op) && op != Operation::backward_w) {
      list.push_back(list.back());
      list.back().forward_given = false;
    }
  }
  list.push_back(problem(13, 11, 6, 5));  // lse is not wanted
  return list;
}

TEST(RunMemory, EveryScheduleRunsInWhatItSaysAndNotInOneByteLess) {
  constexpr unsigned char kNoOnes = 0xA5;
  const auto pool = make_pool(3);
  int runs = 0;
  for (const Problem& p : problems_of_every_operation())
    for (const plan::Plan& plan : plans_in_turn(p))
      for (const DType dtype : cases<DType>({DType::f32, DType::f64, DType::bf16}))
        for (const Strides strides : first_of<Strides>({Strides::bshd, Strides::bhsd})) {
          SCOPED_TRACE(testing::Message() << name_of(p.op) << ' ' << plan.row().schedule << ' ' << name_of(dtype) << ' '
                                          << name_of(strides) << (p.causal ? " causal" : ""));
          Filled x(p, dtype, strides), y(p, dtype, strides);
          RunOptions options;
          options.compute = dtype == DType::f64 ? DType::f64 : DType::f32;
          options.pool = pool.get();
          options.threads = 1 + 2 * (runs % 2);
          const Measured expected = run(plan, x.tensors(), options);
          const Words bytes = run_bytes(plan, y.tensors(), options);
          EXPECT_EQ(expected.bytes, bytes);

          for (const std::size_t first : {0U, 3U}) {  // aligned or not
            std::vector<unsigned char> memory(static_cast<std::size_t>(bytes.to_index()) + 128, kNoOnes);
            options.memory = std::as_writable_bytes(std::span(memory)).subspan(first);
            options.memory = options.memory.first(static_cast<std::size_t>(bytes.to_index()));
            run(plan, y.tensors(), options);
            EXPECT_EQ(x.outputs(), y.outputs());
            for (std::size_t i = 0; i < memory.size(); ++i)
              if (i < first || i >= first + options.memory.size()) {
                ASSERT_EQ(memory[i], kNoOnes) << i;
              }
          }
          options.memory = options.memory.first(options.memory.size() - 1);
          try {
            run(plan, y.tensors(), options);
            ADD_FAILURE() << "one byte less was accepted";
          } catch (const MemoryError& e) {
            EXPECT_EQ(e.needed, bytes);
            EXPECT_EQ(e.available, bytes - 1);
            EXPECT_THAT(e.what(), AllOf(HasSubstr("this run takes " + bytes.str() + " bytes"),
                                        HasSubstr("the memory given is " + (bytes - 1).str())));
          }
          ++runs;
        }
  EXPECT_GT(runs, share_of_cases() > 1 ? 60 : 200);
}

/// Without schedules that plans list only where they are chosen.
const plan::Registry& always_listed() {
  static const plan::Registry registry = [] {
    plan::Registry some;
    for (std::size_t op = 0; op < kOperationNames.size(); ++op)
      for (const auto& s : plan::Registry::built_in().of(static_cast<Operation>(op)))
        if (!s->traits.narrow && !s->traits.lists_pairs) some.add(*s);
    return some;
  }();
  return registry;
}

plan::Options capped(Words M, Words cap, const Problem& p, DType dtype = DType::f32) {
  plan::Options o;
  o.M = M;
  o.registry = &always_listed();
  o.cap = memory_cap(cap, contiguous_tensors(p, dtype));
  return o;
}

/// What a row of the plan takes.
Words bytes_of(plan::Plan plan, std::size_t row, DType dtype) {
  plan.chosen = row;
  return run_bytes(plan, contiguous_tensors(plan.problem, dtype));
}

TEST(RunMemory, PlannerDropsWhatCannotKeepTheCapAndNothingElse) {
  for (const Problem& p : problems_of_every_operation()) {
    if (follows_forward(p.op) && !p.forward_given) continue;
    for (const DType dtype : {DType::f32, DType::f16}) {
      plan::Options o;
      o.M = 700;
      o.registry = &always_listed();
      const plan::Plan all = plan::make_plan(p, o);
      std::optional<Words> least;  // of what may be chosen
      for (std::size_t i = 0; i < all.rows.size(); ++i) {
        const Words bytes = bytes_of(all, i, dtype);
        if (all.rows[i].algorithm->traits.stable && all.rows[i].fits && (!least || bytes < *least)) least = bytes;
      }
      ASSERT_TRUE(least);
      for (std::size_t cap_of = 0; cap_of < all.rows.size(); ++cap_of) {
        const Words cap = bytes_of(all, cap_of, dtype);
        if (cap < *least) continue;
        const plan::Plan some = plan::make_plan(p, capped(700, cap, p, dtype));
        std::size_t kept = 0;
        for (std::size_t i = 0; i < all.rows.size(); ++i) {
          const Words bytes = bytes_of(all, i, dtype);
          if (bytes <= cap) {
            ASSERT_LT(kept, some.rows.size());
            EXPECT_EQ(some.rows[kept++].schedule, all.rows[i].schedule);
            continue;
          }
          const auto refusal = std::find_if(some.refused.begin(), some.refused.end(),
                                            [&](const plan::Refusal& r) { return r.schedule == all.rows[i].schedule; });
          ASSERT_NE(refusal, some.refused.end()) << all.rows[i].schedule;
          EXPECT_THAT(refusal->why, AllOf(HasSubstr("takes " + bytes.str() + " bytes"),
                                          HasSubstr("more than the cap of " + cap.str())));
        }
        EXPECT_EQ(kept, some.rows.size());
        EXPECT_LE(run_bytes(some, contiguous_tensors(p, dtype)), cap);
      }
      EXPECT_NO_THROW(plan::make_plan(p, capped(700, *least, p, dtype)));
      try {
        plan::make_plan(p, capped(700, *least - 1, p, dtype));
        ADD_FAILURE() << "a cap that nothing keeps was accepted";
      } catch (const MemoryError& e) {
        EXPECT_EQ(e.needed, *least);
        EXPECT_THAT(e.what(), HasSubstr("the smallest that works for M = 700 words is " + least->str()));
      }
    }
  }
}

TEST(RunMemory, CapCoversTheForwardPassThatRunsFirst) {
  Problem p = problem(40, 40, 8, 8);
  p.op = Operation::backward;
  p.forward_given = false;
  plan::Options o;
  o.M = 700;
  const Words needed = run_bytes(plan::make_plan(p, o), contiguous_tensors(p, DType::f32));
  EXPECT_GT(needed, Words(40) * (8 + 1) * 4);  // o and lse are kept
  for (Words cap = needed; cap > 0; cap -= 64) try {
      const plan::Plan plan = plan::make_plan(p, capped(700, cap, p));
      EXPECT_LE(run_bytes(plan, contiguous_tensors(p, DType::f32)), cap);
      Filled x(p, DType::f32, Strides::bhsd);
      EXPECT_LE(run(plan, x.tensors()).bytes, cap);
    } catch (const MemoryError& e) {
      EXPECT_GT(e.needed, cap);
      return;
    }
  ADD_FAILURE() << "no cap was too small";
}

TEST(RunMemory, RunKeepsTheCapOfItsPlan) {
  const Problem p = problem(40, 40, 8, 8);
  plan::Options o = capped(700, 1 << 20, p);
  o.schedule = "key_outer";
  o.cap->most = run_bytes(plan::make_plan(p, o), contiguous_tensors(p, DType::f32));
  const plan::Plan plan = plan::make_plan(p, o);
  Filled planned_for(p, DType::f32, Strides::bhsd), wider(p, DType::bf16, Strides::bhsd);
  EXPECT_EQ(run(plan, planned_for.tensors()).bytes, o.cap->most);
  try {
    run(plan, wider.tensors());
    ADD_FAILURE() << "more than the cap was taken";
  } catch (const MemoryError& e) {
    EXPECT_EQ(e.available, o.cap->most);
    EXPECT_THAT(e.what(), HasSubstr("the plan was made for at most"));
  }
}

/// 1 TiB of scores, which no machine here has.
TEST(RunMemory, OfARunBeyondTheMachineAtLeastAPartIsKnown) {
  Problem p = problem(1 << 19, 1 << 19, 4, 4);
  plan::Options o;
  o.schedule = "naive";
  o.M = 1 << 26;  // few operations
  const plan::Plan plan = plan::make_plan(p, o);
  Tensors tensors = contiguous_tensors(p, DType::f32);
  const Words scores = Words(p.n_q) * p.n_k * 4, part = run_bytes(plan, tensors);
  EXPECT_GE(part, scores);

  std::byte anything;
  RunOptions options;
  options.memory = {&anything, std::size_t{1} << 50};  // run_bytes asks for its size alone
  const Words all = run_bytes(plan, tensors, options);
  EXPECT_GT(all, part + plan.row().footprint * 4 - 1);

  std::uintptr_t address = 1 << 20;
  for (const SlowArray a : {SlowArray::Q, SlowArray::K, SlowArray::V, SlowArray::O})
    tensors[a].data = reinterpret_cast<void*>(address <<= 4);
  try {
    run(plan, tensors, {});
    ADD_FAILURE() << "a run without memory was accepted";
  } catch (const MemoryError& e) {
    EXPECT_THAT(e.what(), HasSubstr("takes at least " + part.str() + " bytes"));
  }
}

}  // namespace
}  // namespace redblue::test
