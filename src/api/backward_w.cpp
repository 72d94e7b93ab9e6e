#include "engine.hpp"

namespace redblue {

const Engine kBackwardW = make_engine<plan::BackwardWSchedules>();

}  // namespace redblue
