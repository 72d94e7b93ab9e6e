#pragma once
#include <any>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "redblue/language/range.hpp"
#include "redblue/language/words.hpp"
#include "redblue/masks/blocks.hpp"

/// Who sees whom where no interval for each row says it: patterns as runs, ranges of neighbours. Nothing of size
/// n_q x n_k is touched unless that much is written in runs.
namespace redblue {

/// What a machine must read to know a pattern: nothing where a rule says it, the numbers of its blocks of rows x cols,
/// or a list of its pairs (docs/model.md). From the fewest words to the most.
struct PatternIndex {
  enum class Kind : std::uint8_t { none, blocks, pairs };
  Kind kind = Kind::none;
  index_t rows = 1, cols = 1;  ///< of a block
};
/// What is needed of two patterns together: the more explicit of the two; blocks that both are made of.
PatternIndex more_explicit(const PatternIndex& a, const PatternIndex& b);

/// Refuses queries and keys, in each of some batches, whose lists exceed the memory of this machine: a pattern has such
/// lists, and so has a dilation.
void require_memory_for_lists(index_t n_q, index_t n_k, index_t batches = 1);

/// The keys that each of n rows sees, or the rows that see each key, as sorted runs with gaps between them.
/// Neighbours with the same runs share them.
class RunLists {
 public:
  /// `count` more, all with these runs: sorted and disjoint; those that touch become one, and empty ones go. Bits go,
  /// too.
  void append(index_t count, std::span<const Range> runs);
  void append(index_t count, std::initializer_list<Range> runs) { append(count, std::span(runs.begin(), runs.size())); }

  index_t size() const { return static_cast<index_t>(group_of_.size()); }
  /// Have all the same runs?
  bool all_alike() const { return first_.size() == 2; }
  /// The runs of i; none beyond the end.
  std::span<const Range> of(index_t i) const {
    return i < size() ? of_group(group_of_[static_cast<std::size_t>(i)]) : std::span<const Range>();
  }
  /// f(Range, runs) for neighbours with the same runs, as many as there are in a row; none beyond the end.
  template <class F>
  void for_groups(Range part, const F& f) const {
    part.end = std::min(part.end, size());
    for (index_t i = part.begin; i < part.end;) {
      const std::uint32_t g = group_of_[static_cast<std::size_t>(i)];
      const index_t end = std::min(part.end, begin_[g + 1]);
      f(Range{i, end}, of_group(g));
      i = end;
    }
  }
  template <class F>
  void for_groups(const F& f) const {
    for_groups({0, size()}, f);
  }
  /// The runs that are held: a measure of the work that a pass over all takes.
  index_t runs_held() const { return static_cast<index_t>(runs_.size()); }

  /// Holds the lists, of n things, as bits too where these take no more than four times the memory of the runs. Then
  /// seen(), envelope_of() and union_of() take no time for each run.
  void hold_bits(index_t n);
  /// Bit k of 64: does list i hold from + k? Bits beyond the end are 0.
  std::uint64_t seen(index_t i, index_t from) const {
    if (i >= size()) return 0;
    const std::uint32_t group = group_of_[static_cast<std::size_t>(i)];
    return bits_.empty() ? bits_of_runs(group, from) : bits_from(group, from);
  }
  bool holds_bits() const { return !bits_.empty(); }
  /// How many of the window list i holds.
  index_t count(index_t i, Range window) const;
  /// Bit k: does a list of `part` hold from + k? Only where bits are held.
  std::uint64_t seen_by_any(Range part, index_t from) const;
  /// Bits are held of the things before this one.
  index_t bits_end() const { return static_cast<index_t>(words_) * 64; }

  /// How the pattern is given, if these are the lists of one; by a rule unless said.
  const PatternIndex& index() const { return index_; }
  void set_index(const PatternIndex& index) { index_ = index; }

  /// The same lists, whatever the index.
  friend bool operator==(const RunLists& a, const RunLists& b) {
    return std::tie(a.group_of_, a.runs_, a.first_) == std::tie(b.group_of_, b.runs_, b.first_);
  }

 private:
  std::span<const Range> of_group(std::uint32_t g) const {
    return std::span(runs_).subspan(first_[g], first_[g + 1] - first_[g]);
  }
  /// seen(), of a group that holds bits, and of any other.
  std::uint64_t bits_from(std::uint32_t group, index_t from) const {
    constexpr index_t kBits = 64;
    const auto first = static_cast<std::size_t>(from / kBits);
    const index_t shift = from % kBits;
    const auto word = [&](std::size_t k) { return k < words_ ? bits_[group * words_ + k] : 0; };
    return shift == 0 ? word(first) : word(first) >> shift | word(first + 1) << (kBits - shift);
  }
  std::uint64_t bits_of_runs(std::uint32_t group, index_t from) const;
  std::vector<std::uint32_t> group_of_;
  std::vector<index_t> begin_{0};      ///< the first of each group, and the end
  std::vector<std::size_t> first_{0};  ///< its first run, and the end
  std::vector<Range> runs_;
  PatternIndex index_;
  std::vector<std::uint64_t> bits_;  ///< of each group, `words_` of them
  std::size_t words_ = 0;
};

/// Sorts runs and joins those that touch; empty ones go.
void sort_and_join(std::vector<Range>& runs);

/// Lists the other way round: which of them hold each of n.
RunLists transposed(const RunLists& lists, index_t n);

/// A pattern between n_q rows (stacked query heads that share one key-value head, position-major) and n_k keys.
class Pattern : public std::enable_shared_from_this<Pattern> {
 public:
  /// `rows`: the keys, below n_k, that each of n_q rows sees.
  Pattern(RunLists rows, index_t n_k);

  index_t n_q() const { return rows_.size(); }
  index_t n_k() const { return keys_.size(); }
  const RunLists& rows() const { return rows_; }
  const RunLists& keys() const { return keys_; }

  /// Blocks of at most `a` rows, and of at most b keys, one of them as large as that. They are cut from the last row
  /// on, from the first one on, or where neighbours cease to see alike: so that the blocks meet the fewest of the
  /// other side.
  Blocks row_blocks(index_t a) const { return cut(row_cuts_, a, true).blocks; }
  Blocks key_blocks(index_t b) const { return cut(key_cuts_, b, false).blocks; }
  /// A(a) and B(b) of docs/model.md: the keys that these blocks of rows see, and the rows that see these blocks of
  /// keys, added up. Kept for the next time.
  Words visited_keys(index_t a) const { return cut(row_cuts_, a, true).visits; }
  Words visited_rows(index_t b) const { return cut(key_cuts_, b, false).visits; }
  /// These sums are those of a pattern that is taken as intervals: rows are cut from the last one on, keys from the
  /// first.
  Words keys_visited_by_intervals(index_t a) const { return visits_of_intervals(a, true); }
  Words rows_visited_by_intervals(index_t b) const { return visits_of_intervals(b, false); }
  /// SUM |I| kappa_I and SUM |J| rho_J over these blocks.
  Words pairs_of_row_blocks(index_t a) const { return pairs_of_blocks(a, true); }
  Words pairs_of_key_blocks(index_t b) const { return pairs_of_blocks(b, false); }

  /// What a walk over the pattern finds, kept as long as the pattern: `walk` is its name, `key` all that it depends on
  /// beside the pattern, make() walks. A name has one type.
  using Key = std::array<Words, 9>;
  using Found = std::array<Words, 4>;
  template <class Make>
  const std::invoke_result_t<Make>& found(std::string_view walk, const Key& key, const Make& make) const {
    using Value = std::invoke_result_t<Make>;
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = found_.find({walk, key}); known != found_.end())
        return std::any_cast<const Value&>(known->second);
    }
    std::any made = make();
    const std::lock_guard lock(mutex_);
    return std::any_cast<const Value&>(found_.emplace(std::pair(walk, key), std::move(made)).first->second);
  }

  /// Does each row see one interval of keys, whose ends never go back from one row to the next, so that every key is
  /// seen, and neighbours share a key?
  bool is_intervals() const { return !pairs_before_key_.empty(); }
  /// Where it does, the keys that one of these rows sees, of the first n_k, and the rows that see one of these keys, of
  /// the first n_q.
  Range interval_of_keys(Range rows, index_t n_k) const { return interval(rows_, rows, n_k); }
  Range interval_of_rows(Range keys, index_t n_q) const { return interval(keys_, keys, n_q); }
  index_t pairs_of_rows(Range rows) const { return between(before_, rows); }
  /// Only patterns of intervals know this.
  index_t pairs_of_keys(Range keys) const { return between(pairs_before_key_, keys); }

  /// Pairs in order, row by row: their number, and the place of the first pair of this row whose key is `key` or later.
  index_t pairs() const { return before_.back(); }
  index_t pair_at(index_t row, index_t key) const {
    index_t place = before_[static_cast<std::size_t>(row)];
    for (const Range& run : rows_.of(row)) {
      if (run.begin >= key) break;
      place += std::min(run.end, key) - run.begin;
    }
    return place;
  }

 private:
  static Range interval(const RunLists& lists, Range part, index_t n) {
    const index_t last = lists.size() - 1;
    const auto of = [&](index_t i) { return lists.of(std::clamp<index_t>(i, 0, last)).front(); };
    const index_t begin = std::min(of(part.begin).begin, n);
    return {begin, std::clamp(of(part.end - 1).end, begin, n)};
  }
  static index_t between(const std::vector<index_t>& before, Range part) {
    return before[static_cast<std::size_t>(part.end)] - before[static_cast<std::size_t>(part.begin)];
  }
  struct Cut {
    std::vector<index_t> begins;  ///< of uneven blocks
    Blocks blocks;
    Words visits;
  };
  using Cuts = std::unordered_map<index_t, Cut>;
  /// How rows, or keys, are cut into blocks of this size.
  const Cut& cut(Cuts& known, index_t size, bool rows) const;
  Cut cheapest_cut(index_t size, bool rows) const;
  Words pairs_of_blocks(index_t size, bool rows) const;
  Words visits_of_intervals(index_t size, bool rows) const;
  /// What these blocks of rows, or of keys, meet of the other side, where all see intervals.
  Words met_by_intervals(const Blocks& blocks, bool rows) const;

  RunLists rows_;
  RunLists keys_;
  std::vector<index_t> before_;            ///< pairs in the rows before each, and at the end all
  std::vector<index_t> pairs_before_key_;  ///< the same of keys, where is_intervals()
  mutable std::mutex mutex_;               ///< of what is kept
  mutable Cuts row_cuts_, key_cuts_;
  mutable std::optional<std::vector<index_t>> row_ends_, key_ends_;  ///< where neighbours cease to see alike
  mutable std::map<std::pair<std::string_view, Key>, std::any> found_;
};

/// From the first to the last that one of `part` holds inside `window`; empty where none does.
Range envelope_of(const RunLists& lists, Range part, Range window);
/// What one of `part` holds at least, as runs.
std::vector<Range> union_of(const RunLists& lists, Range part);
/// How many all lists hold together.
Words count_of(const RunLists& lists);
/// The things that `lists` speak of are cut into blocks: how many blocks meet each list, summed over the lists of
/// `part`, or over all. With the rows that see each key: A(size) of docs/model.md.
Words blocks_met(const RunLists& lists, Range part, const Blocks& blocks);
inline Words blocks_met(const RunLists& lists, const Blocks& blocks) {
  return blocks_met(lists, {0, lists.size()}, blocks);
}
/// The most that one of the lists holds of one of these blocks.
MostBySize most_in_block(const RunLists& lists, const Blocks& blocks);
/// The words of the index of a pattern that is given by blocks: one for each block that holds a pair, one for each row
/// of blocks, and one more.
Words block_index_words(const RunLists& lists);

/// The part of these runs inside `window`, counted from its beginning, one after another.
template <class F>
void for_inside(std::span<const Range> runs, Range window, const F& f) {
  auto run = std::partition_point(runs.begin(), runs.end(), [&](const Range& r) { return r.end <= window.begin; });
  for (; run != runs.end() && run->begin < window.end; ++run) f(intersection(*run, window).shifted(-window.begin));
}

}  // namespace redblue
