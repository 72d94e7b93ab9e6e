// Attention on your own arrays: describe the problem, plan it for a fast memory, run it, check it.
#include <cmath>
#include <iostream>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/verify.hpp"

int main() {
  const redblue::index_t tokens = 200, heads = 4, d = 32;

  // Your memory, here as many models keep it: [batch, token, head, feature].
  std::vector<float> q(static_cast<std::size_t>(tokens * heads * d)), k = q, v = q, o = q,
                                                                      lse(static_cast<std::size_t>(heads * tokens));
  for (std::size_t i = 0; i < q.size(); ++i) {
    const float x = static_cast<float>(i);
    q[i] = std::sin(x), k[i] = std::sin(3 * x), v[i] = std::cos(5 * x);
  }

  // 1. Describe. A Tensor is a view: shape in the order batch, head, token, feature, and a stride for each.
  redblue::Problem problem;
  problem.heads = heads;
  problem.n_q = problem.n_k = tokens;
  problem.d = problem.d_v = d;
  problem.causal = true;
  const auto view = [&](std::vector<float>& x) {
    return redblue::Tensor(x, {1, heads, tokens, d}, {tokens * heads * d, d, heads * d, 1});
  };
  const redblue::Inputs in{view(q), view(k), view(v)};
  const redblue::Outputs out{view(o), redblue::Tensor(lse, {1, heads, tokens, 1})};

  // 2. Plan for 4096 words of fast memory.  3. Run.
  redblue::plan::Options options;
  options.M = 4096;
  const redblue::plan::Plan plan = redblue::plan::make_plan(problem, options);
  const redblue::Measured moved = redblue::run(plan, in, out);

  // 4. Check against attention in fp64, row by row.
  const redblue::Verification check = redblue::verify(problem, in, out, redblue::DType::f32);
  std::cout << plan.reason << "\nmoved " << moved.io.total().str() << " words (formula " << plan.row().io.total().str()
            << ", bound " << plan.bound.words.str() << ")\nlargest error " << check.outputs[0].error
            << " of the largest entry (allowed: " << check.outputs[0].tolerance << ")\n";
  return check.ok() && moved.io == plan.row().io ? 0 : 1;
}
