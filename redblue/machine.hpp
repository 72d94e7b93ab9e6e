#pragma once
/// What a machine of your own needs: the words a schedule is written in, kernels, tiles, blocks.
#include "redblue/kernels/implementations.hpp"
#include "redblue/kernels/registry.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/machine.hpp"
