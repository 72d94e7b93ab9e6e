#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "redblue/kernels/backward.hpp"

namespace redblue::test {
namespace {

/// Where one key has all the weight, O is its value and dS = P (dP - D) must be 0, not the noise of two orders of
/// summation: D, and dP however it is formed, must agree in every bit.
template <class T>
void expect_one_order(index_t d_v) {
  std::mt19937 random(static_cast<unsigned>(d_v));
  std::normal_distribution<double> normal;
  std::vector<T> dO(static_cast<std::size_t>(d_v)), v(dO.size());
  for (T& x : dO) x = static_cast<T>(normal(random));
  for (T& x : v) x = static_cast<T>(normal(random));
  const View<const T> dO_row(dO.data(), {1, d_v}, d_v), v_row(v.data(), {1, d_v}, d_v);
  T D = 0, gemm = 0, streamed = 0, rank_one = 0, p = 1;
  kernel::RowDots{}.run<T>({&D, {1, 1}, 1}, dO_row, v_row);
  kernel::Gemm{false, true}.run<T>({&gemm, {1, 1}, 1}, dO_row, v_row);
  std::vector<T> dV(dO.size(), T(0));
  kernel::ValueGradients{}.run<T>({&streamed, {1, 1}, 1}, {dV.data(), {1, d_v}, d_v}, View<const T>(&p, {1, 1}, 1),
                                  v_row, dO_row);
  for (std::size_t t = 0; t < dO.size(); ++t)
    kernel::Gemm{false, true}.run<T>({&rank_one, {1, 1}, 1}, View<const T>(&dO[t], {1, 1}, 1),
                                     View<const T>(&v[t], {1, 1}, 1));
  for (const T dP : {gemm, streamed, rank_one}) EXPECT_EQ(std::memcmp(&D, &dP, sizeof(T)), 0) << "d_v = " << d_v;
}

}  // namespace

TEST(Summation, OfDAndDPHasOneOrder) {
  for (index_t d_v = 1; d_v <= 70; ++d_v) {
    expect_one_order<float>(d_v);
    expect_one_order<double>(d_v);
  }
}

}  // namespace redblue::test
