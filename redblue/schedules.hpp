#pragma once
/// Texts of redblue to read, and to try a machine of your own on.
#include "redblue/schedules/backward/fused_key_outer.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/score_tiles.hpp"
