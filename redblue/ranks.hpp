#pragma once
/// Attention over ranks: who has which rows, what each rank does, how many words cross the network, and threads as
/// ranks.
#include "redblue/ranks/count.hpp"
#include "redblue/ranks/in_process.hpp"
