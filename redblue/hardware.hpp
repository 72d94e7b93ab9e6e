#pragma once
/// What this machine can do: instruction sets, caches, bandwidth.
#include "redblue/hardware/hardware.hpp"
#include "redblue/hardware/isa.hpp"
