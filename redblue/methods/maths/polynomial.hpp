#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "redblue/language/words.hpp"
#include "redblue/methods/maths/kinds.hpp"

/// Polynomials near e^z, for attention whose weights are p(z) in place of e^z. p(scale q.k) is a sum over monomials of
/// q times monomials of k, so that keys and values become a state whose size does not depend on their number.
namespace redblue {

/// Weights that are off by at most this share of themselves, below 1: the share of the sum of all weights, which is 1,
/// that can move from some keys to others, error / (1 + sqrt(1 - error^2)), rounded up. A mean of values that lie in an
/// interval moves by at most this share of its length. docs/certificates.md has the proof.
double moved_share(double error);

/// How the coefficients are found.
enum class Fit : std::uint8_t {
  taylor,     ///< 1/l!
  chebyshev,  ///< the Chebyshev series of e^z on |z| <= range, cut off
  minimax,    ///< the least max |p(z) e^-z - 1|, by Remez exchange
  /// The least mean square of p(z) - e^z where z is normal with mean 0 and standard deviation `range`, over
  /// e^(range^2/2): SUM_l range^l/l! He_l(z/range) with Hermite polynomials He_l. It bounds nothing, and z has no
  /// range.
  gaussian,
};
inline constexpr std::array<std::string_view, 4> kFitNames = {"taylor", "chebyshev", "minimax", "gaussian"};
constexpr std::string_view name_of(Fit fit) { return kFitNames[static_cast<std::size_t>(fit)]; }

/// p(z) = SUM_l c[l] z^l, for |z| <= range.
struct Polynomial : Approximation {
  Polynomial() : Approximation(methods::kPolynomial) {}

  static constexpr index_t kMostDegree = 32;

  std::vector<double> c;  ///< c[l] is the factor of z^l
  double range = 1;
  /// At least max |p(z) e^-z - 1| over |z| <= range, in exact arithmetic: proved_error of these. Every weight is off by
  /// at most this share of itself. Infinite for a gaussian fit, of which nothing is proved.
  double error = 0;
  Fit fit = Fit::minimax;  ///< only says where c comes from

  index_t degree() const { return static_cast<index_t>(c.size()) - 1; }
  template <class T>
  T operator()(T z) const {
    T p = 0;
    for (std::size_t l = c.size(); l > 0; --l) p = p * z + static_cast<T>(c[l - 1]);
    return p;
  }
  /// p'(z)
  template <class T>
  T slope(T z) const {
    T p = 0;
    for (std::size_t l = c.size() - 1; l > 0; --l) p = p * z + static_cast<T>(l) * static_cast<T>(c[l]);
    return p;
  }
  /// How far an entry of O may be from exact attention, in units of the largest |V|. It holds where no |z| exceeds the
  /// range, and the error is below 1.
  double output_error() const override { return 2 * moved_share(error); }
  std::optional<double> weight_error() const override { return error; }
  double score_range() const override { return range; }

  std::string text(index_t n_k) const override;
  std::string title(index_t n_k) const override;
  bool same(const Approximation& other) const override { return this == &other; }
  void require_sound(const Problem& problem) const override;
  std::vector<bound::Bound> bounds(Operation op, const bound::AttentionProblem& x) const override;
  double terms(index_t d) const override;
  std::shared_ptr<const oracle::ApproximateRows<float>> rows(const oracle::Instance<float>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<double>> rows(const oracle::Instance<double>& x) const override;
  std::shared_ptr<const oracle::ApproximateRows<long double>> rows(
      const oracle::Instance<long double>& x) const override;
};

/// A bound on max |p(z) e^-z - 1| over |z| <= range for the polynomial with these coefficients. It is no maximum over
/// samples: the range is cut into short intervals, and on each the derivative is bounded; the roundings of the
/// computation are bounded, too (exp of long double is taken to err by at most 16 units in the last place).
double proved_error(std::span<const double> c, double range);

/// Throws InvalidProblem unless 0 < range <= 64.
void require_range(double range);
/// Throws InvalidProblem unless 1 <= degree <= kMostDegree and 0 < range <= 64.
Polynomial near_exp(Fit fit, index_t degree, double range);
/// The one of least degree whose proved error is at most this; nothing where degree kMostDegree will not do.
std::optional<Polynomial> least_degree(Fit fit, double range, double error);
/// near_exp, to be shared: Problem::approximation. Throws InvalidProblem where its error is not below 1: some weight
/// could then be negative.
std::shared_ptr<const Polynomial> approximate_exp(index_t degree, double range, Fit fit = Fit::minimax);

/// C(n, k). Throws InvalidProblem where it leaves 127 bits.
Words binomial(Words n, index_t k);
/// Monomials of at most this degree in d variables: C(d + degree, degree).
inline Words monomials(index_t d, index_t degree) { return binomial(Words(d) + degree, degree); }

}  // namespace redblue
