#include <gtest/gtest.h>

#include "redblue/hardware/isa.hpp"
#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "support/cases.hpp"

/// The memory that run_bytes announces is enough, whichever round of a loop takes the most.
namespace redblue::test {
namespace {

/// Runs the plan in exactly the memory that it announces.
void run_in_announced_memory(const plan::Plan& plan, Filled& x, RunOptions options) {
  const Words bytes = run_bytes(plan, x.tensors(), options);
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes.to_index()));
  options.memory = memory;
  EXPECT_NO_THROW(EXPECT_EQ(run(plan, x.tensors(), options).bytes, bytes)) << text_of(plan);
}

/// Under the mask the first blocks of keys have all queries, later ones fewer: so few that they are not packed.
TEST(EnoughMemory, BackwardOfFewQueriesUnderAMask) {
  for (const index_t n_q : {2, 4, 7, 20, 32})
    for (index_t n_k = 200; n_k < 1500; n_k += few_cases() ? 125 : 25) {
      Problem p = problem(n_q, n_k, 32, 32);
      p.op = Operation::backward;
      p.causal = true;
      plan::Options o;
      o.schedule = "grouped_key_outer";
      o.multiple = {48, 128};
      o.M = 1 << 19;
      Filled x(p, DType::f32, Strides::bhsd);
      run_in_announced_memory(plan::make_plan(p, o), x, {});
    }
}

/// Groups of keys are rounds of one loop: the first ends in a ragged step, the last sees no key.
TEST(EnoughMemory, GroupsOfKeysOf16BitsUnderAMask) {
  Problem p = problem(32, 8192, 64, 64);
  p.causal = true;
  p.causal_offset = 0;
  plan::Options o;
  o.schedule = "split_keys";
  o.multiple.key = 32;
  o.M = 2600;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Filled x(p, dtype, Strides::bhsd);
    run_in_announced_memory(plan::make_plan(p, o), x, {});
  }
}

/// Draws what makes memory differ.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  index_t from(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random_); }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(from(0, static_cast<index_t>(list.size()) - 1))];
  }
  Problem problem() {
    Problem p;
    p.op = one_of<Operation>({Operation::forward, Operation::forward, Operation::forward, Operation::backward,
                              Operation::backward, Operation::backward, Operation::forward_x, Operation::gradient_x,
                              Operation::backward_x, Operation::backward_w});
    const bool projected = is_projected(p.op);
    p.n_q = one_of<index_t>({from(1, 40), from(1, 40), from(41, 150)});
    p.n_k = projected ? from(1, 60) : one_of<index_t>({from(1, 40), from(41, 300), from(301, 4000), from(301, 4000)});
    if (p.op == Operation::backward_x || p.op == Operation::backward_w || p.op == Operation::gradient_x) p.n_k = p.n_q;
    p.d = from(1, projected ? 12 : 24);
    p.d_v = from(0, 1) == 0 ? p.d : from(1, projected ? 12 : 24);
    p.d_in = p.op == Operation::backward_w ? from(1, 9) : 0;
    p.batch = from(1, 2);
    p.heads = one_of<index_t>({1, 1, 2, 4});
    if (!projected && p.heads == 4) p.kv_heads = one_of<index_t>({1, 2});
    if (!projected && from(0, 2) > 0) {
      p.causal = true;
      if (from(0, 1) == 0) p.causal_offset = from(-p.n_q, p.n_k);
    }
    if (projected && from(0, 2) == 0) {  // sequences; the second may have no keys
      const index_t q = from(0, p.n_q), k = from(0, p.n_k);
      p.cu_seqlens_q = {0, q / 2, q, p.n_q};
      p.cu_seqlens_k = {0, k, k, p.n_k};
      p.causal = from(0, 1) == 0;
    }
    if (!follows_forward(p.op)) p.lse_required = from(0, 1) == 0;
    return p;
  }
  /// By any schedule, with the least fast memory for its multiples, some more, or plenty.
  std::optional<plan::Plan> plan(const Problem& p) {
    plan::Options o;
    o.schedule = one_of(plan::Registry::built_in().names(p.op));
    if (p.causal && !is_projected(p.op) &&
        from(0, 1) == 0)  // groups of keys: rounds of one loop, none of which is like another
      o.schedule = p.op == Operation::forward ? "split_keys" : "grouped_key_outer";
    o.multiple.query = one_of<index_t>({1, 1, 16, 48});
    o.multiple.key = one_of<index_t>({1, 16, 32, 128});
    o.M = 1;
    try {
      return plan::make_plan(p, o);
    } catch (const CapacityError& e) {
      o.M = one_of<Words>({e.needed * from(4, 16) / 4, e.needed * from(16, 64) / 4, std::max<Words>(e.needed, 500'000),
                           std::max<Words>(e.needed, 500'000)});
    } catch (const Unsupported&) {
      return std::nullopt;
    }
    return plan::make_plan(p, o);
  }

 private:
  std::mt19937_64 random_;
};

TEST(EnoughMemory, AnyPlanOnAnyTensors) {
  const auto pool = make_pool(3);
  int runs = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(cases(800)); ++seed) {
    Draw draw(seed);
    const Problem p = draw.problem();
    const auto plan = draw.plan(p);
    if (!plan) continue;
    const auto dtype = draw.one_of<DType>({DType::f32, DType::f16, DType::bf16, DType::f64});
    const auto strides = draw.one_of<Strides>({kAllStrides.begin(), kAllStrides.end()});
    SCOPED_TRACE(testing::Message() << "seed " << seed << ' ' << name_of(dtype) << ' ' << name_of(strides));
    RunOptions options;
    if (dtype == DType::f64) options.compute = DType::f64;
    const bool side_by_side = strides != Strides::reversed;
    if (p.op == Operation::forward && dtype == DType::bf16 && side_by_side && draw.from(0, 1) == 0)
      options.compute = DType::bf16;
    options.pool = pool.get();
    options.threads = static_cast<int>(draw.from(1, 3));
    Filled x(p, dtype, strides);
    run_in_announced_memory(*plan, x, options);
    ++runs;
  }
  EXPECT_GT(runs, cases(400));
}

}  // namespace
}  // namespace redblue::test
