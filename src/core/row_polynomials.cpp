#include "redblue/core/row_polynomials.hpp"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace redblue {

namespace {

using Grid = std::shared_ptr<const std::vector<Polynomial>>;

/// Fits take some milliseconds each: a grid is made once.
Grid grid_of(index_t degree, double range, Fit fit) {
  static std::mutex mutex;
  static std::map<std::tuple<index_t, double, Fit>, Grid> known;
  const std::lock_guard lock(mutex);
  Grid& grid = known[{degree, range, fit}];
  if (grid != nullptr) return grid;
  std::vector<Polynomial> list;
  list.reserve(RowPolynomials::kSteps);
  for (index_t k = 1; k <= RowPolynomials::kSteps; ++k)
    list.push_back(near_exp(fit, degree, range * static_cast<double>(k) / RowPolynomials::kSteps));
  return grid = std::make_shared<const std::vector<Polynomial>>(std::move(list));
}

}  // namespace

RowPolynomials::RowPolynomials(index_t degree, double range, const RowOptions& how)
    : RowOptions(how), grid_(grid_of(degree, range, how.fit)) {
  if (exact_rows && grid_->back().error >= 1) (void)approximate_exp(degree, range, fit);  // throws
}

std::shared_ptr<const RowPolynomials> polynomials_of_rows(index_t degree, double range, const RowOptions& how) {
  return std::make_shared<const RowPolynomials>(degree, range, how);
}

}  // namespace redblue
