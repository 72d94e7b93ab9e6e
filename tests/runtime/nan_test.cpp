#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "redblue/verify/verify.hpp"
#include "runtime/arrays.hpp"
#include "runtime/plans.hpp"
#include "support/cases.hpp"
#include "support/generators.hpp"

/// NaN in an input reaches what PyTorch would let it reach, in every schedule: a query its row, a key every row that
/// sees it, a value its column of every row that sees it. A row that does not see the value gives it the weight 0, and
/// 0 x NaN is NaN: there, as in PyTorch, the column may be NaN too.
namespace redblue::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A few blocks of each schedule, and several panels of each instruction set.
std::vector<Problem> shapes(bool causal) {
  std::vector<Problem> list{problem(7, 9, 4, 5), problem(101, 103, 19, 21)};
  for (Problem& p : list) p.lse_required = true, p.causal = causal;
  return list;
}
/// Keys and queries in the middle and at both ends.
std::vector<index_t> some_of(index_t n) { return first_of<index_t>({n / 2, 0, n - 1}); }
std::size_t word(index_t row, index_t cols, index_t col) { return static_cast<std::size_t>(row * cols + col); }

/// Runs every schedule on data that `spoil` has put one NaN into; `o(i, t)` and `lse(i)` say where NaN must come out.
/// Where `may(i, t)` holds it does not matter.
void expect_nan(
    const Problem& p, const std::function<void(Data&)>& spoil, const std::function<bool(index_t, index_t)>& o,
    const std::function<bool(index_t)>& lse,
    const std::function<bool(index_t, index_t)>& may = [](index_t, index_t) { return false; }) {
  Data data = generate(p);
  spoil(data);
  for (const plan::Plan& plan : plans_in_turn(p))
    for (const DType compute : first_of<DType>({DType::f32, DType::f64})) {
      SCOPED_TRACE(text_of(plan) + " in " + std::string(name_of(compute)));
      Arrays a(p, DType::f32, DType::f32);
      a.q.set(data.q), a.k.set(data.k), a.v.set(data.v);
      RunOptions options;
      options.compute = compute;
      EXPECT_EQ(run(plan, a.inputs(), a.outputs(), options).io, plan.row().io);
      const auto out = a.o.get(), sums = a.lse.get();
      for (index_t i = 0; i < p.n_q; ++i) {
        EXPECT_EQ(std::isnan(sums[static_cast<std::size_t>(i)]), lse(i)) << "lse of row " << i;
        for (index_t t = 0; t < p.d_v; ++t)
          EXPECT_TRUE(may(i, t) || std::isnan(out[word(i, p.d_v, t)]) == o(i, t)) << "row " << i << ", column " << t;
      }
      const Verification v = verify(p, a.inputs(), a.outputs(), compute);
      EXPECT_FALSE(v.ok());
      ASSERT_EQ(v.nan_inputs.size(), 1U);
      EXPECT_EQ(v.nan_inputs[0].second, 1);
    }
}

TEST(NaN, OfAQueryReachesItsRow) {
  for (const bool causal : {false, true})
    for (const Problem& p : shapes(causal))
      for (const index_t row : some_of(p.n_q))
        expect_nan(
            p, [&](Data& x) { x.q[word(row, p.d, 2)] = kNaN; }, [&](index_t i, index_t) { return i == row; },
            [&](index_t i) { return i == row; });
}

TEST(NaN, OfAKeyReachesTheRowsThatSeeIt) {
  for (const bool causal : {false, true})
    for (const Problem& p : shapes(causal))
      for (const index_t key : some_of(p.n_k)) {
        const auto sees = [&](index_t i) { return !causal || i + p.n_k - p.n_q >= key; };
        expect_nan(
            p, [&](Data& x) { x.k[word(key, p.d, 1)] = kNaN; }, [&](index_t i, index_t) { return sees(i); }, sees);
      }
}

TEST(NaN, OfAValueReachesItsColumn) {
  for (const bool causal : {false, true})
    for (const Problem& p : shapes(causal))
      for (const index_t key : some_of(p.n_k)) {
        const auto sees = [&](index_t i) { return !causal || i + p.n_k - p.n_q >= key; };
        expect_nan(
            p, [&](Data& x) { x.v[word(key, p.d_v, 1)] = kNaN; },
            [&](index_t i, index_t t) { return t == 1 && sees(i); }, [](index_t) { return false; },
            [&](index_t i, index_t t) { return t == 1 && !sees(i); });
      }
}

}  // namespace
}  // namespace redblue::test
