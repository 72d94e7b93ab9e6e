#pragma once
#include <memory>
#include <vector>

#include "redblue/core/polynomial.hpp"

/// Polynomials near e^z for rows of attention whose scores go differently far. By Cauchy-Schwarz no score of query i
/// exceeds its radius B_i = |scale| |q_i| max_j |k_j|, and the state of the keys serves any coefficients: so each row
/// takes a polynomial for its own radius, at no word more (docs/algorithms/polynomial-rows.md).
namespace redblue {

/// What a problem may ask for beside.
struct RowOptions {
  bool centred = false;    ///< keys less their mean: the weights stay as they are, the radii may shrink
  index_t exact_keys = 0;  ///< the number of keys that keep the weight e^z: those farthest from the mean, or from 0
  /// Rows whose radius exceeds the range are exact attention. False: they take the polynomial of the whole range, of
  /// which nothing is proved there.
  bool exact_rows = true;
  Fit fit = Fit::minimax;  ///< of every polynomial
};

/// A grid of polynomials: number k is for radii up to step() (k + 1).
class RowPolynomials : public RowOptions {
 public:
  static constexpr index_t kSteps = 64;

  /// Throws what approximate_exp(degree, range, fit) throws; without exact rows there is no bound on the error.
  RowPolynomials(index_t degree, double range, const RowOptions& how);

  index_t degree() const { return grid_->front().degree(); }
  double range() const { return grid_->back().range; }
  double step() const { return range() / kSteps; }
  /// The last of the grid: Problem::approximation.
  std::shared_ptr<const Polynomial> whole_range() const { return {grid_, &grid_->back()}; }
  const Polynomial& operator[](index_t k) const { return (*grid_)[static_cast<std::size_t>(k)]; }

 private:
  std::shared_ptr<const std::vector<Polynomial>> grid_;
};

std::shared_ptr<const RowPolynomials> polynomials_of_rows(index_t degree, double range, const RowOptions& how = {});

}  // namespace redblue
