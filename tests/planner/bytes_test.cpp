#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/verify/claims.hpp"
#include "support/generators.hpp"

/// Plans for fast memory in bytes, where words differ in width.
namespace redblue::test {
namespace {

using enum SlowArray;
using plan::make_plan;
using plan::Options;
using plan::Plan;
using plan::Row;

Problem square(Operation op, index_t n, index_t d) {
  Problem p = problem(n, n, d, d);
  p.op = op;
  return p;
}

/// Operands, accumulators, and scores of these many bytes.
Options of_widths(Operation op, Words bytes, index_t operand, index_t accumulator, index_t score) {
  Options o;
  o.memory = {bytes, plan::residence_of(op, DType::bf16, DType::f32)};
  for (const SlowArray a : plan::arrays_of(op)) {
    const bool input = o.memory->fast.word(a) == 2;
    o.memory->fast.width[index_of(a)] = static_cast<std::uint8_t>(input ? operand : accumulator);
  }
  o.memory->fast.width[index_of(S)] = static_cast<std::uint8_t>(score);
  o.memory->fast.alike();
  return o;
}

const Row& row(const Plan& plan, std::string_view name) {
  return *std::find_if(plan.rows.begin(), plan.rows.end(), [&](const Row& r) { return r.schedule == name; });
}
Words bound(const Plan& plan, std::string_view name) {
  return std::find_if(plan.bounds.begin(), plan.bounds.end(), [&](const bound::Bound& b) { return b.name == name; })
      ->words;
}

/// docs/theorems.md: words in units of n^2 d^2 / B, for operands, accumulators and scores of 2, 4 and 4 or 2 bytes.
TEST(Bytes, TableOfTheory38) {
  struct Line {
    index_t score, n, d, B;
    double naive, f_prime, f_double_prime, query_outer, key_outer, naive_backward, b_double_prime, two_pass;
  };
  const Line table[] = {{4, 4096, 64, 1 << 16, 8.00, 11.03, 11.75, 13.00, 13.13, 18.47, 24.76, 43.89},
                        {4, 4096, 64, 1 << 18, 8.00, 9.81, 11.00, 16.02, 16.14, 24.00, 37.00, 52.44},
                        {4, 65536, 64, 1 << 18, 8.00, 11.25, 11.94, 12.63, 12.57, 24.00, 39.81, 41.88},
                        {4, 1 << 24, 128, 1 << 20, 8.00, 11.31, 12.00, 12.19, 12.16, 24.00, 40.00, 40.63},
                        {2, 65536, 64, 1 << 18, 8.00, 11.25, 11.94, 12.50, 12.38, 24.00, 39.81, 41.63},
                        {2, 1 << 24, 128, 1 << 20, 8.00, 11.31, 12.00, 12.17, 12.11, 24.00, 40.00, 40.49}};
  for (const Line& t : table) {
    SCOPED_TRACE(testing::Message() << "n " << t.n << " d " << t.d << " B " << t.B << " scores " << t.score);
    const double unit = std::pow(static_cast<double>(t.n) * static_cast<double>(t.d), 2) / static_cast<double>(t.B);
    const auto expect = [&](Words words, double wanted) { EXPECT_NEAR(words.to_double() / unit, wanted, 0.0051); };
    const Plan forward =
        make_plan(square(Operation::forward, t.n, t.d), of_widths(Operation::forward, t.B, 2, 4, t.score));
    expect(bound(forward, "F'_B"), t.f_prime);
    expect(bound(forward, "F''_B"), t.f_double_prime);
    expect(row(forward, "flash").io.total(), t.query_outer);
    expect(row(forward, "key_outer").io.total(), t.key_outer);
    const Plan backward =
        make_plan(square(Operation::backward, t.n, t.d), of_widths(Operation::backward, t.B, 2, 4, t.score));
    expect(bound(backward, "B''_B"), t.b_double_prime);
    expect(row(backward, "two_pass").io.total(), t.two_pass);
  }
}

/// The kernel engineer's case: bf16 operands and f32 accumulators in 64 KiB hold twice as many queries.
TEST(Bytes, ScratchpadOfTheKernelEngineer) {
  Problem p = problem(8192, 8192, 128, 128);
  p.heads = 32, p.kv_heads = 8, p.causal = true;
  Options o = of_widths(p.op, 65536, 2, 4, 4);
  o.multiple.query = o.multiple.key = 16;
  o.schedule = "flash_tiled";
  const Plan plan = make_plan(p, o);
  EXPECT_EQ(plan.row().io.total(), Words(4370726912));
  EXPECT_EQ(plan.row().footprint_bytes, Words(57856));
}

RC_GTEST_PROP(Bytes, PlansFitAndMoveNoLessThanTheBounds, ()) {
  const auto size = [](int most) { return *rc::gen::inRange<index_t>(1, most); };
  Problem p = problem(size(3000), size(3000), size(130), size(130));
  p.op = *rc::gen::element(Operation::forward, Operation::backward, Operation::forward_x, Operation::gradient_x,
                           Operation::backward_x, Operation::backward_w, Operation::scores, Operation::weights);
  if (p.op == Operation::backward_w) p.d_in = size(100);
  p.causal = *rc::gen::arbitrary<bool>();
  Options o;
  o.memory = plan::ByteMemory{
      index_t{1} << *rc::gen::inRange(6, 21),
      claims::any_residence([](index_t least, index_t most) { return *rc::gen::inRange(least, most + 1); })};
  o.double_buffer = *rc::gen::arbitrary<bool>();
  o.reserve = *rc::gen::inRange(0, 3);
  try {
    const Plan plan = make_plan(p, o);
    for (const Row& r : plan.rows) {
      if (r.fits) RC_ASSERT(*r.footprint_bytes + *r.prefetch_bytes <= o.memory->bytes);
      for (const bound::Bound& b : plan.bounds)
        if (b.holds && b.status == "proved" && r.io.total() < b.words)
          RC_FAIL(std::string(r.schedule) + " moves " + r.io.total().str() + ", less than " + std::string(b.name) +
                  " = " + b.words.str());
    }
  } catch (const CapacityError&) {  // nothing fits
  }
}

/// Words that are all alike give the plans of as many words.
RC_GTEST_PROP(Bytes, OfEqualWidthAreWords, (bool causal)) {
  const auto size = [](int most) { return *rc::gen::inRange<index_t>(1, most); };
  Problem p = problem(size(3000), size(3000), size(130), size(130));
  p.op = *rc::gen::element(Operation::forward, Operation::backward, Operation::gradient_x);
  p.causal = causal;
  const index_t width = size(9), M = size(100000);
  Options words, bytes;
  words.M = M;
  bytes.memory = plan::ByteMemory{Words(M) * width + size(static_cast<int>(width) + 1) - 1, {}};
  bytes.memory->fast.width.fill(static_cast<std::uint8_t>(width));
  try {
    const Plan a = make_plan(p, words), b = make_plan(p, bytes);
    RC_ASSERT(a.rows.size() == b.rows.size());
    for (std::size_t i = 0; i < a.rows.size(); ++i) {
      RC_ASSERT(a.rows[i].schedule == b.rows[i].schedule);
      RC_ASSERT(a.rows[i].tiling == b.rows[i].tiling);
      RC_ASSERT(a.rows[i].footprint == b.rows[i].footprint);
      RC_ASSERT(a.rows[i].footprint * width == *b.rows[i].footprint_bytes);
    }
  } catch (const CapacityError&) {
    RC_ASSERT_THROWS_AS(make_plan(p, bytes), CapacityError);
  }
}

}  // namespace
}  // namespace redblue::test
