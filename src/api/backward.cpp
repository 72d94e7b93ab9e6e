#include "engine.hpp"

namespace redblue {

const Engine kBackward = make_engine<plan::BackwardSchedules>();

}  // namespace redblue
