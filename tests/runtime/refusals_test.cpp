#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "support/generators.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem grouped() {
  Problem p = problem(5, 6, 3, 4);
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.lse_required = true;
  return p;
}

/// The message of the error that the run must end in.
std::string refusal(const plan::Plan& plan, const Inputs& in, const Outputs& out, const RunOptions& options = {}) {
  return refusal_of([&] { run(plan, in, out, options); });
}

TEST(Run, RefusesArithmeticInNarrowTypes) {
  Arrays a(grouped(), DType::f16, DType::f16);
  for (const DType t : {DType::f16, DType::bf16}) {
    RunOptions options;
    options.compute = t;
    EXPECT_THAT(refusal(some_plan(grouped()), a.inputs(), a.outputs(), options),
                HasSubstr(std::string("compute type ") + std::string(name_of(t))));
  }
}

/// The last word of a view that runs backwards is its first.
TEST(Run, RefusesAnOutputThatRunsBackwardsIntoAnInput) {
  const Problem p = problem(4, 4, 4, 4);
  std::vector<float> pool(1000);
  const auto at = [&](std::size_t word) { return Tensor(std::span(pool).subspan(word), {1, 1, 4, 4}); };
  Tensor backwards = at(59);
  backwards.strides = {0, 0, -4, 1};
  EXPECT_THAT(refusal(some_plan(p), {at(0), at(16), at(32)}, {backwards, Tensor()}), HasSubstr("output o overlaps v"));
}

TEST(Run, RefusesAWorkspaceThatOverlapsATensor) {
  const Problem p = problem(4, 4, 4, 4);
  const plan::Plan plan = some_plan(p);
  std::vector<float> words(2000);
  const auto at = [&](std::size_t word) { return Tensor(std::span(words).subspan(word), {1, 1, 4, 4}); };
  const Inputs in{at(0), at(16), at(32)};
  const Outputs out{at(1000), Tensor(std::span(words).subspan(1016), {1, 1, 4, 1})};
  const auto workspace = std::as_writable_bytes(std::span(words));
  RunOptions options;
  options.memory = workspace.subspan(48 * 4, (1000 - 48) * 4);
  EXPECT_EQ(refusal(plan, in, out, options), "accepted");
  const struct {
    std::size_t first, words;
    const char* tensor;
  } cases[] = {{15, 1, "q"}, {16, 900, "k"}, {47, 953, "v"}, {48, 953, "o"}, {1017, 900, "lse"}};
  for (const auto& c : cases) {
    options.memory = workspace.subspan(c.first * 4, c.words * 4);
    EXPECT_THAT(refusal(plan, in, out, options), HasSubstr(std::string("the workspace overlaps ") + c.tensor));
  }
}

TEST(Run, RefusesAScaleBeyondTheArithmetic) {
  Problem p = problem(4, 4, 4, 4);
  p.scale = -1e300;
  Arrays a(p, DType::f32, DType::f32);
  EXPECT_THAT(refusal(some_plan(p), a.inputs(), a.outputs()), HasSubstr("scale = -1e+300 is beyond f32"));
  RunOptions options;
  options.compute = DType::f64;
  EXPECT_EQ(refusal(some_plan(p), a.inputs(), a.outputs(), options), "accepted");
}

TEST(Run, RefusesAScaleWithWhichGradientsLoseDigits) {
  Problem p = problem(4, 4, 4, 4);
  const auto said = [&](DType compute, double scale) -> std::string {
    p.scale = scale;
    try {
      require_arithmetic(compute, p, {});
    } catch (const InvalidProblem& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(said(DType::f32, 1e-40), "accepted");  // all scores are 0
  p.op = Operation::backward;
  for (const double scale : {0.0, -1e-31, 1e-31}) EXPECT_EQ(said(DType::f32, scale), "accepted") << scale;
  for (const double scale : {-9e-32, 1e-40}) {
    EXPECT_THAT(said(DType::f32, scale), HasSubstr("lose digits in f32; give 9.86"));
    EXPECT_EQ(said(DType::f64, scale), "accepted") << scale;
  }
  EXPECT_THAT(said(DType::f64, 1e-300), HasSubstr("lose digits in f64"));
}

TEST(Run, RefusesASoftcapBelowTheNormalNumbers) {
  Problem p = problem(4, 4, 4, 4);
  p.softcap = 1e-38;
  Arrays a(p, DType::f32, DType::f32);
  EXPECT_THAT(refusal(some_plan(p), a.inputs(), a.outputs()),
              HasSubstr("softcap = 1e-38 is below the smallest normal number of f32"));
  RunOptions options;
  options.compute = DType::f64;
  EXPECT_EQ(refusal(some_plan(p), a.inputs(), a.outputs(), options), "accepted");
  p.softcap = 1e-320;
  EXPECT_THAT(refusal(some_plan(p), a.inputs(), a.outputs(), options), HasSubstr("smallest normal number of f64"));
}

TEST(Run, RefusesLseThatThePlanDoesNotWrite) {
  Problem p = problem(4, 4, 4, 4);  // lse_required is false: naive leaves it out
  plan::Options o;
  o.M = 200;
  o.schedule = "naive";
  Arrays a(p, DType::f32, DType::f32);
  EXPECT_THAT(refusal(plan::make_plan(p, o), a.inputs(), a.outputs()), HasSubstr("lse_required"));
  p.lse_required = true;
  EXPECT_EQ(refusal(plan::make_plan(p, o), a.inputs(), a.outputs()), "accepted");
}

TEST(Run, RefusesWorkspaceThatThisMachineDoesNotHave) {
  const Problem p = problem(1 << 20, 1 << 20, 1, 1);  // 2^40 scores
  plan::Options o;
  o.M = 200;
  o.schedule = "small_cache";
  const plan::Plan plan = plan::make_plan(p, o);
  float word = 0;
  std::vector<float> out(1 << 20);
  const Tensor in(&word, DType::f32, {1, 1, 1 << 20, 1}, {0, 0, 0, 1});
  EXPECT_THAT(refusal(plan, {in, in, in}, {Tensor(out.data(), DType::f32, {1, 1, 1 << 20, 1}), Tensor()}),
              AllOf(HasSubstr("bytes beside inputs and outputs"), HasSubstr("for workspace S"),
                    HasSubstr("a schedule without workspace")));
}

TEST(Tensor, StaysWithinItsRange) {
  std::vector<float> words(24);
  const Tensor all(words, {1, 2, 3, 4});
  EXPECT_EQ(all.data, words.data());
  EXPECT_EQ(all.dtype, DType::f32);
  EXPECT_EQ(all.strides, (std::array<index_t, 4>{24, 12, 4, 1}));
  EXPECT_EQ(Tensor(std::span(words).subspan(4), {1, 1, 5, 4}).data, words.data() + 4);
  EXPECT_EQ(Tensor(words, {1, 2, 3, 4}, {24, 4, 8, 1}).strides[2], 8);
  const std::array<double, 4> constant{};
  EXPECT_EQ(Tensor(constant, {1, 1, 2, 2}).dtype, DType::f64);
  EXPECT_THAT(refusal_of<InvalidProblem>([&] { Tensor(words, {1, 2, 3, 5}); }),
              HasSubstr("from word 0 to word 29 of 24"));
  EXPECT_THAT(refusal_of<InvalidProblem>([&] { Tensor(words, {1, 2, 3, 4}, {24, 12, 5, 1}); }),
              HasSubstr("to word 25 of 24"));
  EXPECT_THAT(refusal_of<InvalidProblem>([&] { Tensor(words, {1, 2, 3, 4}, {24, 12, -4, 1}); }),
              HasSubstr("from word -8"));
  EXPECT_THAT(refusal_of<InvalidProblem>([&] { Tensor(words, {index_t{1} << 62, 2, 3, 4}); }),
              HasSubstr("give more words"));
  EXPECT_THAT(refusal_of<InvalidProblem>([&] { Tensor(words, {1, index_t{1} << 62, 2, 4}); }),
              HasSubstr("give more words"));
}

TEST(Tensor, OfConstWordsIsNoOutput) {
  const Problem p = problem(2, 2, 2, 2);
  const std::vector<float> constant(4, 1.0f);
  std::vector<float> o(4);
  const Tensor in(constant, {1, 1, 2, 2});
  const plan::Plan plan = some_plan(p);
  EXPECT_EQ(run(plan, {in, in, in}, {{o, {1, 1, 2, 2}}, {}}).io, plan.io());
  EXPECT_EQ(o, constant) << "the mean of equal rows";
  const std::vector<float> frozen(4);
  EXPECT_THAT(refusal(plan, {in, in, in}, {{frozen, {1, 1, 2, 2}}, {}}), HasSubstr("o is a view of const words"));
}

}  // namespace
}  // namespace redblue::test
