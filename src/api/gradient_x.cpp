#include "engine.hpp"

namespace redblue {

const Engine kGradientX = make_engine<plan::GradientXSchedules>();

}  // namespace redblue
