#pragma once
#include <random>

#include "redblue/runtime/run.hpp"
#include "redblue/verify/oracle/dense.hpp"
#include "support/generators.hpp"

/// Matrices of the dense reference, as tensors.
namespace redblue::test {

/// Standard normal numbers.
inline oracle::Matrices<float> random_matrices(std::vector<std::pair<SlowArray, Shape>> list) {
  std::mt19937_64 random(3);
  oracle::Matrices<float> in;
  for (const auto& [a, shape] : list) {
    in[a] = oracle::Matrix<float>(shape);
    const std::vector<double> words = normal(shape.words(), random);
    std::copy(words.begin(), words.end(), in[a].words.begin());
  }
  return in;
}
/// Each as the tensor of one head.
inline Tensors tensors_of(oracle::Matrices<float>& list) {
  Tensors tensors;
  for (auto& [a, m] : list)
    tensors[a] = {m.words.data(), DType::f32, {1, 1, m.shape.rows, m.shape.cols}, {0, 0, m.shape.cols, 1}};
  return tensors;
}

}  // namespace redblue::test
