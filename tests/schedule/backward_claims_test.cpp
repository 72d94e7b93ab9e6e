#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Backward, Schedules, plan::BackwardSchedules);

}  // namespace redblue::test
