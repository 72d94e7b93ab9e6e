#pragma once
#include "redblue/ranks/steps.hpp"

namespace redblue::ranks {

/// Channels of a transport: one for each cargo, one for the notes before and after a run.
constexpr int channel_of(Cargo c) { return static_cast<int>(c); }
inline constexpr int kAgreement = 2, kChannels = 3;

}  // namespace redblue::ranks
