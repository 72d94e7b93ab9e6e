#pragma once
#include <span>

#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/problem/sizes.hpp"

namespace redblue::schedule {

/// The operands of merge: Og (n_q x d_v) and lse_g (n_q), what attention to one set of keys gave, and O and lse, shaped
/// like them, what attention to another set gave: they become what attention to both gives.
struct MergeOperands {
  static constexpr Operation operation = Operation::merge;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;

  Sizes shape;
  double scale = 1;
  SlowMatrix Og, lse_g, O, lse;

  MergeOperands(const Sizes& s, double scale, index_t instance = 0)
      : shape(s),
        scale(scale),
        Og{SlowArray::Og, {s.n_q, s.d_v}, instance},
        lse_g{SlowArray::lse_g, {s.n_q, 1}, instance},
        O{SlowArray::O, Og.shape, instance},
        lse{SlowArray::lse, lse_g.shape, instance} {}
  index_t instance() const { return Og.instance; }
  auto all() const { return std::array{Og, lse_g, O, lse}; }
};

}  // namespace redblue::schedule
