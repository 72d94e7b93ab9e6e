#pragma once
#include <optional>
#include <vector>

#include "redblue/core/sizes.hpp"

/// Problems that are several: packed sequences, and batches of which each has its own numbers of queries and keys.
namespace redblue {

/// Queries that see keys of their own document only. Queries and keys of no document are padding: such queries see no
/// key, such keys are seen by none.
struct Document {
  index_t batch = 0;
  Range rows;  ///< stacked query heads
  Range keys;
  Mask mask{};               ///< counted from its first row and key
  index_t slope_offset = 0;  ///< Modifiers::slope_offset, counted likewise

  friend bool operator==(const Document&, const Document&) = default;
};

/// Of one key-value head.
struct Documents {
  index_t batches = 1;         ///< 1: all batches are alike; else `list` has those of all
  std::vector<Document> list;  ///< by batch; queries and keys go up, and none overlap
};

/// The parts of a problem that see nothing but themselves, as problems without documents: those of one batch, or of
/// all. Of a problem that has no documents itself.
inline std::vector<Sizes> documents_of(const Sizes& x, std::optional<index_t> batch = {}) {
  if (x.documents == nullptr) return {x};
  std::vector<Sizes> parts;
  for (const Document& one : x.documents->list) {
    if (x.documents->batches > 1 && batch && one.batch != *batch) continue;
    if (one.rows.size() == 0 || one.keys.size() == 0) continue;
    Sizes part = x;
    part.documents = nullptr;
    part.n_q = one.rows.size();
    part.n_k = one.keys.size();
    part.row0 += one.rows.begin;
    part.key0 += one.keys.begin;
    part.mask = part_of({one.mask, part.n_q, part.n_k}, {0, part.n_q}, {0, part.n_k}).mask;
    part.modifiers.slope_offset = one.slope_offset - one.rows.begin / one.mask.group + one.keys.begin;
    parts.push_back(std::move(part));
  }
  return parts;
}

/// How many batches the formulas of such sizes are for: 1, or all where they differ.
inline index_t batches_of(const Sizes& x) { return x.documents == nullptr ? 1 : x.documents->batches; }

/// The pairs that see each other, of one key-value head of batches_of(x) batches.
inline Words visible_pairs(const Sizes& x) {
  Words pairs;
  for (const Sizes& part : documents_of(x)) pairs += visible_pairs(part.pairs());
  return pairs;
}

}  // namespace redblue
