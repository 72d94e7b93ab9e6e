#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "redblue/methods/maths/approximations.hpp"
#include "redblue/runtime/run.hpp"

/// What is proved of polynomial attention on the tensors at hand: from their norms alone, before anything runs.
/// docs/certificates.md has the proofs.
namespace redblue {

/// One query head of one batch. All numbers are rounded up.
struct HeadCertificate {
  index_t batch = 0, head = 0;
  double largest_q = 0, largest_k = 0;  ///< Euclidean norms of the longest query and the longest key
  double largest_v = 0;                 ///< the largest entry of V
  double spread = 0;                    ///< the largest difference between two entries of one column of V
  /// No score scale q.k is beyond this (Cauchy-Schwarz), also as computed in the arithmetic type, in any order of sums.
  double range = 0;
  double weight_error = 0;  ///< every weight p(z) is within this share of e^z
  double output_error = 0;  ///< every entry of O is within this of exact attention, both in exact arithmetic
  /// What the roundings of polynomial attention add at most, in any order of sums, that of O to its type among them:
  /// the O of a run is within output_error + rounding of exact attention. Infinity where nothing is proved: where they
  /// may add up to a large share of a sum, or where numbers may overflow or vanish.
  double rounding = 0;
  // Where each row has its polynomial, and otherwise 0:
  /// No key that enters the state is longer (less the mean, if keys are centred), nor may a run find a longer one.
  double longest = 0;
  /// No score of a row that may read the state, with a key in it, is beyond this, nor is the row's radius as a run
  /// finds it. 0 where all rows are exact.
  double radius = 0;
  index_t exact_rows = 0;  ///< no more rows than these are exact

  /// output_error in units of the largest |V|
  double relative() const;
};

/// The lengths of rows: what tells which polynomial each query takes.
struct RowLengths {
  struct Keys {
    std::vector<double> as_they_are, from_mean;  ///< of those that a row sees, the longest first
  };
  std::vector<std::vector<double>> queries;  ///< of each query head of each batch, as Certificate::heads
  std::vector<Keys> keys;                    ///< of each key-value head of each batch
};

struct Certificate {
  Polynomial polynomial;  ///< without coefficients where attention is exact: then the heads have norms and ranges only
  std::shared_ptr<const RowPolynomials> rows;  ///< polynomials of each row; null: that polynomial is of all rows
  /// Only for polynomials of each row: a weight of polynomial k is within this share of e^z, also for a row whose
  /// radius roundings put on its side. The list ends with the last polynomial that a row may take.
  std::vector<double> row_errors;
  DType compute = DType::f32, stored = DType::f32;  ///< of arithmetic, of O
  double scale = 1;
  index_t keys = 0, d = 0;
  bool masked = false;  ///< some row sees some of the keys only
  std::vector<HeadCertificate> heads;

  double range() const;         ///< the largest of all heads
  double weight_error() const;  ///< the largest of all heads
  double output_error() const;  ///< the largest of all heads, each in units of its own largest |V|
  double rounding() const;      ///< the same of roundings
  index_t exact_rows() const;   ///< of all heads
  /// Fills in what follows for this polynomial. Where a weight may be off by all of itself the errors are infinite.
  void prove(const Polynomial& p);
  /// Fills in what follows for polynomials of each row. The errors are infinite also where rows beyond the range are
  /// not exact.
  void prove(std::shared_ptr<const RowPolynomials> p, const RowLengths& lengths);
};

/// The norms and ranges of q, k and v. O has the type of q unless `stored` says another. Throws InvalidProblem where q,
/// k or v has a NaN or an infinity, or the product of the norms is no double; Unsupported unless the operation is
/// forward, and `compute` f32 or f64. Calls now_and_then between rows, which may throw to end it.
Certificate norms_of(const Problem& problem, const Inputs& inputs, DType compute = DType::f32,
                     std::optional<DType> stored = {}, const std::function<void()>& now_and_then = {});
/// For Certificate::prove. Throws what norms_of does.
RowLengths lengths_of(const Problem& problem, const Inputs& inputs, const std::function<void()>& now_and_then = {});
/// The certificate of a problem with an approximation, also by rows. Throws what norms_of does; InvalidProblem without
/// one.
///
/// ```cpp
/// std::vector<float> x(64 * 4, 0.1F);
/// const redblue::Tensor q(x, {1, 1, 64, 4}), k = q, v = q;
/// redblue::Problem problem{.n_q = 64, .n_k = 64, .d = 4, .d_v = 4};
/// if (auto least = redblue::least_polynomial(redblue::norms_of(problem, {q, k, v}), 1e-3)) {
///   problem.approximation = std::make_shared<const redblue::Polynomial>(*least);
///   redblue::Certificate c = redblue::certify(problem, {q, k, v});  // c.output_error() is at most 1e-3
/// }
/// ```
Certificate certify(const Problem& problem, const Inputs& inputs, DType compute = DType::f32,
                    std::optional<DType> stored = {}, const std::function<void()>& now_and_then = {});

/// The minimax polynomial of least degree that proves an output error of at most `tolerance` for these norms; nothing
/// where no degree that schedules take (`most`) does.
std::optional<Polynomial> least_polynomial(const Certificate& norms, double tolerance, index_t most = 12);
/// The least polynomial without tensors, for scores up to `range` and for any values.
std::optional<Polynomial> least_polynomial(double range, double tolerance, index_t most = 12);

}  // namespace redblue
