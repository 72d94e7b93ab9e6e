#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/coreset_block.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Coresets: r weighted keys in place of each block of n_b keys, chosen by randomly pivoted Cholesky
/// (methods/maths/method.hpp has the sources). Separate: a coreset of m = n_k r/n_b keys stays resident, and queries
/// attend to it. Carried: one coreset of r keys, which is reduced anew together with each block; its words do not
/// depend on n_k. Queries pass word by word where a row of weights is less than a query with its output, else row by
/// row. [bal]: 1 with balanced tau.
///   reads n_k (d + d_v) + n_q d + [bal] n_q d   writes n_q d_v
///   footprint for br = g = 1: 2 d_v and the largest of
///   C + 2 [bal] + n (d + r + 1) + d + r + 1,   C + 2 [bal] + r d + n r + r (d_v + 1) + [carried] r + 1,
///   m (d + d_v + 1) + min(m + 1, d + d_v + 3),
///   separate: n = n_b, C = (m - r)(d + d_v + 1); carried: n = r + n_b, m = r, C = r (d_v + 1) in the first of them and
///   0 in the second; where d_v + 1 <= n_b and the carried coreset is full.
struct CoresetForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "coreset";
  static constexpr std::string_view idea = "keeping few weighted keys resident in place of all";
  static constexpr Traits traits{.method = methods::kCoreset};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = FewRowsTiling;

  static bool balanced(const Sizes& x) { return std::get<Coreset>(method_of(x)).balanced; }
  static std::optional<std::string_view> unsupported(const Sizes& x) {
    constexpr index_t kMostKeys = 1 << 24;  // a word of fast memory that is an f32 has their numbers
    const CoresetBlocks blocks(x);
    if (blocks(blocks.count() - 1).all() > kMostKeys) return "numbers the keys of a block in a word: 2^24 at most";
    return std::nullopt;
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query), 1}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return few_rows_tiling<CoresetForward>(x, limits, CoresetBlocks(x).points());
  }

  /// The lengths of the queries; the last block, which is the largest; the queries.
  static std::array<Phase, 4> phases(const Sizes& x, Tiling t) {
    const CoresetBlocks blocks(x);
    const Words lengths = x.tile(SlowArray::den, balanced(x) ? 2 : 0, 1), word = x.word(SlowArray::Q);
    auto [choosing, adding] = phases_of_block(x, blocks(blocks.count() - 1));
    choosing.footprint += lengths;
    adding.footprint += lengths;
    return {Phase{lengths + (balanced(x) ? word : Words(0)), word}, choosing, adding, attending(x, t, blocks.points())};
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::O, 2, x.d_v) + x.tile(SlowArray::Z, CoresetBlocks(x).points(), x.d + x.d_v + 1) +
           footprint_of(phases(x, t));
  }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) {
    return one_pass_io(x).read(SlowArray::Q, balanced(x) ? Words(x.n_q) * x.d : Words(0));
  }
  static Words macs(const Sizes& x, Tiling) {
    const CoresetBlocks blocks(x);
    const Words values = Words(x.d_v) + 1;
    Words total = Words(x.n_q) * blocks.points() * (x.d + values);
    blocks.for_alike([&](const CoresetBlock& b, index_t times) {
      const Words r = b.points, system = r * (r - 1) / 2;
      total +=
          times * (b.all() * (r * x.d + system) + (b.all() - r) * system + r * b.before * values + r * b.keys * x.d_v);
    });
    return total;
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const CoresetBlocks blocks(s);
    const auto bounds = m.alloc(SlowArray::O, {2, s.d_v});
    const auto all = m.alloc(SlowArray::Z, {blocks.points(), s.d + s.d_v + 1});
    const WeightedKeys coreset{all.arg(), s.d, s.d_v};
    m.compute(kernel::MinusInfinity{}, bounds);
    {
      const LongestRows<M> lengths(m, x);
      for (index_t j = 0; j < blocks.count(); ++j)
        points_of_block(m, x, blocks, j, coreset, {blocks.row(j), blocks.row(j) + blocks(j).points}, lengths.arg(),
                        bounds);
    }
    const Range points{0, blocks.points()};
    attend(m, x, t, {coreset.keys(points), coreset.values(points), coreset.weights(points), bounds.arg()});
  }
};

}  // namespace redblue::schedule
