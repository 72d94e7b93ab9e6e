#pragma once
#include <limits>
#include <vector>

#include "redblue/problem/sizes.hpp"
#include "redblue/verify/oracle/matrix.hpp"

/// What the oracle asks of an approximation (Approximation::rows).
namespace redblue::oracle {

/// What a query makes of the keys that it sees.
template <class T>
struct Row {
  std::vector<T> p;           ///< weights of the visible keys, before dropout
  std::vector<index_t> keys;  ///< which these are
  T lse = -std::numeric_limits<T>::infinity();
  /// Derivatives of the weights. The softmax leaves this empty: its derivatives are p (dP - D). A polynomial p has
  /// p'(score) over the sum of p(score).
  std::vector<T> slope{};
};

/// The instance as Dense has it.
template <class T>
struct Instance {
  Sizes sizes;
  T scale;
  Matrix<T> Q, K;
  index_t block;        ///< terms of a block of a sum
  Range queries, keys;  ///< from the first query that sees a key to the last; the keys that a query sees, likewise
  bool causal;          ///< does a mask hide later keys?
  /// Random numbers of draws, what counts as known, and what tells rows apart, are taken as this times what they are.
  T nudge;
};

/// The rows of an approximation of one instance.
template <class T>
class ApproximateRows {
 public:
  virtual ~ApproximateRows() = default;
  /// Does row i have the weights of exact attention?
  virtual bool is_exact(index_t) const { return false; }
  /// The row of query i, which is not exact, on these keys.
  virtual Row<T> row(index_t i, std::vector<index_t> keys) const = 0;
  /// Where weights are sums over features (Approximation::terms): by which factor their terms exceed those of row i.
  virtual T magnitude(index_t, const std::vector<index_t>&) const { return 0; }
  /// Changes a row of O as the method does in the end; V has the values.
  virtual void finish(std::vector<T>&, const Matrix<T>&) const {}
};

}  // namespace redblue::oracle
