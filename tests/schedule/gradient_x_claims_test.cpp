#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(GradientX, Schedules, plan::GradientXSchedules);

}  // namespace redblue::test
