#pragma once
#include <algorithm>
#include <variant>

#include "redblue/masks/visible.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/maths/method.hpp"
#include "redblue/problem/sizes.hpp"

/// The blocks of keys of a coreset, and the points that they leave.
namespace redblue::schedule {

/// A block takes `before` points of the coreset and `keys` keys, and leaves `points`.
struct CoresetBlock {
  index_t before = 0, keys = 0, points = 0;
  index_t all() const { return before + keys; }
  /// Columns of weights that fit where the values of its points will be: all idle, or none where points have values
  /// that are needed.
  index_t beside(const Sizes& x) const { return before > 0 ? 0 : std::min(all(), x.d_v + 1); }
};

/// The blocks of a problem, and the points of the coreset, which lie one below the other or, carried, are the same
/// ones.
class CoresetBlocks {
 public:
  explicit CoresetBlocks(const Sizes& x)
      : method_(std::get<Coreset>(method_of(x))), keys_{x.n_k, method_.block, true}, n_k_(x.n_k) {}
  index_t count() const { return keys_.count(); }
  Range keys(index_t j) const { return keys_(j); }
  CoresetBlock operator()(index_t j) const {
    CoresetBlock b{method_.carried ? points_of(keys(j).begin) : 0, keys(j).size()};
    b.points = points_of(b.all());
    return b;
  }
  /// Where the points of block j are in the coreset.
  index_t row(index_t j) const { return method_.carried || j == 0 ? 0 : points_of(keys(0).size()) + (j - 1) * full(); }
  /// Points of the whole coreset.
  index_t points() const { return row(count() - 1) + (*this)(count() - 1).points; }
  /// f(block, how many are like it)
  template <class F>
  void for_alike(const F& f) const {
    index_t j = 0;
    for (; j < count() && (j == 0 || (method_.carried && (*this)(j).before < method_.rank)); ++j) f((*this)(j), 1);
    if (j < count()) f((*this)(j), count() - j);
  }

 private:
  index_t points_of(index_t keys) const { return std::min(method_.rank, keys); }
  index_t full() const { return points_of(std::min(method_.block, n_k_)); }

  Coreset method_;
  Blocks keys_;
  index_t n_k_;
};

}  // namespace redblue::schedule
