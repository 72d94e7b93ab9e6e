#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(BackwardX, Schedules, plan::BackwardXSchedules);

}  // namespace redblue::test
