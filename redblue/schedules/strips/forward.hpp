#pragma once
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/strips/strips.hpp"

namespace redblue::schedule {

/// All scores of a block of queries are resident at once, one word for each pair; queries, keys, values and outputs
/// pass column by column. For rows that see few keys, where d is much larger: nothing n x n is stored, and the softmax
/// takes each row as a whole.
///   reads n_q d + A(a) (d + d_v)   writes n_q (d_v + 1)   footprint the largest nnz_I + |I| + 1
/// nnz_I: the pairs of a block of `a` queries. Theory notes 2j. Modifiers act on the strip, a bias as it passes.
struct StripsForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "strips";
  static constexpr std::string_view idea = "keeping all scores of a block of queries resident";
  static constexpr Traits traits{.keeps_scores = true, .narrow = true, .masks = true, .hides = true, .modifiers = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t a = 1;  ///< queries at a time
    void tile_sizes(const auto& tile_size) { tile_size({"a", &Sizes::n_q}, a); }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query)}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto could_fit = [&](index_t a, Words pairs) { return limits.fit(least_words(x, a, pairs), 0); };
    const auto fits = [&](index_t a) { return limits.fit(footprint(x, {a}), prefetch(x, {a})); };
    const index_t a = best_row_strip(x, limits.multiple.query, could_fit, fits);
    if (a == 0) return std::nullopt;
    return Tiling{a};
  }

  /// Beside the strip.
  static std::array<Phase, 3> phases(const Sizes& x, index_t rows) {
    return {strip_scores_phase(x, rows), strip_softmax_phase(x, rows),
            strip_product_phase(x, SlowArray::O, SlowArray::V, rows)};
  }
  /// At least, of blocks of `a` queries with that many pairs, not all of which need to be in one of `a`.
  static Words least_words(const Sizes& x, index_t a, Words pairs) {
    return std::max(x.tile(SlowArray::S, pairs, 1), x.tile(SlowArray::O, a, 1));
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return row_strips_footprint(x, t.a, [&](index_t rows, Words pairs) {
      return x.tile(SlowArray::S, pairs, 1) + footprint_of(phases(x, rows));
    });
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, std::min(t.a, x.n_q))); }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_keys(t.a);
    return strip_scores_io(x, t.a) + Io().read(SlowArray::Q, Words(x.n_q) * x.d)
                                         .read(SlowArray::K, visits * x.d)
                                         .read(SlowArray::V, visits * x.d_v)
                                         .write(SlowArray::O, Words(x.n_q) * x.d_v)
                                         .write(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, Tiling) { return x.nnz() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Blocks blocks = x.shape.pairs().row_blocks(t.a);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Strip strip = strip_of_rows(x.shape, blocks(i));
      const auto S_i = w.alloc(SlowArray::S, strip.words());
      form_strip(w, x.shape, S_i, strip, x.Q, x.K);  // Q K^T
      modify_strip(w, x, S_i, strip, kNoWords);      // S
      {
        const auto lse_i = w.alloc(x.lse.rows(strip.rows));
        w.compute(kernel::PairSoftmax(strip.box(x.shape)), S_i, lse_i, w.stream(x.sinks.all()));
        w.store(lse_i, x.lse.rows(strip.rows));
      }
      drop_pairs(w, x, strip.box(x.shape), S_i);
      multiply_strip(w, x.shape, x.O, S_i, strip, false, x.V);  // O = P V
    });
  }
};

}  // namespace redblue::schedule
