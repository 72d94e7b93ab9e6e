#pragma once
#include "redblue/schedules/parts/visible.hpp"

/// Loops over the parts of a core that has several (problem/sequences.hpp): packed sequences, where a gradient with
/// respect to shared factors is a sum over all of them. The parts lie side by side (close_gaps): together they have all
/// queries and keys of the core. A core without parts is its own.
namespace redblue::schedule {

/// f(worker, operands of a part), for parts that do not wait for each other.
template <class M, class Operands, class F>
void for_each_part(M& m, const Operands& core, const F& f) {
  const std::vector<Sizes> parts = sequences_of(core.shape);
  const auto one = [&](auto& w, const Sizes& part) { f(w, Operands(part, core.scale, core.instance())); };
  if (parts.size() == 1) return one(m, parts.front());
  m.each(static_cast<index_t>(parts.size()), [&](auto& w, index_t i) { one(w, parts[static_cast<std::size_t>(i)]); });
}
/// f(operands of a part), for parts one after another on one machine.
template <class Operands, class F>
void for_parts(const Operands& core, const F& f) {
  for (const Sizes& part : sequences_of(core.shape)) f(Operands(part, core.scale, core.instance()));
}

/// Where a part has its queries, or its keys, among those of the core.
inline Range queries_of(const Sizes& core, const Sizes& part) {
  return Range{0, part.n_q}.shifted(part.row0 - core.row0);
}
inline Range keys_of(const Sizes& core, const Sizes& part) { return Range{0, part.n_k}.shifted(part.key0 - core.key0); }

/// Neighbouring parts that lie in one block together, or one part that is cut into blocks.
struct Shared {
  Range span;     ///< their queries, or their keys, among those of the core
  Blocks blocks;  ///< of the span
  std::vector<Sizes> parts;
  std::vector<Range> places;  ///< of the parts

  Range block(index_t i) const { return blocks(i).shifted(span.begin); }
  /// f(part, its queries or keys in the block, where these are in the block)
  template <class F>
  void for_parts(Range block, const F& f) const {
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (const Range own = intersection(block, places[k]); own.size() > 0)
        f(parts[k], own.shifted(-places[k].begin), own.shifted(-block.begin));
  }
};

namespace detail {
template <class Place, class Cut>
std::vector<Shared> shared_blocks(const Sizes& core, index_t size, const Place& place_of, const Cut& cut) {
  std::vector<Shared> list;
  for (const Sizes& part : sequences_of(core)) {
    const Range place = place_of(core, part);
    if (list.empty() || place.end - list.back().span.begin > size) {
      list.push_back({place, cut(part), {part}, {place}});
      continue;
    }
    Shared& last = list.back();
    last.span.end = place.end;
    last.blocks = {last.span.size(), last.span.size()};
    last.parts.push_back(part);
    last.places.push_back(place);
  }
  return list;
}
/// The largest words(part, size of a block, of these in one part, what these meet).
template <class OfPart, class BlockWords>
Words shared_footprint(const std::vector<Shared>& list, const OfPart& of_part, const BlockWords& words) {
  Words most;
  for (const Shared& shared : list)
    for (const Sizes& part : shared.parts) {
      const index_t all = shared.parts.size() > 1 ? shared.span.size() : 0;
      most = std::max(
          most, of_part(part, [&](index_t own, index_t met) { return words(part, std::max(all, own), own, met); }));
    }
  return most;
}
}  // namespace detail

/// Blocks of queries of a core, of `size` at most, and of keys. What a block costs whatever its size is paid as often
/// as without parts, or less: neighbouring parts that have no more together than `size` are in one block.
inline std::vector<Shared> shared_query_blocks(const Sizes& core, index_t size) {
  return detail::shared_blocks(core, size, queries_of,
                               [&](const Sizes& part) { return part.pairs().row_blocks(size); });
}
inline std::vector<Shared> shared_key_blocks(const Sizes& core, index_t size) {
  return detail::shared_blocks(core, size, keys_of, [&](const Sizes& part) { return part.pairs().key_blocks(size); });
}
inline Words count_of(const std::vector<Shared>& list) {
  Words count;
  for (const Shared& shared : list) count += shared.blocks.count();
  return count;
}
/// The largest block.
inline index_t largest_block(const std::vector<Shared>& list) {
  index_t most = 0;
  for (const Shared& shared : list) most = std::max(most, std::min(shared.blocks.size, shared.blocks.n));
  return most;
}

/// The largest words(part, queries of a block, those of one part, keys that these see) over blocks of `size` queries:
/// query_blocks_footprint of a core with parts.
template <class BlockWords>
Words shared_query_footprint(const Sizes& core, index_t size, const BlockWords& words) {
  if (core.sequences == nullptr)
    return query_blocks_footprint(core, size, [&](index_t own, index_t met) { return words(core, own, own, met); });
  return detail::shared_footprint(
      shared_query_blocks(core, size),
      [&](const Sizes& part, const auto& f) { return query_blocks_footprint(part, size, f); }, words);
}
template <class BlockWords>
Words shared_key_footprint(const Sizes& core, index_t size, const BlockWords& words) {
  if (core.sequences == nullptr)
    return key_blocks_footprint(core, size, [&](index_t own, index_t met) { return words(core, own, own, met); });
  return detail::shared_footprint(
      shared_key_blocks(core, size),
      [&](const Sizes& part, const auto& f) { return key_blocks_footprint(part, size, f); }, words);
}

/// f(worker, one of the list, a block of it), for blocks that do not wait for each other.
template <class M, class F>
void for_each_block(M& m, const std::vector<Shared>& list, const F& f) {
  const auto blocks = [&](auto& w, const Shared& shared) {
    w.each(shared.blocks.count(), [&](auto& worker, index_t i) { f(worker, shared, shared.block(i)); });
  };
  if (list.size() == 1) return blocks(m, list.front());
  m.each(static_cast<index_t>(list.size()), [&](auto& w, index_t k) { blocks(w, list[static_cast<std::size_t>(k)]); });
}

/// What tiles over both queries and keys are chosen for: the part, where there is one. Where there are several, it has
/// as many queries as the part with the most, and as many keys; and the mask of the largest part, where that has as
/// many of both.
inline Sizes typical_part(const Sizes& core) {
  if (core.sequences == nullptr) return core;
  const std::vector<Sizes> parts = sequences_of(core);
  const Sizes* largest = &parts.front();
  index_t queries = 0, keys = 0;
  for (const Sizes& part : parts) {
    if (Words(part.n_q) * part.n_k > Words(largest->n_q) * largest->n_k) largest = &part;
    queries = std::max(queries, part.n_q);
    keys = std::max(keys, part.n_k);
  }
  Sizes typical = *largest;
  if (typical.n_q == queries && typical.n_k == keys) return typical;
  typical.n_q = queries;
  typical.n_k = keys;
  typical.mask = Mask{.group = typical.mask.group};
  typical.hiding = typical.intervals = nullptr;
  return typical;
}
/// A tile that spans that part spans every part: it may then span the core, so that it keeps to any multiples.
constexpr index_t spanning(index_t size, index_t part, index_t core) { return size >= part ? core : size; }

}  // namespace redblue::schedule
