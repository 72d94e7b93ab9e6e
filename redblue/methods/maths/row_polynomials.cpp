#include "redblue/methods/maths/row_polynomials.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "redblue/language/error.hpp"

namespace redblue {

namespace {

using Grid = std::shared_ptr<const std::vector<Polynomial>>;

/// A coarse grid costs little where the fit is for a bound; where it is for a spread, it would cost what the fit gains.
constexpr index_t steps_of(Fit fit) { return fit == Fit::gaussian ? 4096 : 64; }
double middle_of(double step, index_t k) { return step * (static_cast<double>(k) + 0.5); }

/// Fits take some milliseconds each: a grid is made once.
Grid grid_of(index_t degree, double range, Fit fit) {
  static std::mutex mutex;
  static std::map<std::tuple<index_t, double, Fit>, Grid> known;
  require_range(range);
  const std::lock_guard lock(mutex);
  Grid& grid = known[{degree, range, fit}];
  if (grid != nullptr) return grid;
  std::vector<Polynomial> list;
  const index_t steps = steps_of(fit);
  list.reserve(static_cast<std::size_t>(steps));
  if (!(range / static_cast<double>(steps) * 0.5 > 0))
    throw InvalidProblem(fmt::format("range = {}: it is too small for a grid of {} polynomials", range, steps));
  for (index_t k = 1; k <= steps; ++k) {
    const double up_to = range * static_cast<double>(k) / static_cast<double>(steps);
    if (fit == Fit::gaussian)
      list.push_back(near_exp(fit, degree, middle_of(range / static_cast<double>(steps), k - 1)));
    else
      list.push_back(near_exp(fit, degree, up_to));
    list.back().range = up_to;
  }
  return grid = std::make_shared<const std::vector<Polynomial>>(std::move(list));
}

}  // namespace

RowPolynomials::RowPolynomials(index_t degree, double range, const RowOptions& how)
    : RowOptions(how), Approximation(methods::kPolynomial, true), grid_(grid_of(degree, range, how.fit)) {
  if (proves() && grid_->back().error >= 1) (void)approximate_exp(degree, range, fit);  // throws
  if (by_spread() && degree < 2)
    throw InvalidProblem(
        "gaussian: degree = 1: the spread of scores is read off the squares that a state of degree 2 or more has");
  if (by_spread() && !centred) throw InvalidProblem("gaussian: it is for scores around 0: take keys less their mean");
  if (cluster < 0) throw InvalidProblem(fmt::format("cluster = {}: give a number of keys from 1", cluster));
  constexpr index_t kLargestSeed = index_t{1} << 53;
  if (seed < 0 || seed > kLargestSeed)
    throw InvalidProblem(fmt::format("seed = {}: give a number from 0 to {}", seed, kLargestSeed));
  if (cluster > 0 && exact_keys > 0)
    throw InvalidProblem(fmt::format("exact-keys = {} and cluster = {}: give one of both", exact_keys, cluster));
}

std::optional<std::string_view> RowPolynomials::unproved() const {
  if (by_spread()) return "the fit is gaussian";
  if (!exact_rows) return "rows beyond the range are not exact";
  return std::nullopt;
}

std::optional<std::string_view> RowPolynomials::uncertified() const {
  if (by_spread()) return "nothing is proved of a gaussian fit";
  if (cluster > 0) return "roundings are not bounded where exact weights take the place of polynomials (cluster)";
  return std::nullopt;
}

double RowPolynomials::log_unit(index_t k) const {
  const double spread = middle_of(step(), k);
  return by_spread() ? spread * spread / 2 : 0;
}

std::shared_ptr<const RowPolynomials> polynomials_of_rows(index_t degree, double range, const RowOptions& how) {
  return std::make_shared<const RowPolynomials>(degree, range, how);
}

}  // namespace redblue
