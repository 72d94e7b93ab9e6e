#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "redblue/attention.hpp"

/// What docs/numerics.md says of a query whose bias holds nothing but the lowest number, for callers in C++ and C.
namespace redblue::test {
namespace {

constexpr index_t kKeys = 8, kColumns = 4;

/// The sum of all weights that gradients see, of queries 0 and 1 of which 0 sees nothing but what `bias` says of all
/// keys: dV of a dO of ones has each weight in each feature.
double sum_of_weights(Tensor bias, float do_of_query_0) {
  Problem problem{.n_q = 2, .n_k = kKeys, .d = kColumns, .d_v = kColumns};
  problem.bias = bias.shape;
  problem.lse_required = true;
  std::vector<float> q(2 * kColumns, 0.5F), k(kKeys * kColumns), o(q), dO(q.size(), 1), lse(2), dQ(q), dK(k), dV(k);
  std::iota(k.begin(), k.end(), -9.0F);
  std::fill_n(dO.begin(), kColumns, do_of_query_0);
  const auto rows = [](std::vector<float>& x) {
    return Tensor(x, {1, 1, static_cast<index_t>(x.size()) / kColumns, kColumns});
  };
  const Tensor lse_of_rows(lse, {1, 1, 2, 1});
  run(plan::make_plan(problem, {.M = 400}), Inputs{.q = rows(q), .k = rows(k), .v = rows(k), .bias = bias},
      Outputs{.o = rows(o), .lse = lse_of_rows});
  problem.op = Operation::backward;
  const BackwardInputs inputs{
      .q = rows(q), .k = rows(k), .v = rows(k), .dO = rows(dO), .o = rows(o), .lse = lse_of_rows, .bias = bias};
  run(plan::make_plan(problem, {.M = 400}), inputs, BackwardOutputs{.dq = rows(dQ), .dk = rows(dK), .dv = rows(dV)});
  return std::accumulate(dV.begin(), dV.end(), 0.0) / kColumns;
}

TEST(LowestBias, CountsEachKeyOnceUnlessDoIs0OrTheBiasIsBool) {
  std::vector<float> floats(2 * kKeys, 0);
  std::fill_n(floats.begin(), kKeys, std::numeric_limits<float>::lowest());
  const Tensor lowest(floats, {1, 1, 2, kKeys});
  EXPECT_NEAR(sum_of_weights(lowest, 1), kKeys + 1, 1e-5);
  EXPECT_NEAR(sum_of_weights(lowest, 0), 1, 1e-5);
  std::array<bool, 2 * kKeys> keep{};
  std::fill_n(keep.begin() + kKeys, kKeys, true);
  EXPECT_NEAR(sum_of_weights(Tensor(keep.data(), DType::boolean, {1, 1, 2, kKeys}), 1), 1, 1e-5);
}

}  // namespace
}  // namespace redblue::test
