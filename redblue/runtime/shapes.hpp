#pragma once
#include <array>
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/runtime/run.hpp"

namespace redblue {

/// The arrays of a problem, which must outlive this, and their shapes: a run asks for all of them.
class Shapes {
 public:
  explicit Shapes(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const Sizes& sizes() const { return sizes_; }
  std::vector<SlowArray> inputs() const;
  std::vector<SlowArray> outputs() const;

  /// Of one instance; no words where the operation has no such array.
  Shape matrix(SlowArray array) const;
  /// As shape_of: [batch, heads, rows, columns].
  std::array<index_t, 4> operator[](SlowArray array) const;

 private:
  const Problem& problem_;
  Sizes sizes_;
  std::vector<SlowMatrix> matrices_;
};

}  // namespace redblue
