#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/masks/order.hpp"
#include "redblue/problem/sizes.hpp"

/// Problems that are several: packed sequences, and batches of which each has its own numbers of queries and keys.
namespace redblue {

/// Queries that see keys of their own sequence only. Queries and keys of no sequence are padding: such queries see no
/// key, such keys are seen by none.
struct Sequence {
  index_t batch = 0;
  Range rows;  ///< stacked query heads
  Range keys;
  Mask mask{};               ///< counted from its first row and key
  index_t slope_offset = 0;  ///< Modifiers::slope_offset, counted likewise
  /// Where no interval says who sees whom; counted likewise. Its first and last row see a key, its first and last key
  /// are seen.
  std::shared_ptr<const Pattern> pattern{};
  std::shared_ptr<const Pattern> hiding{};     ///< Sizes::hiding
  std::shared_ptr<const Pattern> intervals{};  ///< Sizes::intervals

  /// The pairs of its rows and keys that see each other.
  Pairs pairs() const {
    Pairs all{mask, rows.size(), keys.size()};
    all.mask.pattern = pattern.get();
    all.mask.intervals = intervals.get();
    return part_of(all, {0, all.n_q}, {0, all.n_k});
  }
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

/// The sequences of one key-value head.
struct Sequences {
  index_t batches = 1;         ///< 1: all batches are alike; else `list` has those of all
  bool by_head = false;        ///< `batches` are then those of each key-value head: all instances
  std::vector<Sequence> list;  ///< by batch; queries and keys go up, and none overlap
  /// For each batch: the order in which its queries and keys are taken; null where they stay as they are.
  std::vector<std::shared_ptr<const Order>> orders{};
  /// For each batch: the words of the index of its patterns, where those are given by blocks; else 0.
  std::vector<Words> block_index{};

  /// The batch, as the list counts them, of a key-value head of all batches.
  index_t batch_of(index_t instance, index_t kv_heads) const {
    return batches == 1 ? 0 : by_head ? instance : instance / kv_heads;
  }
  /// Is any batch taken in another order than it has?
  bool reordered() const {
    return std::ranges::any_of(orders, [](const auto& order) { return order != nullptr; });
  }
  /// The order of a key-value head of all batches; null where nothing is moved.
  const Order* order_of(index_t instance, index_t kv_heads) const {
    return orders.empty() ? nullptr : orders[static_cast<std::size_t>(batch_of(instance, kv_heads))].get();
  }
};

/// The mask of rows that see these keys of n_k, if it is one: rows are stacked query heads, `group` at each position.
std::optional<Mask> mask_of(const RunLists& rows, index_t n_k, index_t group);

/// The sequences of rows that see these keys of n_k: cut where no row sees keys on both sides of the cut, all with
/// masks if those say it all, else all with patterns. `all` has the batch, the group, and the slope offset counted from
/// row 0 and key 0.
std::vector<Sequence> sequences_of(const RunLists& rows, index_t n_k, const Sequence& all);

/// Puts the sequences of one batch side by side, so that queries and keys that no pair has do not lie between them:
/// these come last. Sequences with interval masks lose those inside, too. Returns the order in which the positions of
/// queries and the keys are then taken; null where none moves.
std::shared_ptr<const Order> close_gaps(std::vector<Sequence>& list, index_t positions, index_t n_k);

/// The parts of a problem that see nothing but themselves, as problems without sequences: those of one batch, or of
/// all. A problem that has no sequences is its own one part.
std::vector<Sizes> sequences_of(const Sizes& x, std::optional<index_t> batch = {});

/// f(Pairs of a part) for these parts, which need not be made for it.
template <class F>
void for_pairs(const Sizes& x, const F& f) {
  if (x.sequences == nullptr) return f(x.pairs());
  for (const Sequence& one : x.sequences->list)
    if (one.rows.size() > 0 && one.keys.size() > 0) f(one.pairs());
}

/// f(part) of these parts, added up.
template <class F>
auto sum_over_parts(const Sizes& x, const F& f) {
  if (x.sequences == nullptr) return f(x);
  decltype(f(x)) sum{};
  for (const Sizes& part : sequences_of(x)) sum = sum + f(part);
  return sum;
}

/// The largest f(part).
template <class F>
Words most_of_parts(const Sizes& x, const F& f) {
  Words most;
  for (const Sizes& part : sequences_of(x)) most = std::max(most, f(part));
  return most;
}

/// Pairs::visited_keys and its like, of these parts together.
template <class F>
Words sum_of_pairs(const Sizes& x, const F& f) {
  Words sum;
  for_pairs(x, [&](const Pairs& pairs) { sum += f(pairs); });
  return sum;
}
inline Words visited_keys(const Sizes& x, index_t a) {
  return sum_of_pairs(x, [&](const Pairs& pairs) { return pairs.visited_keys(a); });
}
inline Words visited_rows(const Sizes& x, index_t b) {
  return sum_of_pairs(x, [&](const Pairs& pairs) { return pairs.visited_rows(b); });
}
inline Words pairs_of_rows(const Sizes& x, index_t a) {
  return sum_of_pairs(x, [&](const Pairs& pairs) { return pairs.pairs_of_rows(a); });
}
inline Words pairs_of_keys(const Sizes& x, index_t b) {
  return sum_of_pairs(x, [&](const Pairs& pairs) { return pairs.pairs_of_keys(b); });
}

/// Says with a pattern what the sequence's mask says.
void make_pattern(Sequence& one, const PatternIndex& index = {});
/// Is there a part whose mask is no interval? Then all parts have patterns.
inline bool has_pattern(const Sizes& x) {
  return x.sequences != nullptr && !x.sequences->list.empty() && x.sequences->list.front().pattern != nullptr;
}
/// Are there parts whose loops form pairs that their patterns do not have?
inline bool hides_pairs(const Sizes& x) {
  return std::ranges::any_of(x.sequences->list, [](const Sequence& one) { return one.hiding != nullptr; });
}
/// The parts of x with patterns that say what their masks say.
std::shared_ptr<const Sequences> patterns_of(const Sizes& x);
/// The same parts with an interval mask for each that has a pattern: its own intervals where it has no others, else the
/// narrowest mask that leaves out none of its pairs.
std::shared_ptr<const Sequences> envelopes_of(const Sequences& sequences);
/// A matrix with a word for each query and key; under a pattern a column with a word for each pair, row by row, as long
/// as the batch with the most pairs needs.
SlowMatrix matrix_of_pairs(const Sizes& x, SlowArray a, index_t instance);
/// A matrix with a column for each query, as long as the query that sees the most keys needs: the words of its first
/// key and of those after it. It has no words under a pattern.
SlowMatrix band_of_pairs(const Sizes& x, SlowArray a, index_t instance);

/// A matrix of workspace, whose rows begin `row_stride` words apart.
struct Workspace : SlowMatrix {
  index_t row_stride = 0;
  Words words() const { return shape.rows == 0 ? Words(0) : Words(shape.rows - 1) * row_stride + shape.cols; }
};
/// How it lies in slow memory. Hidden pairs are never touched, and both ends of the keys that a row sees go up: rows of
/// a matrix over pairs begin as far apart as the most keys that one of them sees, and the hidden end of a row is where
/// the next one lies.
Workspace laid_out(const Sizes& x, const SlowMatrix& m);

/// How many batches the formulas of such sizes are for: 1, or all where they differ.
inline index_t batches_of(const Sizes& x) { return x.sequences == nullptr ? 1 : x.sequences->batches; }

/// The pairs that see each other, of one key-value head of batches_of(x) batches.
inline Words visible_pairs(const Sizes& x) {
  return sum_of_pairs(x, [](const Pairs& pairs) { return visible_pairs(pairs); });
}

}  // namespace redblue
