#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "redblue/schedules/parts/ring.hpp"

namespace redblue::schedule {

/// Keys that stay from one block of queries to the next under a mask with a left edge: the last ones that a block sees,
/// `places` of them at most. They lie in a ring. Keys come in order: a block meets those that stayed before it loads
/// others into places that are free then. Theory notes 2j, row 2b-1'.
class KeptKeys {
 public:
  KeptKeys(const Pairs& pairs, index_t Br, index_t places)
      : pairs_(pairs), blocks_(pairs.row_blocks(Br)), ring_{places} {}

  /// How often keys are read, all blocks together.
  Words visits() const { return pairs_.visited_keys_keeping(blocks_.size, ring_.places); }
  /// Does a key stream past a whole block?
  bool streams() const {
    return std::max(pairs_.most_kept(blocks_.size), pairs_.most_new_keys(blocks_.size)) > ring_.places;
  }

  /// What block i meets, cut where keys stream no longer, or lie no longer side by side.
  [[gnu::noinline]] Runs parts(index_t i) const {
    const Range keys = seen(i), stayed = staying_before(i), stay = staying(i);
    std::vector<Range> parts;
    const auto stream = [&](Range part) {
      if (part.size() > 0) parts.push_back(part);
    };
    const auto resident = [&](Range part) { ring_.for_parts(part, [&](Range run, Range) { parts.push_back(run); }); };
    const index_t entered = std::max(stayed.end, stay.begin);
    stream({keys.begin, stayed.begin});
    resident(stayed);
    stream({stayed.end, entered});
    resident({entered, stay.end});
    return Runs(std::move(parts));
  }
  /// How block i meets the keys of such a part.
  enum class Way : std::uint8_t { streams, enters, stayed };
  Way way(index_t i, index_t key) const {
    if (staying_before(i).holds(key)) return Way::stayed;
    return staying(i).holds(key) ? Way::enters : Way::streams;
  }
  index_t row_of(index_t key) const { return key % ring_.places; }

 private:
  Range seen(index_t i) const { return pairs_.keys_of(blocks_(i)); }
  /// The keys that stay when block i is done, and those that had stayed and that it sees.
  Range staying(index_t i) const {
    const Range keys = seen(i);
    return {std::max(keys.begin, keys.end - ring_.places), keys.end};
  }
  Range staying_before(index_t i) const { return intersection(i == 0 ? Range{} : staying(i - 1), seen(i)); }

  Pairs pairs_;
  Blocks blocks_;
  Ring ring_;
};

}  // namespace redblue::schedule
