#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(ForwardX, Schedules, plan::ForwardXSchedules);

}  // namespace redblue::test
