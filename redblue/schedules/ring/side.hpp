#pragma once
#include <vector>

#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/parts/ring.hpp"
#include "redblue/schedules/ring/pins.hpp"

/// Rings past which blocks of the other side go: queries that enter with the first block of keys that they see and
/// leave after the last one, or keys with blocks of queries. Under an interval all come and go in order; under a
/// pattern each takes any free place (theory notes 2g).
namespace redblue::schedule {

/// What a ring holds, and what passes by.
struct RingSide {
  Pairs pairs;
  RingBlocks blocks;  ///< that pass
  bool holds_queries = false;
  index_t pinned = 0;  ///< those of the other side that are resident instead (ring_pins.hpp)

  /// Under an interval nothing is pinned, and at least one of the other side passes.
  static RingSide of_queries(const Pairs& pairs, index_t Bc, index_t pinned = 0) {
    return {pairs, pairs.key_blocks(Bc), true, pinned};
  }
  static RingSide of_keys(const Pairs& pairs, index_t Br, index_t pinned = 0) {
    return {pairs, pairs.row_blocks(Br), false, pinned};
  }
  static index_t pinned_of(const Pairs& pairs, index_t n, index_t most) {
    return pairs.mask.pattern == nullptr ? 0 : std::min(most, n - 1);
  }

  index_t items() const { return holds_queries ? pairs.n_q : pairs.n_k; }
  Range envelope(index_t b) const { return holds_queries ? pairs.rows_of(blocks(b)) : pairs.keys_of(blocks(b)); }
  /// What a block meets; items that pinned ones alone see come with the last block.
  [[gnu::noinline]] Runs met(index_t b) const {
    if (pinned == 0 || b + 1 < blocks.count()) return seen(b);
    std::vector<Range> all;
    for (const Range& run : seen(b)) all.push_back(run);
    lists().for_groups([&](Range some, std::span<const Range> runs) {
      if (!runs.empty() && !blocks.ends_of(runs)) all.push_back(some);
    });
    sort_and_join(all);
    return Runs(std::move(all));
  }
  /// Under a pattern: what each item meets.
  const RunLists& lists() const { return holds_queries ? pairs.mask.pattern->rows() : pairs.mask.pattern->keys(); }
  /// Under a pattern: f(items, first block that meets them, last one); items that meet none are left out.
  template <class F>
  void for_items(const F& f) const {
    const index_t end = blocks.count() - 1;
    index_t first = 0, last = 0;  // blocks of the items before: those of the next ones are looked for from there
    lists().for_groups([&](Range items, std::span<const Range> runs) {
      if (runs.empty()) return;
      const auto ends = blocks.ends_of(runs);
      if (!ends) return f(items, end, end);
      first = blocks.block_of((*ends)[0], first);
      last = blocks.block_of((*ends)[1], last);
      f(items, first, last);
    });
  }
  /// How many items meet a block.
  [[gnu::noinline]] index_t items_met() const {
    if (pairs.mask.pattern == nullptr) return items();
    index_t met = 0;
    lists().for_groups([&](Range some, std::span<const Range> runs) { met += runs.empty() ? 0 : some.size(); });
    return met;
  }
  /// The places that items need where those that leave go before others enter: as many as two blocks in a row both
  /// hold, and `most` for items that one block alone meets.
  [[gnu::noinline]] index_t places(index_t most) const {
    most = std::min(most, items());
    if (pairs.mask.pattern == nullptr)
      return std::max(holds_queries ? pairs.most_kept_rows(blocks.size()) : pairs.most_kept(blocks.size()), most);
    return found("ring places", most,
                 [&] {
                   index_t largest = 0;
                   for_blocks([&](index_t before, index_t go, index_t only, index_t come) {
                     largest = std::max({largest, before - go + std::min(most, only), before - go + come});
                   });
                   return Pattern::Found{largest};
                 })[0]
        .to_index();
  }
  /// The places that items need where all that a block meets are there at once.
  [[gnu::noinline]] index_t places_together(const Sizes& x) const {
    if (pairs.mask.pattern == nullptr)
      return holds_queries ? most_seeing_rows(x, blocks.size()) : most_seen_keys(x, blocks.size());
    return found("ring places together", 0,
                 [&] {
                   index_t largest = 0;
                   for_blocks([&](index_t before, index_t, index_t only, index_t come) {
                     largest = std::max(largest, before + only + come);
                   });
                   return Pattern::Found{largest};
                 })[0]
        .to_index();
  }
  /// The largest of the blocks, of those that meet an item, and of those with which one enters.
  struct Largest {
    index_t all, meeting, entered;
  };
  [[gnu::noinline]] Largest largest() const {
    if (pinned == 0) {
      const index_t size = std::min(blocks.size(), holds_queries ? pairs.n_k : pairs.n_q);
      return {size, size, size};
    }
    const Pattern::Found most = found("ring blocks", 0, [&] {
      Largest l{};
      index_t b = 0;
      for_blocks([&](index_t, index_t, index_t only, index_t come) {
        const index_t size = blocks(b).size();
        l.all = std::max(l.all, size);
        if (size > l.meeting && met(b).count() > 0) l.meeting = size;
        if (only + come > 0) l.entered = std::max(l.entered, size);
        ++b;
      });
      return Pattern::Found{l.all, l.meeting, l.entered};
    });
    return {most[0].to_index(), most[1].to_index(), most[2].to_index()};
  }
  /// What blocks meet, added up: items, and pairs in their envelopes. Pinned ones form one block, which meets all
  /// items.
  struct Sums {
    Words visits, pairs, blocks;
  };
  [[gnu::noinline]] Sums sums() const {
    const index_t size = blocks.size();
    if (pinned == 0)
      return {holds_queries ? pairs.visited_rows(size) : pairs.visited_keys(size),
              holds_queries ? pairs.pairs_of_keys(size) : pairs.pairs_of_rows(size), blocks.count()};
    const Pattern::Found sum = found("ring sums", 0, [&] {
      Words visits = items_met(), in_envelopes = Words(pinned) * visits;
      for (index_t b = 0; b < blocks.count(); ++b) {
        const index_t items = met(b).count();
        visits += items;
        in_envelopes += Words(blocks(b).size()) * items;
      }
      return Pattern::Found{visits, in_envelopes};
    });
    return {sum[0], sum[1], blocks.count() + 1};
  }
  /// The index words of a list of pairs in the order in which the ring needs it (index_words.hpp).
  [[gnu::noinline]] IndexWords index(const Sizes& x) const {
    if (pinned == 0)
      return (holds_queries ? key_pass_index(x, blocks.size()) : row_pass_index(x, blocks.size())).words();
    const Sums sum = sums();
    const Words most = found("ring index", 0, [&] {
      index_t largest = 0;
      lists().for_groups([&](Range, std::span<const Range> runs) { largest = std::max(largest, most_in_block(runs)); });
      return Pattern::Found{largest};
    })[0];
    return {sum.blocks + 2 * sum.visits + x.nnz(), most};
  }
  /// The longest run of pinned ones.
  index_t longest_pin() const { return detail::longest_of(blocks.pins()); }

 private:
  RingSide(const Pairs& p, const Blocks& even, bool of_queries, index_t most)
      : pairs(p),
        blocks(p.mask.pattern == nullptr ? RingBlocks(even)
                                         : RingBlocks(even, *p.mask.pattern, of_queries, pinned_of(p, even.n, most))),
        holds_queries(of_queries),
        pinned(pinned_of(p, even.n, most)) {}
  Runs seen(index_t b) const { return holds_queries ? pairs.runs_of_rows(blocks(b)) : pairs.runs_of_keys(blocks(b)); }
  /// The most pairs that an item with these runs has with one block, or with the pinned ones.
  index_t most_in_block(std::span<const Range> runs) const {
    index_t with_pinned = 0, most = 0, block = -1, in_block = 0;
    for (const Range& pin : blocks.pins()) for_inside(runs, pin, [&](Range part) { with_pinned += part.size(); });
    for (const Range& run : runs)
      for (index_t i = run.begin; i < run.end; ++i) {
        if (!blocks.ends_of(std::array{Range{i, i + 1}})) continue;
        if (const index_t b = blocks.block_of(i); b != std::exchange(block, b)) in_block = 0;
        most = std::max(most, ++in_block);
      }
    return std::max(most, with_pinned);
  }
  /// Under a pattern: walk(), kept for the next time.
  template <class Walk>
  Pattern::Found found(std::string_view name, index_t most, const Walk& walk) const {
    const Pattern::Key key{blocks.size(), holds_queries ? 1 : 0, most, pinned};
    return pairs.mask.pattern->found(name, key, walk);
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

}  // namespace redblue::schedule
