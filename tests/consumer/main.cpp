#include <array>
#include <cmath>
#include <iostream>
#include <redblue/attention.hpp>

// One query, two keys with equal scores: the output is the mean of their values, lse = log 2.
int main() {
  std::array<float, 2> q{1, 0};
  std::array<float, 4> k{0, 1, 0, 2};
  std::array<float, 4> v{2, 4, 6, 8};
  std::array<float, 2> o{};
  std::array<float, 1> lse{};

  redblue::Problem problem;
  problem.n_q = 1;
  problem.n_k = 2;
  problem.d = problem.d_v = 2;
  redblue::plan::Options options;
  options.M = 16;
  const auto plan = redblue::plan::make_plan(problem, options);
  redblue::Inputs inputs{{q, {1, 1, 1, 2}}, {k, {1, 1, 2, 2}}, {v, {1, 1, 2, 2}}};
  const auto measured = redblue::run(plan, inputs, {{o, {1, 1, 1, 2}}, {lse, {1, 1, 1, 1}}});

  const bool right =
      std::abs(o[0] - 4) < 1e-6F && std::abs(o[1] - 6) < 1e-6F && std::abs(lse[0] - std::log(2.0F)) < 1e-6F;
  const bool counted = measured.io == plan.row().io;
  std::cout << "o = " << o[0] << ' ' << o[1] << ", lse = " << lse[0] << ", schedule " << plan.row().schedule << '\n';
  return right && counted ? 0 : 1;
}
