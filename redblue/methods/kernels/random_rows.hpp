#pragma once
#include "redblue/language/types.hpp"

namespace redblue::kernel {

/// Writes `rows` rows of Omega (methods/maths/random_features.hpp) from `first` on, d words each. Out of line: what a
/// shared pointer takes must not be compiled for one instruction set.
void random_rows(index_t features, index_t d, index_t seed, index_t first, index_t rows, float* to);
void random_rows(index_t features, index_t d, index_t seed, index_t first, index_t rows, double* to);

}  // namespace redblue::kernel
