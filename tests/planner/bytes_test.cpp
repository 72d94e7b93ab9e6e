#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "redblue/language/error.hpp"
#include "redblue/planner/planner.hpp"
#include "redblue/planner/widths.hpp"
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

/// Fast memory in bytes, for tensors of bf16 and sums in f32, as the program and Python ask for it.
Options of_bf16(const Problem& p, Words bytes, const Widths& widths = {}) {
  Options o;
  o.memory = plan::ByteMemory{bytes, residence_of(p.op, DType::bf16, DType::f32, widths)};
  set_widths(o, p, DType::bf16, DType::f32, widths);
  return o;
}
Problem case_of_the_kernel_engineer() {
  Problem p = problem(8192, 8192, 128, 128);
  p.heads = 32, p.kv_heads = 8, p.causal = true;
  return p;
}

/// key_outer moves fewer words here than flash, and more bytes: all visits of O but the last write are in f32.
TEST(Bytes, UnfinishedOutputsMoveAsAccumulators) {
  const Problem p = case_of_the_kernel_engineer();
  Options o = of_bf16(p, 65536);
  o.multiple.query = o.multiple.key = 16;
  const Plan plan = make_plan(p, o);
  EXPECT_EQ(plan.row().schedule, "column_split");
  const Row &flash = row(plan, "flash"), &key_outer = row(plan, "key_outer");
  EXPECT_EQ(flash.bytes, Words(8741978112));
  EXPECT_LT(key_outer.io.total(), plan.row().io.total());
  const Words words = Words(32) * 8192 * 128;  // of O
  EXPECT_EQ(key_outer.io.reads[index_of(O)], Words(1210384384));
  EXPECT_EQ(key_outer.io.writes[index_of(O)], Words(1210384384) + words);
  const Io bytes = plan::bytes_of(key_outer.io, plan.options, p.op);
  EXPECT_EQ(bytes.reads[index_of(O)], Words(4) * 1210384384);
  EXPECT_EQ(bytes.writes[index_of(O)], Words(4) * 1210384384 + 2 * words);
  EXPECT_EQ(key_outer.bytes, Words(12348313600));
  EXPECT_EQ(key_outer.workspace, words / 8);  // O of an instance in f32
  EXPECT_EQ(flash.workspace, Words(0));
}

/// Gradients that a schedule revisits move as accumulators, too.
TEST(Bytes, UnfinishedGradientsMoveAsAccumulators) {
  Problem p = square(Operation::backward, 512, 16);
  const Plan plan = make_plan(p, of_bf16(p, 8192));
  int revisiting = 0;
  for (const Row& r : plan.rows) {
    Words recounted;
    for (const SlowArray a : plan::arrays_of(p.op)) {
      const Words reads = r.io.reads[index_of(a)], writes = r.io.writes[index_of(a)];
      const bool gradient = a == dQ || a == dK || a == dV;
      const bool given = gradient || a == Q || a == K || a == V || a == O || a == dO;
      if (gradient) {
        const Words last = 512 * 16;
        recounted += 4 * reads + 4 * (writes - last) + 2 * last;
        revisiting += reads > 0 ? 1 : 0;
      } else {
        recounted += (given ? 2 : 4) * (reads + writes);
      }
    }
    EXPECT_EQ(*r.bytes, recounted) << r.schedule;
  }
  EXPECT_GE(revisiting, 3);  // dQ of fused_key_outer, dK and dV of fused_query_outer
}

/// What is in slow memory as wide as accumulators moves as many bytes unfinished as finished.
TEST(Bytes, OutputsAsWideAsAccumulatorsHaveOneWidth) {
  const Problem p = case_of_the_kernel_engineer();
  const Plan plan = make_plan(p, of_bf16(p, 65536, {{"O", 4}}));
  for (const Row& r : plan.rows) {
    EXPECT_EQ(plan::unfinished_width(plan.options, p.op, O), 4);
    EXPECT_EQ(plan::bytes_of(r.io, plan.options, p.op).reads[index_of(O)], 4 * r.io.reads[index_of(O)]);
    EXPECT_EQ(plan::bytes_of(r.io, plan.options, p.op).writes[index_of(O)], 4 * r.io.writes[index_of(O)]);
  }
  Problem added = square(Operation::forward, 64, 8);
  added.accumulate = true;
  EXPECT_EQ(of_bf16(added, 4096).width[index_of(O)], 4);
  EXPECT_THROW(of_bf16(added, 4096, {{"O", 2}}), InvalidProblem);
}

/// Rows stand in the order of what they cost: bytes, whatever the words; and no row costs less than the bound in bytes.
RC_GTEST_PROP(Bytes, AreWhatIsMinimised, (bool causal)) {
  const auto size = [](int most) { return *rc::gen::inRange<index_t>(1, most); };
  Problem p = problem(size(3000), size(3000), size(130), size(130));
  p.op = *rc::gen::element(Operation::forward, Operation::backward, Operation::gradient_x, Operation::scores);
  p.causal = causal;
  if (p.op == Operation::backward) p.forward_given = *rc::gen::arbitrary<bool>();
  try {
    const Plan plan = make_plan(p, of_bf16(p, index_t{1} << *rc::gen::inRange(8, 18)));
    const Words before = plan.forward ? *plan.forward->row().bytes : Words(0);
    RC_ASSERT(plan::bytes_of(plan).total() == before + *plan.row().bytes);
    for (const Row& r : plan.rows) {
      RC_ASSERT(r.cost == *r.bytes * plan::kCostUnit);
      if (plan.may_choose(r)) RC_ASSERT(*plan.row().bytes <= *r.bytes);
      if (r.fits) RC_ASSERT(before + *r.bytes >= plan::least_bytes(plan));
    }
  } catch (const CapacityError&) {  // nothing fits
  }
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
