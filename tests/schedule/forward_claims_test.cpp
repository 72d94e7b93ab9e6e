#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Forward, Schedules, plan::ForwardSchedules);

}  // namespace redblue::test
