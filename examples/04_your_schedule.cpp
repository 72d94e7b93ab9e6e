// A schedule of your own: examples/two_sweeps.hpp has its text. Registered with one call, it is planned beside
// redblue's own, counted, traced, checked, run and verified like them.
#include <iostream>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/claims.hpp"
#include "redblue/machines.hpp"
#include "redblue/schedule.hpp"
#include "redblue/verify.hpp"
#include "two_sweeps.hpp"

using namespace redblue;

int main() {
  plan::Registry registry = plan::Registry::built_in();
  registry.add(describe<schedule::TwoSweepsForward>());

  // 1. Is what its text says true? Counts, footprint, rules of the game, numbers, tilings, on random problems.
  claims::check(*registry.find(Operation::forward, "two_sweeps"));

  // 2. Ranked beside all others.
  const Problem problem{.heads = 2, .n_q = 200, .n_k = 200, .d = 16, .d_v = 16};
  plan::Options options{.M = 2048, .registry = &registry};
  for (const plan::Row& row : plan::make_plan(problem, options).rows)
    std::cout << row.schedule << ": " << row.io.total().str() << " words\n";

  // 3. Counted without data, traced, run on arrays of your own, and compared with attention in fp64.
  options.schedule = "two_sweeps";
  const plan::Plan plan = plan::make_plan(problem, options);
  std::vector<float> q(2 * 200 * 16), k(q.size()), v(q.size()), o(q.size()), lse(2 * 200);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = static_cast<float>(i % 13) - 6, k[i] = static_cast<float>(i % 7) / 8, v[i] = static_cast<float>(i % 5);
  }
  const Inputs in{{q, {1, 2, 200, 16}}, {k, {1, 2, 200, 16}}, {v, {1, 2, 200, 16}}};
  const Outputs out{{o, {1, 2, 200, 16}}, {lse, {1, 2, 200, 1}}};
  const Measured counted = count(plan), moved = run(plan, in, out);
  const Verification verified = verify(problem, in, out, DType::f32);
  std::cout << plan.reason << "\ncounted " << counted.io.total().str() << ", moved " << moved.io.total().str()
            << " words in " << trace(plan).operations.size() << " operations; error " << verified.outputs[0].error
            << '\n';
  return counted.io == plan.row().io && moved.io == plan.row().io && verified.ok() ? 0 : 1;
}
