#include <redblue/attention.hpp>
#include <vector>

int main() {
  const redblue::Problem problem{.heads = 12, .n_q = 512, .n_k = 512, .d = 64, .d_v = 64};
  std::vector<float> q(12 * 512 * 64, 1.0f), k = q, v = q, o(q.size());  // your arrays: [batch, head, token, feature]
  const auto view = [](std::vector<float>& x) { return redblue::Tensor(x, {1, 12, 512, 64}); };

  const redblue::plan::Plan plan = redblue::plan::make_plan(problem, {.M = 16384});  // for 64 KiB of fast memory
  const redblue::Measured moved = redblue::run(plan, redblue::Inputs{view(q), view(k), view(v)}, {view(o), {}});
  return moved.io == plan.row().io ? 0 : 1;  // the words that the run counted are those of the plan's formula
}
