#include "redblue/hardware/loops.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "redblue/hardware/family.hpp"

namespace redblue::hardware {
namespace {

std::vector<const Loops*> available() {
  std::vector<const Loops*> list = {&kPortableF32, &kPortableF64};
  for (const Loops* l : family_loops())
    if (l->isa != Isa::amx_bf16 && is_available(l->isa)) list.push_back(l);
  return list;
}

template <class T>
void expect_exp2(const Loops& l, double tolerance) {
  alignas(64) T x[kExpMultiple], y[kExpMultiple];
  for (int i = 0; i < kExpMultiple; ++i) x[i] = static_cast<T>(-900 + 15 * i);  // exponents -113.5 to 4.6
  const double sum = l.exp2(x, y, kExpMultiple, 1);
  double expected_sum = 0;
  for (int i = 0; i < kExpMultiple; ++i) {
    const double expected = std::exp2(0.125 * static_cast<double>(x[i]) - 1);
    expected_sum += expected;
    EXPECT_NEAR(static_cast<double>(y[i]) / expected, 1, tolerance) << x[i];
  }
  EXPECT_NEAR(sum / expected_sum, 1, 64 * tolerance);
  EXPECT_NEAR(l.exp2(x, y, kExpMultiple, 3) / expected_sum, 3, 64 * tolerance);
}

TEST(MeasuringLoops, Exp2IsExp2) {
  for (const Loops* l : available()) {
    if (l->exp2 == nullptr) continue;
    SCOPED_TRACE(name_of(l->isa));
    l->dtype == DType::f64 ? expect_exp2<double>(*l, 4e-15) : expect_exp2<float>(*l, 4e-7);
  }
}

TEST(MeasuringLoops, ScoresFarBelowTheMaximumBecomeNothing) {
  for (const Loops* l : available()) {
    if (l->exp2 == nullptr || l->dtype != DType::f32) continue;
    alignas(64) float x[kExpMultiple], y[kExpMultiple];
    for (float& v : x) v = -1e9f;
    EXPECT_LT(l->exp2(x, y, kExpMultiple, 1), 1e-35) << name_of(l->isa);
  }
}

TEST(MeasuringLoops, ReadEveryWord) {
  for (const Loops* l : available()) {
    if (l->read == nullptr) continue;
    const auto sum_of = [&]<class T>(T) {
      alignas(64) T x[4 * kReadMultiple / sizeof(T)];
      double sum = 0;
      for (std::size_t i = 0; i < std::size(x); ++i) sum += static_cast<double>(x[i] = static_cast<T>(i % 7));
      EXPECT_EQ(l->read(x, sizeof x, 1), sum) << name_of(l->isa);
      EXPECT_EQ(l->read(x, sizeof x, 2), 2 * sum) << name_of(l->isa);
    };
    l->dtype == DType::f64 ? sum_of(double{}) : sum_of(float{});
  }
}

/// After many steps each chain x <- 0.999 x + 0.001 stands at 1, wherever it started; a dot product adds 2^-10 for each
/// of its terms.
TEST(MeasuringLoops, MultiplyAddDoesAllChains) {
  for (const Loops* l : available()) {
    const bool dots = l->dtype == DType::bf16;
    const int terms = l->isa == Isa::amx_bf16 ? 32 : dots ? 2 : 1, lanes = l->macs_per_vector / terms;
    const double chains = lanes * l->chains;
    const double starts = lanes * (l->chains * (l->chains - 1) / 2.0);
    const double expected = dots ? starts + chains * terms * 1024 / 1024 : chains;
    EXPECT_NEAR(l->multiply_add(dots ? 1024 : 1 << 17) / expected, 1, 1e-3) << name_of(l->isa);
  }
}

}  // namespace
}  // namespace redblue::hardware
