// Gradients on arrays of your own: plan, run, check, and what two passes instead of one cost and save.
#include <iostream>
#include <random>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/verify.hpp"

int main() {
  // 1. Causal attention of 2 heads; o and lse are not at hand: a forward plan runs first, and its words are counted.
  redblue::Problem problem{.op = redblue::Operation::backward, .heads = 2, .n_q = 200, .n_k = 200, .d = 24, .d_v = 16};
  problem.causal = true;
  problem.forward_given = false;
  const redblue::plan::Plan plan = redblue::plan::make_plan(problem, {.M = 3000});
  for (const redblue::plan::Row& row : plan.rows)
    std::cout << row.schedule << ": " << row.io.total().str() << " words, " << row.work << " times the least work\n";

  // 2. Arrays: batch x heads x sequence x features.
  auto random = [generator = std::mt19937(1)](redblue::index_t features) mutable {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<std::size_t>(2 * 200 * features));
    for (float& e : x) e = normal(generator);
    return x;
  };
  std::vector<float> q = random(24), k = random(24), v = random(16), dO = random(16);
  std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());
  const redblue::BackwardInputs in{.q = {q, {1, 2, 200, 24}},
                                   .k = {k, {1, 2, 200, 24}},
                                   .v = {v, {1, 2, 200, 16}},
                                   .dO = {dO, {1, 2, 200, 16}},
                                   .o = {},
                                   .lse = {}};
  const redblue::BackwardOutputs out{
      .dq = {dq, {1, 2, 200, 24}}, .dk = {dk, {1, 2, 200, 24}}, .dv = {dv, {1, 2, 200, 16}}};

  // 3. Run it, and check against gradients in fp64 and central differences.
  const redblue::Measured moved = redblue::run(plan, in, out);
  const redblue::Verification check = redblue::verify(problem, in, out, redblue::DType::f32);
  std::cout << plan.reason << "\nmoved " << moved.io.total().str() << " words (formula " << plan.io().total().str()
            << ", bound " << plan.bound.words.str() << ")\n";
  for (const redblue::Deviation& d : check.outputs)
    std::cout << d.name << ": largest error " << d.error << " of the largest entry (allowed: " << d.tolerance << ")\n";
  return check.ok() && moved.io == plan.io() ? 0 : 1;
}
