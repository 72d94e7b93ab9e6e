#include <gtest/gtest.h>

#include "methods/mutants/polynomial_rows.hpp"
#include "redblue/methods/kernels/list.hpp"
#include "redblue/methods/schedules/polynomial.hpp"
#include "redblue/methods/schedules/polynomial_backward.hpp"
#include "redblue/methods/schedules/polynomial_tiled.hpp"
#include "redblue/schedules/describe.hpp"
#include "redblue/verify/claims.hpp"
#include "schedules/mutants/slips.hpp"

namespace redblue::test {

using namespace mutants;

namespace {

Sizes polynomial_sizes(Mask mask = {}) {
  Sizes x{7, 9, 5, 3, mask};
  x.approximation = approximate_exp(2, 1);
  return x;
}

/// Does a claim on a few random cases find something?
template <class Mutant>
bool is_found(int cases = 1000) {
  try {
    claims::check(describe<Mutant>(), cases);
  } catch (const claims::Broken&) {
    return true;
  }
  return false;
}
template <class S, RowSlip... slips>
void expect_found() {
  const auto expect = [](bool found, RowSlip slip) { EXPECT_TRUE(found) << "slip number " << static_cast<int>(slip); };
  (expect(is_found<WithSlip<S, slips>>(), slips), ...);
}

}  // namespace

/// What these do wrong shows in what a run with numbers decides, or in its numbers.
TEST(PolynomialMutants, OfPolynomialRowsAreCaught) {
  using enum RowSlip;
  using S = schedule::PolynomialRowsForward;
  EXPECT_FALSE((is_found<WithSlip<S, none>>(60)));
  expect_found<S, keeps_rows_at_the_cap, forgets_the_longest, keeps_the_first, takes_the_sum_for_the_mean,
               takes_places_for_ids, halves_the_steps>();
  EXPECT_TRUE(is_found<KeepsTheState>());
}

/// In what this one does by itself, and in what a mean does wrong. (Wrong places would be no places of a sort's runs.)
TEST(PolynomialMutants, OfPolynomialClustersAreCaught) {
  using enum RowSlip;
  using S = schedule::PolynomialClustersForward;
  EXPECT_FALSE((is_found<WithSlip<S, none>>(60)));
  expect_found<S, adds_no_exact_weights, forgets_the_unit, takes_the_sum_for_the_mean>();
}

/// In what this one does by itself, where exact keys pass; the rest is what the first of these tests holds.
TEST(PolynomialMutants, OfPolynomialPairsAreCaught) {
  using enum RowSlip;
  expect_found<schedule::PolynomialPairsForward, keeps_the_first, takes_the_sum_for_the_mean, takes_places_for_ids>();
}

/// Slips that a schedule with one group of monomials has, too.
std::vector<Mutant> slips_in_passes(const Trace& right) {
  const auto begin_with_partial_outputs = [](const Operation& op, index_t) {
    return Operations{{.kind = Operation::Kind::run, .args = {op.args[1], op.args[0]}, .kernel = kernel::Add{}}, op};
  };
  std::vector<Operations> passes = phases_of(right);
  while (!has(passes.back(), stores(O))) passes.pop_back();
  passes.pop_back();
  return {{"reads coordinates that the group does not have", twice(right, all(touches(K)))},
          {"forgets the row sums", without(right, all(computes<kernel::Zero>(den)))},
          {"adds to the first group partial outputs that nobody wrote",
           replaced(right, first(stores(O)), begin_with_partial_outputs)},
          {"keeps the stack", with_room(right, computes<kernel::ApplyMonomials>(), 1)},
          {"misses the last group", joined(right, passes)},
          {"passes the values twice", twice(right, all(touches(V)))}};
}

TEST(PolynomialMutants, OfTiledAreCaught) {
  using S = schedule::PolynomialTiledForward;
  const S::Tiling t{2, 1, 16};
  const Trace right = recorded<S>(polynomial_sizes(), t);
  std::vector<Mutant> slips = slips_in_passes(right);
  slips.push_back({"drops partial outputs", without(right, all(computes<kernel::Add>() && touches(O)))});
  slips.push_back({"forgets den for the other columns", without(right, last(stores(den)))});
  expect_caught<S>(polynomial_sizes(), t, slips);
}

TEST(PolynomialMutants, OfPolynomialAreCaught) {
  using S = schedule::PolynomialForward;
  expect_caught<S>(polynomial_sizes(), {}, slips_in_passes(recorded<S>(polynomial_sizes(), {})));
}

TEST(PolynomialMutants, OfPolynomialBackwardAreCaught) {
  using S = schedule::PolynomialBackward;
  const Sizes x = polynomial_sizes({.hi = 3});
  const Trace right = recorded<S>(x, {});
  const index_t state = schedule::all_monomials(x).rows * (x.d_v + 1);
  const auto both_states = [&](const Trace& phase) { return with_room_throughout(phase, state); };
  expect_caught<S>(
      x, {},
      {{"forms the state of the gradient first", in_phases(right, stores(dNum), both_states)},
       {"takes dO for dNum", changed(right, all(loads(dNum)), [](Operation& op) { op.args[1].block.array = dO; })},
       {"forgets dDen", without(right, all(stores(dDen)))},
       {"reads the keys a third time", twice(right, last(touches(K)))}});
}

/// It spills what this one keeps.
TEST(PolynomialMutants, OfTwoStatesAreCaught) {
  const Sizes x = polynomial_sizes();
  expect_caught<schedule::PolynomialTwoStateBackward>(x, {},
                                                      {{"spills", recorded<schedule::PolynomialBackward>(x, {})}});
}

}  // namespace redblue::test
