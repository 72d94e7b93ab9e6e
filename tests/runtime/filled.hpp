#pragma once
#include <map>
#include <random>
#include <vector>

#include "runtime/arrays.hpp"
#include "support/generators.hpp"

namespace redblue::test {

/// Tensors of a problem with small random numbers in the inputs.
struct Filled {
  Problem p;
  std::map<SlowArray, Array> arrays;

  Filled(const Problem& p, DType dtype, Strides strides) : p(p) {
    std::mt19937_64 random(1);
    const auto add = [&](SlowArray a) -> Array& {
      const DType type = a != SlowArray::lse ? dtype : dtype == DType::f64 ? DType::f64 : DType::f32;
      return arrays.emplace(a, Array(type, shape_of(p, a), strides)).first->second;
    };
    for (const SlowArray a : inputs_of(p)) {
      const auto [B, H, rows, cols] = shape_of(p, a);
      std::vector<double> x = normal(B * H * rows * cols, random);
      for (double& e : x) e *= 0.25;
      add(a).set(x);
    }
    for (const SlowArray a : outputs_of(p))
      if (a != SlowArray::lse || p.lse_required) add(a);
  }
  Tensors tensors() {
    Tensors t;
    for (auto& [a, array] : arrays) t[a] = array.tensor();
    return t;
  }
  std::vector<std::vector<unsigned char>> outputs() {
    std::vector<std::vector<unsigned char>> bytes;
    for (const SlowArray a : outputs_of(p))
      if (arrays.contains(a)) bytes.push_back(arrays.at(a).memory());
    return bytes;
  }
};

}  // namespace redblue::test
