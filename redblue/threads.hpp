#pragma once
/// Thread pools.
#include "redblue/threads/pool.hpp"
