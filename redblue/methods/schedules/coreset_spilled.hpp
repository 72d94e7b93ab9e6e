#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/coreset.hpp"
#include "redblue/methods/schedules/parts/coreset_block.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Coresets of separate blocks where the coreset of m = n_k r/n_b keys does not fit: the points of each block go to
/// slow memory with their values and weights, and br queries at a time attend to all of them. [bal]: 1 with balanced
/// tau.
///   reads n_k (d + d_v) + n_q d + [bal] n_q d + c(n_q, br) m (d + d_v + 1)   writes n_q d_v + m (d + d_v + 1)
///   footprint for g = 1: 2 d_v and the largest of 2 [bal] + n_b (d + r + 1) + d + r + 1,
///   2 [bal] + r d + n_b r + r (d_v + 1) + 1, br (d + d_v + 3) + 1, where d_v + 1 <= n_b
struct CoresetSpilledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "coreset_spilled";
  static constexpr std::string_view idea = "leaving few weighted keys in slow memory in place of all";
  static constexpr Traits traits{.method = methods::kCoreset};
  static constexpr std::array workspace{SlowArray::K_few, SlowArray::V_few, SlowArray::w_few};

  using Tiling = FewRowsTiling;

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (std::get<Coreset>(method_of(x)).carried) return "is for separate blocks: leave out carried";
    return CoresetForward::unsupported(x);
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return CoresetForward::smallest(x, m); }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return tiling_of_streaming_rows(x, limits, CoresetBlocks(x).points(),
                                    [&](Tiling t) { return fits<CoresetSpilledForward>(x, t, limits); });
  }

  /// The lengths of the queries; the last block, which is the largest; the queries.
  static std::array<Phase, 4> phases(const Sizes& x, Tiling t) {
    const CoresetBlocks blocks(x);
    const CoresetBlock largest = blocks(blocks.count() - 1);
    const bool balanced = CoresetForward::balanced(x);
    const Words lengths = x.tile(SlowArray::den, balanced ? 2 : 0, 1), word = x.word(SlowArray::Q);
    const Words points = lengths + x.tile(SlowArray::Z, largest.points, x.d + x.d_v + 1);
    auto [choosing, adding] = phases_of_block(x, largest);
    choosing.footprint += points;
    adding.footprint += points;
    return {Phase{lengths + (balanced ? word : Words(0)), word}, choosing, adding,
            attending_streams(x, t, blocks.points(), true)};
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::O, 2, x.d_v) + footprint_of(phases(x, t));
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return CoresetForward::io(x, t) + io_of_streaming_rows(x, t, CoresetBlocks(x).points(), true);
  }
  static Words macs(const Sizes& x, Tiling t) { return CoresetForward::macs(x, t); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const CoresetBlocks blocks(s);
    const auto bounds = m.alloc(SlowArray::O, {2, s.d_v});
    m.compute(kernel::MinusInfinity{}, bounds);
    {
      const LongestRows<M> lengths(m, x);
      for (index_t j = 0; j < blocks.count(); ++j) {
        const CoresetBlock b = blocks(j);
        const auto tile = m.alloc(SlowArray::Z, {b.points, s.d + s.d_v + 1});
        const WeightedKeys coreset{tile.arg(), s.d, s.d_v};
        const Range points{0, b.points}, rows{blocks.row(j), blocks.row(j) + b.points};
        points_of_block(m, x, blocks, j, coreset, points, lengths.arg(), bounds);
        m.store(coreset.keys(points), x.K_few.rows(rows));
        m.store(coreset.values(points), x.V_few.rows(rows));
        m.store(coreset.weights(points), x.w_few.rows(rows));
      }
    }
    const Blocks queries = s.pairs().row_blocks(t.br);
    for (index_t i = 0; i < queries.count(); ++i)
      attend_by_rows(m, x, queries(i), t.g, streaming_rows(x, bounds.arg()));
  }
};

}  // namespace redblue::schedule
