#pragma once
/// Makes the kinds of patterns that Problem::patterns takes.
#include "redblue/masks/patterns.hpp"
