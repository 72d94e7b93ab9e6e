#pragma once
#include "redblue/verify/oracle/dense.hpp"

namespace redblue::oracle {

/// Given outputs, and those of other keys alone, together: gradients and outputs without statistics are added; O and
/// lse are those of the softmax over all keys. Where one side has seen no key, all is as the other has it.
template <class T, class Given>
Matrices<T> accumulated(Operation op, const Matrices<Given>& given, const Matrices<T>& part) {
  Matrices<T> all;
  for (const auto& [array, m] : given) {
    all[array] = part.at(array);
    for (std::size_t i = 0; i < m.words.size(); ++i) all[array].words[i] += static_cast<T>(m.words[i]);
  }
  if (!is_forward(op) || !given.contains(SlowArray::lse) || given.at(SlowArray::lse).words.empty()) return all;
  for (index_t i = 0; i < given.at(SlowArray::O).shape.rows; ++i) {
    const T a = static_cast<T>(given.at(SlowArray::lse)(i, 0)), b = part.at(SlowArray::lse)(i, 0), top = std::max(a, b);
    const bool nothing = std::isinf(top) && top < 0;
    const T wa = nothing ? T(0) : std::exp(a - top), wb = nothing ? T(0) : std::exp(b - top), sum = wa + wb;
    all[SlowArray::lse](i, 0) = nothing ? top : top + std::log(sum);
    for (index_t t = 0; t < given.at(SlowArray::O).shape.cols; ++t) {
      const T x = static_cast<T>(given.at(SlowArray::O)(i, t)), y = part.at(SlowArray::O)(i, t);
      all[SlowArray::O](i, t) = nothing ? T(0) : (wa * x + wb * y) / sum;
    }
  }
  return all;
}

}  // namespace redblue::oracle
