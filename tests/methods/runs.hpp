#pragma once
#include <gtest/gtest.h>

#include "redblue/verify/verify.hpp"
#include "runtime/filled.hpp"
#include "runtime/plans.hpp"

namespace redblue::test {

/// Runs the plan on tensors of this type: words as planned, numbers as the oracle says. What verify() says of it.
inline Verification verified_run(const plan::Plan& plan, DType type, int threads) {
  Filled filled(plan.problem, type, Strides::bhsd);
  RunOptions options;
  options.compute = type == DType::f64 ? DType::f64 : DType::f32;
  options.threads = threads;
  const Tensors t = filled.tensors();
  const Measured m = run(plan, t, options);
  EXPECT_EQ(m.io, plan.row().io);
  EXPECT_EQ(m.peak, plan.row().footprint);
  EXPECT_EQ(m.flops, plan.row().flops);
  const Verification v = verify(plan.problem, t, options.compute, roundings_of(plan));
  EXPECT_TRUE(v.ok());
  for (const Deviation& d : v.outputs)
    EXPECT_TRUE(d.ok()) << d.name << " errs by " << d.error << ", allowed " << d.tolerance;
  for (const Difference& d : v.differences)
    EXPECT_TRUE(d.ok()) << d.name << ' ' << d.gradient << ' ' << d.difference << " +- " << d.tolerance;
  return v;
}

}  // namespace redblue::test
