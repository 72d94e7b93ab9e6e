#pragma once
#include <memory>
#include <utility>

#include "redblue/language/cost.hpp"
#include "redblue/language/residence.hpp"
#include "redblue/language/score.hpp"
#include "redblue/masks/modifiers.hpp"
#include "redblue/masks/visible.hpp"
#include "redblue/problem/approximation.hpp"

namespace redblue {

struct Sequences;

/// The sizes of one attention problem: one head, or one group of query heads that share K and V.
struct Sizes {
  index_t n_q = 0;  ///< rows of Q: queries of all heads that share this K, V
  index_t n_k = 0;
  index_t d = 0;
  index_t d_v = 0;
  Mask mask{};
  bool lse_required = false;     ///< naive writes lse only then; every other schedule writes it anyway
  Score score = Score::softmax;  ///< what turns scores into weights
  index_t d_in = 0;              ///< columns of A1, A2, A3 where Q, K and V are their projections
  index_t row0 = 0;              ///< the place of its first query in the arrays: above 0 for a part of a problem
  index_t key0 = 0;              ///< the same of its first key

  Modifiers modifiers{};

  Residence fast{};  ///< what a word takes in fast memory: footprints are in its unit, by default words

  /// Queries and keys that belong together, where the problem is several: problem/sequences.hpp. Their masks are with
  /// them, and `mask` has the group only. Null: it is one problem.
  std::shared_ptr<const Sequences> sequences{};
  /// What mask.pattern points at.
  std::shared_ptr<const Pattern> pattern{};
  /// The pattern of a part whose loops go over an interval mask, `mask`, that leaves out none of its pairs. Other pairs
  /// of the mask are formed, and hidden.
  std::shared_ptr<const Pattern> hiding{};
  /// What mask.intervals points at.
  std::shared_ptr<const Pattern> intervals{};
  index_t pair0 = 0;                 ///< of a part of a problem: the pairs of patterns before it, of the same batch
  AnyApproximation approximation{};  ///< in place of exact attention; null: none
  bool lse_gradient = false;         ///< gradients: lse has one, dlse
  bool accumulate = false;           ///< outputs are given and added to: docs/algorithms/accumulating.md

  /// What a tile of rows x cols of this kind of words takes in fast memory, and a word that streams past.
  Words tile(SlowArray a, Words rows, Words cols) const { return fast.tile(a, rows, cols); }
  Words word(SlowArray a) const { return fast.word(a); }
  /// What a statistic of each of these rows takes in fast memory.
  Words statistic(SlowArray a, Words rows) const { return fast.tile(a, rows, statistics()); }

  Pairs pairs() const { return {mask, n_q, n_k}; }
  /// The place of a tile of scores for what hides pairs in it.
  Place place(index_t row, index_t col) const {
    Place p = formed(row, col);
    if (hiding != nullptr) p.mask.pattern = hiding.get();
    return p;
  }
  /// The place of a tile of scores for what goes over all pairs that the loops form, also those that `hiding` does not
  /// have. Kernels know intervals as a pattern.
  Place formed(index_t row, index_t col) const {
    Place p{mask, row, col};
    if (mask.intervals != nullptr) p.mask.pattern = std::exchange(p.mask.intervals, nullptr);
    return p;
  }
  /// The pairs of a query and a key that it sees; n_q n_k without a mask.
  Words nnz() const { return mask.full() ? Words(n_q) * n_k : pairs().count(); }
  const MethodKind& method_kind() const { return kind_of(approximation); }
  /// Has it an approximation with numbers of its own for each row?
  bool by_rows() const { return approximation != nullptr && approximation->by_rows(); }
  /// Words of a row's statistic (lse, D): 1 for the exact softmax, else 0.
  index_t statistics() const { return score == Score::softmax && approximation == nullptr ? 1 : 0; }
  Words row_statistics() const { return Words(n_q) * statistics(); }

  /// Sequences and patterns are the same where they are the same object.
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

}  // namespace redblue
