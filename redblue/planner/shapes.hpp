#pragma once
#include <array>
#include <string>
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/problem.hpp"

/// What arrays a problem has, and of which sizes.
namespace redblue {

/// The name of an array's tensor in files and messages: q, lse, dq, a1.
std::string tensor_name(SlowArray array);
/// The arrays that an operation reads, without those that are not given (Problem::forward_given, Problem::sources) or
/// that have no words.
std::vector<SlowArray> inputs_of(const Problem& problem);
/// The arrays it writes.
std::vector<SlowArray> outputs_of(const Problem& problem);
/// Is it an output that is given, and read as well (Problem::accumulate)?
bool adds_to(const Problem& problem, SlowArray array);
/// [batch, heads, rows, columns] of such an array.
std::array<index_t, 4> shape_of(const Problem& problem, SlowArray array);

/// The arrays of a problem, which must outlive this, and their shapes: a run asks for all of them.
class Shapes {
 public:
  explicit Shapes(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const Sizes& sizes() const { return sizes_; }
  std::vector<SlowArray> inputs() const;
  std::vector<SlowArray> outputs() const;

  /// The shape of the array in one instance; no words where the operation has no such array.
  Shape matrix(SlowArray array) const;
  /// As shape_of: [batch, heads, rows, columns].
  std::array<index_t, 4> operator[](SlowArray array) const;

 private:
  const Problem& problem_;
  Sizes sizes_;
  std::vector<SlowMatrix> matrices_;
};

}  // namespace redblue
