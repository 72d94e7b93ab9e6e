#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/language/types.hpp"
#include "redblue/problem/operation.hpp"

/// What stands in place of exact attention, as the exact parts of the library see it: one opaque value that Problem and
/// Sizes carry. redblue's own approximations are in methods/.
namespace redblue {

struct Problem;
struct Sizes;
namespace bound {
struct Bound;
struct AttentionProblem;
}  // namespace bound
namespace oracle {
template <class T>
struct Instance;
template <class T>
class ApproximateRows;
}  // namespace oracle

/// Which method a schedule computes and a problem asks for. Kinds are the same where their names are.
struct MethodKind {
  static const MethodKind exact;

  /// Draws a whole number from `least` to `most`.
  using Draw = std::function<index_t(index_t least, index_t most)>;
  using Solves = std::function<bool(const Sizes&)>;

  std::string_view name;
  std::string_view called{};  ///< what its schedules are for, in messages
  /// Makes of sizes a problem that asks for this method, its numbers at random, so that a schedule can be tried.
  /// `by_rows`: with numbers of their own for rows. `solves`: can the schedule solve a problem of these sizes?
  void (*ask)(Sizes& sizes, const Draw& draw, bool by_rows, const Solves& solves) = nullptr;

  friend constexpr bool operator==(const MethodKind& a, const MethodKind& b) { return a.name == b.name; }
  friend constexpr std::string_view name_of(const MethodKind& k) { return k.name; }
};
inline constexpr MethodKind MethodKind::exact{"exact", "exact attention"};

/// Words of workspace that a method needs beside that of exact attention.
struct MethodWorkspace {
  index_t hash_words = 0;  ///< words by which a row is sorted
  index_t rounds = 0;      ///< sorts of rows
  index_t few_rows = 0;    ///< keys that stand for all
};

/// An approximation. It is forward only where require_sound() says so, and has no lse.
class Approximation {
 public:
  virtual ~Approximation() = default;

  const MethodKind& kind() const { return *kind_; }
  /// Has each row numbers of its own?
  bool by_rows() const { return by_rows_; }

  /// A text that approximation_from() reads as this approximation of attention on n_k keys.
  virtual std::string text(index_t n_k) const = 0;
  /// "Performer, 256 features, seed 7"
  virtual std::string title(index_t n_k) const = 0;
  virtual bool same(const Approximation& other) const = 0;  ///< of the same class
  /// This approximation for n_k keys, with a number in place of each one that the caller left out; null where it
  /// has them all.
  virtual std::shared_ptr<const Approximation> fitted(index_t) const { return nullptr; }
  /// Throws InvalidProblem where it does not go with the problem, and says what would.
  virtual void require_sound(const Problem& problem) const = 0;

  virtual MethodWorkspace workspace(const Sizes&) const { return {}; }
  virtual std::vector<bound::Bound> bounds(Operation op, const bound::AttentionProblem& x) const = 0;

  /// What is proved: weights that are off by this share of themselves, entries of O that are off by this share of the
  /// largest |V|, for scores up to score_range(). A range of 0: nothing is proved of it.
  virtual std::optional<double> weight_error() const { return std::nullopt; }
  virtual double output_error() const { return 0; }
  virtual double score_range() const { return 0; }
  /// Why nothing is proved where rows have numbers of their own.
  virtual std::optional<std::string_view> unproved() const { return std::nullopt; }

  /// A weight may be a sum over features of q times features of k: how many there are; else 0.
  virtual double terms(index_t) const { return 0; }
  /// May a rounding put a row, or a draw, on this or that side of an edge?
  virtual bool has_edges() const { return false; }
  /// Are its errors far larger than the roundings that they come from?
  virtual bool amplifies_roundings() const { return false; }
  /// The weights of one instance, for verify/oracle/dense.hpp.
  virtual std::shared_ptr<const oracle::ApproximateRows<float>> rows(const oracle::Instance<float>&) const = 0;
  virtual std::shared_ptr<const oracle::ApproximateRows<double>> rows(const oracle::Instance<double>&) const = 0;
  virtual std::shared_ptr<const oracle::ApproximateRows<long double>> rows(
      const oracle::Instance<long double>&) const = 0;

 protected:
  explicit Approximation(const MethodKind& kind, bool by_rows = false) : kind_(&kind), by_rows_(by_rows) {}
  Approximation(const Approximation&) = default;
  Approximation& operator=(const Approximation&) = default;

 private:
  const MethodKind* kind_;
  bool by_rows_;
};

/// Null: exact attention.
using AnyApproximation = std::shared_ptr<const Approximation>;

inline const MethodKind& kind_of(const AnyApproximation& a) { return a == nullptr ? MethodKind::exact : a->kind(); }
/// Sizes compare approximations by what they are.
inline bool operator==(const AnyApproximation& a, const AnyApproximation& b) {
  return a.get() == b.get() ||
         (a != nullptr && b != nullptr && a->kind() == b->kind() && a->by_rows() == b->by_rows() && a->same(*b));
}

/// Why approximations are refused in a build with -DREDBLUE_METHODS=OFF.
inline constexpr std::string_view kNoApproximations = "this build has no approximations (-DREDBLUE_METHODS=OFF)";

/// The approximation of a text, as Problem::approximate takes it. Throws InvalidProblem, and Unsupported in a build
/// without approximations (-DREDBLUE_METHODS=OFF).
AnyApproximation approximation_from(std::string_view text);

}  // namespace redblue
