#include "engine.hpp"

namespace redblue {

const Engine kBackwardX = make_engine<plan::BackwardXSchedules>();

}  // namespace redblue
