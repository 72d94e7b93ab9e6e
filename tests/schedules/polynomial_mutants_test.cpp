#include <gtest/gtest.h>

#include "redblue/schedules/describe.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/mutants/polynomial.hpp"
#include "schedules/mutants/polynomial_rows.hpp"
#include "verdict.hpp"

namespace redblue::test {

using schedule::BackwardOperands;
using schedule::ForwardOperands;

namespace {

Sizes polynomial_sizes(Mask mask = {}) {
  Sizes x{7, 9, 5, 3, mask};
  x.polynomial = approximate_exp(2, 1);
  return x;
}

/// Does a claim on a few random cases find something?
template <class Mutant>
bool is_found() {
  try {
    claims::check(describe<Mutant>(), 60);
  } catch (const claims::Broken&) {
    return true;
  }
  return false;
}
template <mutants::RowSlip slip>
bool is_caught() {
  return is_found<mutants::SlippingRows<slip>>();
}

}  // namespace

/// What these do wrong shows in what a run with numbers decides, or in its numbers.
TEST(PolynomialMutants, OfPolynomialRowsAreCaught) {
  using enum mutants::RowSlip;
  EXPECT_FALSE(is_caught<none>());
  EXPECT_TRUE(is_caught<keeps_rows_at_the_cap>());
  EXPECT_TRUE(is_caught<forgets_the_longest>());
  EXPECT_TRUE(is_caught<keeps_the_first>());
  EXPECT_TRUE(is_caught<takes_the_sum_for_the_mean>());
  EXPECT_TRUE(is_caught<takes_places_for_ids>());
  EXPECT_TRUE(is_caught<keeps_the_state>());
  EXPECT_TRUE(is_caught<halves_the_steps>());
}

/// In what this one does by itself, and in what a mean does wrong. (Wrong places would be no places of a sort's runs.)
TEST(PolynomialMutants, OfPolynomialClustersAreCaught) {
  using enum mutants::RowSlip;
  EXPECT_FALSE(is_found<mutants::SlippingClusters<none>>());
  EXPECT_TRUE(is_found<mutants::SlippingClusters<adds_no_exact_weights>>());
  EXPECT_TRUE(is_found<mutants::SlippingClusters<forgets_the_unit>>());
  EXPECT_TRUE(is_found<mutants::SlippingClusters<takes_the_sum_for_the_mean>>());
}

/// In what this one does by itself; the rest is what the test above holds.
TEST(PolynomialMutants, OfPolynomialPairsAreCaught) {
  using enum mutants::RowSlip;
  EXPECT_TRUE(is_found<mutants::SlippingPairs<keeps_the_first>>());
  EXPECT_TRUE(is_found<mutants::SlippingPairs<takes_the_sum_for_the_mean>>());
  EXPECT_TRUE(is_found<mutants::SlippingPairs<takes_places_for_ids>>());
}

TEST(PolynomialMutants, OfTiledAreCaught) {
  using Tiled = schedule::PolynomialTiledForward;
  const Tiled::Tiling t{2, 1, 16};
  for (int slip = 0; slip <= static_cast<int>(mutants::PolynomialSlip::passes_the_values_twice); ++slip) {
    const std::string found = test::verdict<Tiled>(polynomial_sizes(), t, [&](auto& m, const ForwardOperands& x) {
      mutants::PolynomialTiledRows::run(m, x, t, static_cast<mutants::PolynomialSlip>(slip));
    });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

/// The same passes with one group of all monomials and all columns are the schedule whose state is resident.
TEST(PolynomialMutants, OfPolynomialAreCaught) {
  using S = schedule::PolynomialForward;
  const S::Tiling t{};
  using enum mutants::PolynomialSlip;
  for (const mutants::PolynomialSlip slip : {none, reads_all_coordinates, forgets_the_row_sums, adds_to_the_first_group,
                                             keeps_the_stack, misses_the_last_group, passes_the_values_twice}) {
    const std::string found = test::verdict<S>(polynomial_sizes(), t, [&](auto& m, const ForwardOperands& x) {
      mutants::PolynomialTiledRows::run(m, x, {5, 3, 1000}, slip);
    });
    EXPECT_EQ(found.empty(), slip == none) << "slip number " << static_cast<int>(slip) << ": " << found;
  }
}

TEST(PolynomialMutants, OfPolynomialBackwardAreCaught) {
  using S = schedule::PolynomialBackward;
  for (int slip = 0; slip <= static_cast<int>(mutants::PolynomialBackwardSlip::reads_the_keys_a_third_time); ++slip) {
    const std::string found =
        test::verdict<S>(polynomial_sizes({.hi = 3}), S::Tiling{}, [&](auto& m, const BackwardOperands& x) {
          mutants::PolynomialGradient::run(m, x, static_cast<mutants::PolynomialBackwardSlip>(slip));
        });
    EXPECT_EQ(found.empty(), slip == 0) << "slip number " << slip << ": " << found;
  }
}

TEST(PolynomialMutants, OfTwoStatesAreCaught) {
  using S = schedule::PolynomialTwoStateBackward;
  const Sizes x = polynomial_sizes();
  EXPECT_EQ(test::verdict<S>(x, {}, [&](auto& m, const BackwardOperands& o) { S::run(m, o, {}); }), "");
  EXPECT_NE(
      test::verdict<S>(x, {}, [&](auto& m, const BackwardOperands& o) { schedule::PolynomialBackward::run(m, o, {}); }),
      "");  // spills what this one keeps
}

}  // namespace redblue::test
