#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "redblue/methods/maths/polynomial.hpp"

/// Polynomials near e^z for rows of attention whose scores go differently far. By Cauchy-Schwarz no score of query i
/// exceeds its radius B_i = |scale| |q_i| max_j |k_j|, and the state of the keys serves any coefficients: so each row
/// takes a polynomial for its own radius, at no word more. Or for its spread, the root of the mean square of its
/// scores, which the state has, too (docs/algorithms/polynomial-rows.md).
namespace redblue {

/// What a problem may ask for beside.
struct RowOptions {
  bool centred = false;    ///< keys less their mean: the weights stay as they are, the radii may shrink
  index_t exact_keys = 0;  ///< the number of keys that keep the weight e^z: those farthest from the mean, or from 0
  /// Rows whose radius exceeds the range are exact attention. False: they take the polynomial of the whole range, of
  /// which nothing is proved there.
  bool exact_rows = true;
  Fit fit = Fit::minimax;  ///< of every polynomial; gaussian: rows are told apart by spread, and keys are centred
  /// The most keys of a cluster. Pairs that meet in one round of SMYRF have the weight e^z. 0: no clusters.
  index_t cluster = 0;
  index_t seed = 0;  ///< of the clusters, from 0 to 2^53
};

/// A grid of polynomials: number k is for radii, or spreads, from step() k to step() (k + 1).
class RowPolynomials : public RowOptions, public Approximation {
 public:
  /// Throws what approximate_exp(degree, range, fit) throws, where something is proved.
  RowPolynomials(index_t degree, double range, const RowOptions& how);

  index_t degree() const { return grid_->front().degree(); }
  double range() const { return grid_->back().range; }
  index_t steps() const { return static_cast<index_t>(grid_->size()); }
  double step() const { return range() / static_cast<double>(steps()); }
  bool by_spread() const { return fit == Fit::gaussian; }
  /// Why nothing is proved of the error; nothing where something is.
  std::optional<std::string_view> unproved() const override;
  bool proves() const { return !unproved(); }
  /// Why there is no certificate; nothing where there is one.
  std::optional<std::string_view> uncertified() const;
  /// Polynomial k is near e^(z - u) for this u.
  double log_unit(index_t k) const;
  /// The polynomial of the whole range.
  const Polynomial& last() const { return grid_->back(); }
  const Polynomial& operator[](index_t k) const { return (*grid_)[static_cast<std::size_t>(k)]; }

  std::optional<double> weight_error() const override { return last().error; }
  double output_error() const override { return last().output_error(); }
  double score_range() const override { return range(); }
  std::string text(index_t n_k) const override;
  std::string title(index_t n_k) const override;
  bool same(const Approximation& other) const override { return this == &other; }
  void require_sound(const Problem& problem) const override;
  MethodWorkspace workspace(const Sizes&) const override {
    return cluster > 0 ? MethodWorkspace{2, 1} : MethodWorkspace();  // one round of SMYRF
  }
  std::vector<bound::Bound> bounds(Operation op, const bound::AttentionProblem& x) const override;
  double terms(index_t d) const override { return last().terms(d); }
  bool has_edges() const override { return true; }
  bool amplifies_roundings() const override { return !proves(); }
  std::shared_ptr<const oracle::ApproximateRows<float>> rows(const oracle::Instance<float>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<double>> rows(const oracle::Instance<double>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<long double>> rows(
      const oracle::Instance<long double>& x) const override;

 private:
  std::shared_ptr<const std::vector<Polynomial>> grid_;
};

std::shared_ptr<const RowPolynomials> polynomials_of_rows(index_t degree, double range, const RowOptions& how = {});

}  // namespace redblue
