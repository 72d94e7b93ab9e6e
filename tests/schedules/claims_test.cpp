#include "redblue/verify/claims.hpp"

#include <gtest/gtest.h>

#include "registered.hpp"
#include "support/cases.hpp"

/// Every claim of redblue/verify/claims.hpp, of every schedule there is: a new one needs no line here.
namespace redblue::test {

class Schedules : public testing::TestWithParam<std::tuple<Registered, std::size_t>> {};

TEST_P(Schedules, Keep) {
  const auto& [schedule, claim] = GetParam();
  // A slip can be tried at every load and store of a case: few cases are many runs.
  const bool many_runs = claim < claims::all().size() && claims::all()[claim].name == "CanSkipOrRepeatNothing";
  // Few cases are others for each claim: together they have more masks, patterns and modifiers.
  const unsigned seed = few_cases() ? 1 + static_cast<unsigned>(claim) : 1;
  EXPECT_NO_THROW(claims::check(*schedule, claim, many_runs ? 10 : cases(300), seed));
}

std::string name_of_test(const testing::TestParamInfo<Schedules::ParamType>& info) {
  const auto& [schedule, claim] = info.param;
  return test_name_of(schedule) + '_' +
         (claim < claims::all().size() ? claims::all()[claim].name : "ChoosesNoDearerTiling");
}
INSTANTIATE_TEST_SUITE_P(All, Schedules,
                         testing::Combine(testing::ValuesIn(all_schedules()),
                                          testing::Range(std::size_t{0}, claims::all().size() + 1)),
                         name_of_test);

/// Of three heads that share a key one sees it, in a block of one query; the block of two queries holds no key.
TEST(SchedulesOfGroups, HoldNoMoreThanTheirFootprintWhereAHeadSeesNoKey) {
  const Registered schedule = plan::Registry::built_in().find(redblue::Operation::forward, "column_split");
  for (const claims::Claim& claim : claims::all())
    if (claim.name != "CanSkipOrRepeatNothing") {
      EXPECT_NO_THROW(claims::check(*schedule, claim, 239, 9, 100)) << claim.name;
    }
}

/// Where no query sees a key, the sinks of two heads and their direction are held beside lse and tlse of a row, each in
/// a row of 11 bytes or more and one beyond it.
TEST(SchedulesOfSinksThatMove, HoldTheRowsOfTheirStatisticsWhole) {
  Sizes x{4, 3, 2, 2, Mask{.hi = -5, .group = 2}, false};
  x.modifiers.sinks = x.modifiers.sinks_move = true;
  x.fast.width.fill(8);
  x.fast.row_multiple = 11;
  x.fast.row_extra = 1;
  const Registered schedule = plan::Registry::built_in().find(redblue::Operation::tangent, "query_outer");
  for (const claims::Claim& claim : claims::all())
    if (claim.name == "FootprintIsExactInBytes") {
      EXPECT_NO_THROW(claim.check(*schedule, x, {{"Br", 1}, {"bc", 1}}));
    }
  EXPECT_EQ(schedule->footprint(x, {{"Br", 1}, {"bc", 1}}), 2 * (22 + 1) + 2 * (11 + 1));
}

}  // namespace redblue::test
