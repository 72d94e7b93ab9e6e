#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "api/arrays.hpp"
#include "api/plans.hpp"
#include "redblue/verify.hpp"
#include "support/generators.hpp"

/// NaN in an input reaches what PyTorch would let it reach, in every schedule: a query its row, a key every row that
/// sees it, a value its column of every row that sees it; nothing else.
namespace redblue::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Runs every schedule on data that `spoil` has put NaN into; `o(i, t)` and `lse(i)` say where NaN must come out.
/// Where `may(i, t)` holds it does not matter.
template <class Spoil>
void expect_nan(
    const Spoil& spoil, const std::function<bool(index_t, index_t)>& o, const std::function<bool(index_t)>& lse,
    bool causal = false, const std::function<bool(index_t, index_t)>& may = [](index_t, index_t) { return false; }) {
  Problem p = problem(7, 9, 4, 5);
  p.lse_required = true;
  p.causal = causal;
  Data data = generate(p);
  spoil(data);
  for (const DType compute : {DType::f32, DType::f64})
    for (const plan::Plan& plan : plans_of_every_schedule(p)) {
      SCOPED_TRACE(text_of(plan));
      Arrays a(p, DType::f32, DType::f32);
      a.q.set(data.q), a.k.set(data.k), a.v.set(data.v);
      RunOptions options;
      options.compute = compute;
      EXPECT_EQ(run(plan, a.inputs(), a.outputs(), options).io, plan.row().io);
      const auto out = a.o.get(), sums = a.lse.get();
      for (index_t i = 0; i < p.n_q; ++i) {
        EXPECT_EQ(std::isnan(sums[static_cast<std::size_t>(i)]), lse(i)) << "lse of row " << i;
        for (index_t t = 0; t < p.d_v; ++t)
          EXPECT_TRUE(may(i, t) || std::isnan(out[static_cast<std::size_t>(i * p.d_v + t)]) == o(i, t))
              << "row " << i << ", column " << t;
      }
      const Verification v = verify(p, a.inputs(), a.outputs(), compute);
      EXPECT_FALSE(v.ok());
      ASSERT_EQ(v.nan_inputs.size(), 1U);
      EXPECT_EQ(v.nan_inputs[0].second, 1);
    }
}

TEST(NaN, OfAQueryReachesItsRow) {
  for (const bool causal : {false, true})
    expect_nan([](Data& x) { x.q[3 * 4 + 2] = kNaN; }, [](index_t i, index_t) { return i == 3; },
               [](index_t i) { return i == 3; }, causal);
}

TEST(NaN, OfAKeyReachesEveryRow) {
  for (const std::size_t key : {0U, 4U, 8U})
    expect_nan([&](Data& x) { x.k[key * 4] = kNaN; }, [](index_t, index_t) { return true; },
               [](index_t) { return true; });
}

TEST(NaN, OfAKeyReachesTheRowsThatSeeIt) {
  const auto sees = [](index_t i) { return i + 2 >= 5; };  // bottom-right: row i sees keys up to i + 2
  expect_nan([](Data& x) { x.k[5 * 4 + 1] = kNaN; }, [&](index_t i, index_t) { return sees(i); }, sees, true);
}

TEST(NaN, OfAValueReachesItsColumn) {
  for (const std::size_t key : {0U, 4U, 8U})
    expect_nan([&](Data& x) { x.v[key * 5 + 1] = kNaN; }, [](index_t, index_t t) { return t == 1; },
               [](index_t) { return false; });
}

/// Rows that do not see the key give it the weight 0, and 0 x NaN is NaN: there, as in PyTorch, the column may be NaN
/// too.
TEST(NaN, OfAValueStaysInItsColumnUnderAMask) {
  const auto may = [](index_t i, index_t t) { return t == 1 && i + 2 < 5; };
  expect_nan([](Data& x) { x.v[5 * 5 + 1] = kNaN; }, [](index_t i, index_t t) { return t == 1 && i + 2 >= 5; },
             [](index_t) { return false; }, true, may);
}

}  // namespace
}  // namespace redblue::test
