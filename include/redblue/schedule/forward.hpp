#pragma once
#include "redblue/core/cost.hpp"
#include "redblue/core/mask.hpp"

/// The forward problem that every forward schedule solves: O = softmax(scale Q K^T) V and lse, one head or one group
/// of query heads that share K and V (theory: stack them as n_q rows).
namespace redblue::schedule {

struct ForwardShape {
  index_t n_q = 0;  ///< rows of Q: queries of all heads that share this K, V
  index_t n_k = 0;
  index_t d = 0;
  index_t d_v = 0;
  Mask mask{};
  bool lse_required = false;  ///< naive writes lse only then; every other schedule writes it anyway

  constexpr Words N() const { return Words(n_q) * n_k; }
};

/// The operands: Q n_q x d, K n_k x d, V n_k x d_v, O n_q x d_v, lse n_q x 1; S n_q x n_k is workspace that only
/// schedules which declare it touch.
struct Forward {
  ForwardShape shape;
  double scale = 1;
  SlowMatrix Q, K, V, O, lse, S;
  bool store_lse = true;  ///< false in all but one pass of a schedule that goes over the queries several times

  Forward(const ForwardShape& s, double scale, index_t instance = 0)
      : shape(s),
        scale(scale),
        Q{SlowArray::Q, {s.n_q, s.d}, instance},
        K{SlowArray::K, {s.n_k, s.d}, instance},
        V{SlowArray::V, {s.n_k, s.d_v}, instance},
        O{SlowArray::O, {s.n_q, s.d_v}, instance},
        lse{SlowArray::lse, {s.n_q, 1}, instance},
        S{SlowArray::S, {s.n_q, s.n_k}, instance} {}
};

/// Words, as a product or quotient reads in a formula: c(a, b) = ceil(a / b).
constexpr Words c(index_t a, index_t b) { return ceil_div(a, b); }

}  // namespace redblue::schedule
