#include "redblue/methods/kernels/random_rows.hpp"

#include <algorithm>

#include "redblue/methods/maths/random_features.hpp"

namespace redblue::kernel {

namespace {

template <class T>
void copy_random_rows(index_t features, index_t d, index_t seed, index_t first, index_t rows, T* to) {
  std::copy_n(random_features(features, d, seed)->row<T>(first), rows * d, to);
}

}  // namespace

void random_rows(index_t features, index_t d, index_t seed, index_t first, index_t rows, float* to) {
  copy_random_rows(features, d, seed, first, rows, to);
}
void random_rows(index_t features, index_t d, index_t seed, index_t first, index_t rows, double* to) {
  copy_random_rows(features, d, seed, first, rows, to);
}

}  // namespace redblue::kernel
