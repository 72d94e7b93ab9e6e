#include <algorithm>
#include <optional>
#include <vector>

#include "redblue/masks/pattern.hpp"

/// How patterns are cut into blocks, and what the blocks meet.
namespace redblue {

namespace {

/// How many blocks meet each list, where block_of(i) is the block of i, and end_of(block) its end.
template <class BlockOf, class EndOf>
Words count_blocks_met(const RunLists& lists, Range part, const BlockOf& block_of, const EndOf& end_of) {
  Words met;
  lists.for_groups(part, [&](Range same, std::span<const Range> runs) {
    index_t last = -1, last_end = 0, blocks = 0;
    for (const Range& run : runs) {
      if (run.end <= last_end) continue;  // in a block that is counted: a division saved
      const index_t from = std::max(block_of(run.begin), last + 1);
      last = block_of(run.end - 1);
      last_end = end_of(last);
      blocks += last - from + 1;
    }
    met += Words(blocks) * same.size();
  });
  return met;
}

}  // namespace

Words blocks_met(const RunLists& lists, Range part, const Blocks& blocks) {
  if (!blocks.begins.empty()) {
    std::vector<std::uint32_t> block_of(static_cast<std::size_t>(blocks.n));
    for (index_t b = 0; b < blocks.count(); ++b)
      std::fill(block_of.begin() + blocks(b).begin, block_of.begin() + blocks(b).end, static_cast<std::uint32_t>(b));
    return count_blocks_met(
        lists, part, [&](index_t i) { return index_t{block_of[static_cast<std::size_t>(i)]}; },
        [&](index_t b) { return blocks(b).end; });
  }
  const index_t n = blocks.n, size = blocks.size, shift = blocks.ragged_first ? (size - n % size) % size : 0;
  const bool small = n + size < (index_t{1} << 32);  // then a division takes a fraction of the time
  return count_blocks_met(
      lists, part,
      [&](index_t i) {
        return small ? static_cast<index_t>(static_cast<std::uint32_t>(i + shift) / static_cast<std::uint32_t>(size))
                     : (i + shift) / size;
      },
      [&](index_t b) { return (b + 1) * size - shift; });
}

MostBySize most_in_block(const RunLists& lists, const Blocks& blocks) {
  constexpr index_t kBits = 64;  // of a word: from there on counting bits is faster
  MostBySize most;
  for (index_t i = 0; i < blocks.count(); ++i) most.add(blocks(i).size(), 0);
  lists.for_groups([&](Range part, std::span<const Range> runs) {
    if (lists.holds_bits() && blocks.size >= kBits) {
      for (index_t i = 0; i < blocks.count(); ++i) most.add(blocks(i).size(), lists.count(part.begin, blocks(i)));
      return;
    }
    Range block;
    index_t in_block = 0;
    for (const Range& run : runs)
      for (index_t j = run.begin; j < run.end;) {
        if (j >= block.end) {
          if (in_block > 0) most.add(block.size(), in_block);
          block = blocks(blocks.of(j));
          in_block = 0;
        }
        const index_t end = std::min(run.end, block.end);
        in_block += end - j;
        j = end;
      }
    if (in_block > 0) most.add(block.size(), in_block);
  });
  return most;
}

namespace {

/// Do neighbours with these runs see the same, but for two of the other side? A causal edge or a window that moves on
/// is no end of a block.
bool see_alike(std::span<const Range> a, std::span<const Range> b) {
  index_t different = 0;
  for (const Range& run : a) different += run.size();
  for (const Range& run : b) {
    different += run.size();
    for_inside(a, run, [&](Range both) { different -= 2 * both.size(); });
  }
  return different <= 2;
}

/// Where neighbours cease to see alike, and the end.
std::vector<index_t> ends_of_alike(const RunLists& lists) {
  std::vector<index_t> ends;
  std::span<const Range> before;
  lists.for_groups([&](Range same, std::span<const Range> runs) {
    if (same.begin > 0 && !see_alike(before, runs)) ends.push_back(same.begin);
    before = runs;
  });
  ends.push_back(lists.size());
  return ends;
}

/// Where blocks of at most `size` begin that end at these ends: as many whole groups of alike ones as there is room
/// for, and groups that are larger from their first one on. And the end.
std::vector<index_t> cut_at_ends(const std::vector<index_t>& ends, index_t size) {
  std::vector<index_t> begins{0};
  index_t alike = 0;  // where the group begins
  for (const index_t end : ends) {
    if (end - begins.back() > size && alike > begins.back()) begins.push_back(alike);
    while (end - begins.back() > size) begins.push_back(begins.back() + size);
    alike = end;
  }
  begins.push_back(ends.back());
  return begins;
}

}  // namespace

const Pattern::Cut& Pattern::cut(Cuts& known, index_t size, bool rows) const {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known.try_emplace(size);
  if (is_new) {
    found->second = cheapest_cut(size, rows);
    if (!found->second.begins.empty()) found->second.blocks.begins = found->second.begins;
  }
  return found->second;
}

Pattern::Cut Pattern::cheapest_cut(index_t size, bool rows) const {
  const RunLists &cut = rows ? rows_ : keys_, &others = rows ? keys_ : rows_;
  const auto visits_of = [&](const Blocks& blocks) {
    return is_intervals() ? met_by_intervals(blocks, rows) : blocks_met(others, blocks);
  };
  Cut best{{}, {cut.size(), size, rows}, {}};
  best.visits = visits_of(best.blocks);
  const auto consider = [&](std::vector<index_t> begins, Blocks blocks) {
    blocks.begins = begins;
    const Words visits = visits_of(blocks);
    if (visits >= best.visits) return;
    best.begins = std::move(begins);
    best.blocks = {blocks.n, blocks.size, blocks.ragged_first};
    best.visits = visits;
  };
  if (cut.size() % size != 0) consider({}, {cut.size(), size, !rows});
  std::optional<std::vector<index_t>>& ends = rows ? row_ends_ : key_ends_;
  if (!ends) ends = ends_of_alike(cut);
  // Where no two are alike these blocks end anywhere, and where all are, as they do from the first one on.
  if (std::ssize(*ends) == cut.size() || ends->size() == 1) return best;
  std::vector<index_t> begins = cut_at_ends(*ends, size);
  // Formulas take the largest block for one of `size` that meets something, as those at either end do.
  const Blocks at_ends{cut.size(), size, false, begins};
  bool whole = false;
  for (index_t i = 0; i < at_ends.count() && !whole; ++i)
    whole = at_ends(i).size() == size && !union_of(cut, at_ends(i)).empty();
  if (whole) consider(std::move(begins), {cut.size(), size});
  return best;
}

Words Pattern::met_by_intervals(const Blocks& blocks, bool rows) const {
  const RunLists &cut = rows ? rows_ : keys_, &others = rows ? keys_ : rows_;
  Words met;
  for (index_t i = 0; i < blocks.count(); ++i) met += interval(cut, blocks(i), others.size()).size();
  return met;
}

Words Pattern::visits_of_intervals(index_t size, bool rows) const {
  return found(rows ? "keys of intervals" : "rows of intervals", {size},
               [&] { return Found{met_by_intervals({rows ? n_q() : n_k(), size, rows}, rows)}; })[0];
}

Words Pattern::pairs_of_blocks(index_t size, bool rows) const {
  return found(rows ? "pairs of blocks of rows" : "pairs of blocks of keys", {size}, [&] {
    const Blocks blocks = rows ? row_blocks(size) : key_blocks(size);
    Words pairs = (rows ? visited_keys(size) : visited_rows(size)) * size;
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range block = blocks(i);
      if (block.size() == size) continue;
      index_t met = 0;
      for (const Range& run : union_of(rows ? rows_ : keys_, block)) met += run.size();
      pairs -= Words(size - block.size()) * met;
    }
    return Found{pairs};
  })[0];
}

}  // namespace redblue
