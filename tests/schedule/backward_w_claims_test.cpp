#include "claims.hpp"

namespace redblue::test {

INSTANTIATE_TYPED_TEST_SUITE_P(BackwardW, Schedules, plan::BackwardWSchedules);

}  // namespace redblue::test
