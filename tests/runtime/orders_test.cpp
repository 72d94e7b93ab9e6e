#include <gtest/gtest.h>

#include <random>

#include "redblue/masks/patterns.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/verify/verify.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"
#include "support/cases.hpp"

/// Every operation under patterns whose parts leave queries and keys between them without a pair, in every order.
namespace redblue::test {
namespace {

class Orders : public testing::Test {
 protected:
  std::mt19937 random{11};

  index_t draw(index_t low, index_t high) { return std::uniform_int_distribution<index_t>(low, high)(random); }

  /// Pairs in two blocks along the diagonal, or anywhere; a third of them at most.
  std::shared_ptr<const RunLists> any_pattern(index_t n_q, index_t n_k) {
    const bool parts = draw(0, 2) > 0;
    const index_t share = draw(5, 35), gap = draw(0, 3);
    std::vector<std::uint8_t> seen;
    for (index_t i = 0; i < n_q; ++i)
      for (index_t j = 0; j < n_k; ++j) {
        const bool inside = !parts || (i < n_q / 2 - gap && j < n_k / 2 - gap) || (i >= n_q / 2 && j >= n_k / 2);
        seen.push_back(inside && draw(0, 99) < share ? 1 : 0);
      }
    return std::make_shared<const RunLists>(patterns::of_mask({n_q, n_k}, seen));
  }
  Problem any_problem(Operation op) {
    Problem p{.op = op, .n_q = draw(6, 24), .n_k = draw(6, 24), .d = draw(2, 4)};
    p.d_v = is_projected(op) ? p.d : draw(2, 4);
    if (op == Operation::backward_w) p.d_in = draw(2, 4);
    p.forward_given = !follows_forward(op) || op == Operation::backward_w;
    p.lse_required = is_forward(op);
    p.patterns = {any_pattern(p.n_q, p.n_k)};
    return p;
  }
  void expect_counted_and_right(const plan::Plan& plan, bool runs) {
    SCOPED_TRACE(testing::Message() << text_of(plan) << ", " << phrase(plan.problem.order));
    EXPECT_EQ(count(plan).io, plan.io());
    if (!runs) return;
    Filled x(plan.problem, DType::f64, Strides::bhsd);
    const Measured m = run(plan, x.tensors(), {.compute = DType::f64, .threads = 1});
    EXPECT_EQ(m.io, plan.io());
    for (const Deviation& d : verify(plan.problem, x.tensors(), DType::f64, roundings_of(plan)).outputs)
      EXPECT_TRUE(d.ok()) << d.name << " errs by " << d.error << " of " << d.tolerance;
  }
};

TEST_F(Orders, CostWhatTheirFormulasSayInEveryOperation) {
  int refused = 0, counted = 0;
  for (std::size_t i = 0; i < kOperationNames.size(); ++i) {
    const auto op = static_cast<Operation>(i);
    if (op == Operation::merge) continue;  // it has no keys
    for (int k = 0; k < cases(12) && !HasFailure(); ++k) {
      Problem p = any_problem(op);
      for (const PatternOrder order :
           {PatternOrder::natural, PatternOrder::rcm, PatternOrder::jaccard, PatternOrder::in_place}) {
        p.order = order;
        if (is_searched(order) && !p.may_reorder()) {
          EXPECT_THROW(plan::make_plan(p, {.M = 2000}), InvalidProblem);
          continue;
        }
        for (const plan::Plan& plan : plans_in_turn(p)) {
          // Of given O and lse nothing is known, and printed schedules are no more stable than their source.
          expect_counted_and_right(plan, !p.forward_given && !plan.row().algorithm->traits.printed);
          ++counted;
        }
        if (order != PatternOrder::in_place || !is_projected(op)) continue;
        try {
          plan::make_plan(p, {.M = 2000});
        } catch (const Unsupported&) {
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(counted, share_of_cases() > 1 ? 30 : 100);
  EXPECT_GT(refused, 0) << "operations on A1, A2, A3 have queries or keys without pairs last";
}

/// In natural order a run may copy its arrays, in place it does not: the least of both is what works.
TEST_F(Orders, ACapNamesTheLeastThatWorksInAnyOrder) {
  int refused = 0;
  for (const Operation op : {Operation::forward, Operation::backward, Operation::gradient_x, Operation::scores})
    for (int k = 0; k < 6; ++k) {
      Problem p = any_problem(op);
      p.forward_given = true;
      const Tensors tensors = contiguous_tensors(p, k % 2 == 0 ? DType::f32 : DType::f16);  // f16: rows are staged
      plan::Options o{.M = 300, .reorder = true};
      const auto plan_within = [&](Words bytes) {
        o.cap = memory_cap(bytes, tensors);
        return plan::make_plan(p, o);
      };
      try {
        plan_within(1);
      } catch (const MemoryError& e) {
        ++refused;
        const plan::Plan least = plan_within(e.needed);
        EXPECT_LE(run_bytes(least, tensors), e.needed) << text_of(least) << ", " << phrase(least.problem.order);
        EXPECT_THROW(plan_within(e.needed - 1), MemoryError);
      }
    }
  EXPECT_GT(refused, 10);
}

/// The library once took no notice of the order there; its model of time did, and the process ended.
TEST_F(Orders, AreRefusedWhereQueriesAndKeysKeepTheirPlaces) {
  Problem p{.heads = 2, .n_q = 1, .n_k = 17, .d = 4, .d_v = 4};
  p.patterns = {any_pattern(1, 17), any_pattern(1, 17)};
  p.bias = {1, 1, 1, 17};
  for (const PatternOrder order : {PatternOrder::rcm, PatternOrder::jaccard}) {
    p.order = order;
    EXPECT_THROW(plan::make_plan(p, {.M = 1000}), InvalidProblem) << "of one bias for two patterns";
    Problem other = p;
    other.bias = std::nullopt;
    EXPECT_NO_THROW(plan::make_plan(other, {.M = 1000}));
    other.dropout = 0.5;
    EXPECT_THROW(plan::make_plan(other, {.M = 1000}), InvalidProblem) << "of dropout";
  }
}

}  // namespace
}  // namespace redblue::test
