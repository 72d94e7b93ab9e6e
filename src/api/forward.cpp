#include "engine.hpp"

namespace redblue {

const Engine kForward = make_engine<plan::ForwardSchedules>();

}  // namespace redblue
