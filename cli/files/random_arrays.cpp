#include "files/random_arrays.hpp"

#include <random>

#include "redblue/machines/ram/storage.hpp"

namespace redblue::cli {

Tensor RandomArrays::zeros(const std::array<index_t, 4>& shape, DType dtype) {
  const Words bytes = Words(shape[0]) * shape[1] * shape[2] * shape[3] * static_cast<index_t>(size_of(dtype));
  list_.emplace_back(static_cast<std::size_t>(ceil_div(bytes.to_index(), index_t{sizeof(Line)})));
  return Tensor(list_.back().data(), dtype, shape);
}

Tensor RandomArrays::normal(const std::array<index_t, 4>& shape, DType dtype) {
  const Tensor t = zeros(shape, dtype);
  std::mt19937_64 generator(list_.size());
  std::normal_distribution<float> distribution;
  std::vector<float> row(static_cast<std::size_t>(shape[3]));
  machine::Storage to;
  to.data = static_cast<std::byte*>(t.data);
  to.dtype = dtype;
  to.writable = true;
  to.row_stride = shape[3];
  for (index_t r = 0; r < shape[0] * shape[1] * shape[2]; ++r) {
    for (float& x : row) x = distribution(generator);
    machine::scatter<float>(to, {SlowArray::Q, 0, r, 0, {1, shape[3]}}, row.data(), shape[3], 1);
  }
  return t;
}

}  // namespace redblue::cli
