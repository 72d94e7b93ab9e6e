#pragma once
#include "redblue/methods/schedules/parts/polynomial_chunks.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Polynomial attention, a polynomial p of degree g in place of e^z in the softmax: p(scale q.k) = SUM_a w_a q^a k^a
/// over the r = C(d + g, g) monomials a. The state Z_a = SUM_j k_j^a (v_j, 1) stays resident, and every word moves
/// once: the trivial bound. How far the answer may be from exact attention is proved (Polynomial::output_error).
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint r (d_v + 1) + d + d_v + 1 + g for br = bc = 1
/// Under a mask the queries of a chunk read the state of the keys that all of them see, and meet J others as scores.
/// With the next chunk's first key these take (J + 1)(d + d_v) words, and C queries C (d + d_v + 1) + max(g, C J). For
/// br = 1 there are no others. The same words move.
struct PolynomialForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "polynomial";
  static constexpr std::string_view idea = "keeping the state of all monomials resident";
  static constexpr Traits traits{.masks = true, .method = methods::kPolynomial};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step; under a mask, per chunk
    index_t bc = 1;  ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static constexpr std::string_view restricted_bound(const Sizes& x) {
    return x.d + x.d_v <= 4096 ? "polynomial state" : "";
  }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_of_monomials_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    constexpr index_t kMany = 256;  // what a step costs beside its kernels weighs on short heads
    return doubled_in_turn<PolynomialForward>(x, limits, kMany, x.mask.full() ? kMany : kEnough);
  }

  static Words footprint(const Sizes& x, Tiling t) { return chunked_phase(x, t.br, t.bc).footprint; }
  /// The next keys and values, or the next queries.
  static Words prefetch(const Sizes& x, Tiling t) { return chunked_phase(x, t.br, t.bc).prefetch; }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling t) { return chunked_macs(x, t.br); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const MonomialGroup all = all_monomials(s);
    const auto Z = m.alloc(SlowArray::Z, {all.rows, s.d_v}), z = m.alloc(SlowArray::Z, {all.rows, 1});
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    const Blocks chunks = s.pairs().row_blocks(chunk_size(s, t.br));
    index_t entered = 0;
    for (index_t i = 0; i < chunks.count(); ++i) {
      const Range I = chunks(i);
      const index_t seen_by_all = s.pairs().keys_of({I.begin, I.begin + 1}).end;
      for (index_t keys = 0; entered < seen_by_all; entered += keys) {
        keys = std::min(t.bc, seen_by_all - entered);
        keys_into_state(m, x, all, {0, s.d_v}, {entered, entered + keys}, Z, z);
      }
      entered = chunk(m, x, all, I, entered, Z, z);
    }
  }
};

}  // namespace redblue::schedule
