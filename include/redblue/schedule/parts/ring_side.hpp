#pragma once
#include <vector>

#include "redblue/schedule/parts/ring.hpp"

/// Rings past which blocks of the other side go: queries that enter with the first block of keys that they see and
/// leave after the last one, or keys with blocks of queries. Under an interval all come and go in order; under a
/// pattern each takes any free place (theory notes 2g).
namespace redblue::schedule {

/// What a ring holds, and what passes by.
struct RingSide {
  Pairs pairs;
  Blocks blocks;  ///< that pass
  bool holds_queries = false;

  static RingSide of_queries(const Pairs& pairs, index_t Bc) { return {pairs, pairs.key_blocks(Bc), true}; }
  static RingSide of_keys(const Pairs& pairs, index_t Br) { return {pairs, pairs.row_blocks(Br), false}; }

  index_t items() const { return holds_queries ? pairs.n_q : pairs.n_k; }
  Range hull(index_t b) const { return holds_queries ? pairs.rows_of(blocks(b)) : pairs.keys_of(blocks(b)); }
  Runs met(index_t b) const { return holds_queries ? pairs.runs_of_rows(blocks(b)) : pairs.runs_of_keys(blocks(b)); }
  /// Under a pattern: what each item meets.
  const RunLists& lists() const { return holds_queries ? pairs.mask.pattern->rows() : pairs.mask.pattern->keys(); }
  /// Under a pattern: f(items, first block that meets them, last one); items that meet none are left out.
  template <class F>
  void for_items(const F& f) const {
    const auto block_of = [&](index_t i) {
      return blocks.ragged_first ? blocks.count() - 1 - (blocks.n - 1 - i) / blocks.size : i / blocks.size;
    };
    lists().for_groups([&](Range items, std::span<const Range> runs) {
      if (!runs.empty()) f(items, block_of(runs.front().begin), block_of(runs.back().end - 1));
    });
  }
  /// How many items meet a block.
  [[gnu::noinline]] index_t items_met() const {
    if (pairs.mask.pattern == nullptr) return items();
    index_t met = 0;
    for_items([&](Range some, index_t, index_t) { met += some.size(); });
    return met;
  }
  /// The places that items need where those that leave go before others enter: as many as two blocks in a row both
  /// hold, and `most` for items that one block alone meets.
  [[gnu::noinline]] index_t places(index_t most) const {
    most = std::min(most, items());
    if (pairs.mask.pattern == nullptr)
      return std::max(holds_queries ? pairs.most_kept_rows(blocks.size) : pairs.most_kept(blocks.size), most);
    return found("ring places", most, [&] {
      index_t largest = 0;
      for_blocks([&](index_t before, index_t go, index_t only, index_t come) {
        largest = std::max({largest, before - go + std::min(most, only), before - go + come});
      });
      return largest;
    });
  }
  /// Those that they need where all that a block meets are there at once.
  [[gnu::noinline]] index_t places_together(const Sizes& x) const {
    if (pairs.mask.pattern == nullptr)
      return holds_queries ? most_seeing_rows(x, blocks.size) : most_seen_keys(x, blocks.size);
    return found("ring places together", 0, [&] {
      index_t largest = 0;
      for_blocks([&](index_t before, index_t, index_t only, index_t come) {
        largest = std::max(largest, before + only + come);
      });
      return largest;
    });
  }
  /// SUM (size of a block) x (rows of the tile that have held an item so far) over all blocks, with these places. Under
  /// a pattern the first free row is taken, so that those are as many as were there at once.
  [[gnu::noinline]] Words pairs_with_held(index_t places) const {
    if (pairs.mask.pattern == nullptr)
      return holds_queries ? pairs.pairs_with_last_rows(blocks.size, places)
                           : pairs.pairs_with_last_keys(blocks.size, places);
    Words sum;
    index_t largest = 0, b = 0;
    for_blocks([&](index_t before, index_t, index_t only, index_t come) {
      largest = std::max(largest, before + only + come);
      sum += Words(blocks(b++).size()) * largest;
    });
    return sum;
  }

 private:
  /// Under a pattern: walk(), kept for the next time.
  template <class Walk>
  index_t found(std::string_view name, index_t most, const Walk& walk) const {
    const Pattern::Key key{blocks.size, holds_queries ? 1 : 0, most};
    return pairs.mask.pattern->found(name, key, [&] { return Pattern::Found{walk()}; })[0].to_index();
  }
  /// Under a pattern: f(items that it holds, those of them that leave, those that this block alone meets, those that
  /// enter and stay) for each block.
  template <class F>
  void for_blocks(const F& f) const {
    struct Counts {
      index_t go = 0, only = 0, come = 0;
    };
    std::vector<Counts> counts(static_cast<std::size_t>(blocks.count()));
    const auto at = [&](index_t b) -> Counts& { return counts[static_cast<std::size_t>(b)]; };
    for_items([&](Range some, index_t first, index_t last) {
      (first == last ? at(first).only : at(first).come) += some.size();
      if (first != last) at(last).go += some.size();
    });
    index_t held = 0;
    for (const Counts& c : counts) {
      f(held, c.go, c.only, c.come);
      held += c.come - c.go;
    }
  }
};

/// f(items) for those that meet no block: under a pattern there may be some.
template <class F>
[[gnu::noinline]] void for_unmet(const RingSide& side, const F& f) {
  if (side.pairs.mask.pattern == nullptr) return;
  side.lists().for_groups([&](Range items, std::span<const Range> runs) {
    if (runs.empty()) f(items);
  });
}

/// The largest words(queries, keys that they see) over blocks of `a` queries, where all those keys are resident at
/// once.
template <class BlockWords>
Words seen_keys_footprint(const Sizes& x, index_t a, const BlockWords& words) {
  if (x.mask.pattern == nullptr) return query_blocks_footprint(x, a, words);
  const Blocks blocks = x.pairs().row_blocks(std::min(a, x.n_q));
  return detail::pattern_footprint(
      x.pairs(), blocks, true, "keys seen", [](const Runs& runs) { return runs.count(); }, words);
}

}  // namespace redblue::schedule
