#include "engine.hpp"

namespace redblue {

const Engine kForwardX = make_engine<plan::ForwardXSchedules>();

}  // namespace redblue
