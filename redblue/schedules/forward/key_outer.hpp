#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/visible.hpp"

namespace redblue::schedule {

/// The order of FlashAttention-1: a block of keys and values stays red while queries stream past; outputs are revisited
/// in slow memory. O is kept normalised, so one statistic (lse) per query suffices where Dao et al. 2022 (arXiv
/// 2205.14135) move m and l. With all keys in one block every word moves once.
///   reads n_k (d + d_v) + d B(Bc) + (d_v + 1) (B(Bc) - n_q)   writes (d_v + 1) B(Bc)
///   footprint Bc (d + d_v) + Br (Bc + 3) + 1
/// B(Bc) = SUM_J rho_J: queries that see a block of keys; without a mask ceil(n_k/Bc) n_q. Modifiers: slopes, sinks and
/// a row of the bias that all queries share stay resident.
struct KeyOuterForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "key_outer";
  static constexpr std::string_view idea = "keeping keys and values resident";
  static constexpr Traits traits{.masks = true, .hides = true, .modifiers = true, .rewrites_outputs = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Bc = 1;  ///< keys and values resident at a time
    index_t Br = 1;  ///< queries per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"Br", &Sizes::n_q}, Br);
    }
  };
  static std::string_view caveat(const Sizes& x, Tiling t) {
    return t.Bc < x.n_k ? "it keeps lse in one word from visit to visit, so outputs err by about eps |lse| a visit"
                        : "";
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t Br = smallest_tile(x.n_q, limits.multiple.query);  // the words do not depend on Br
    const index_t step = limits.multiple.key;
    const index_t Bc =
        choose_key_block(x, step, [&](index_t b) { return limits.fit(footprint(x, {b, Br}), prefetch(x, {b, Br})); });
    if (Bc == 0) return std::nullopt;
    return Tiling{Bc, Br};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const Words sinks = x.modifiers.sinks ? x.tile(SlowArray::sinks, x.mask.group, 1) : Words(0);
    return prefetch(x, t) + slopes_tile(x) + sinks + key_blocks_footprint(x, t.Bc, [&](index_t keys, index_t rho) {
             const index_t Br = std::min(t.Br, rho);
             return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v) + shared_row_of_bias(x, keys) +
                    x.tile(SlowArray::S, Br, keys) + 3 * x.statistic(SlowArray::lse, Br);
           });
  }
  /// A word of Q, of O, or of a bias for each pair; with second buffers, the next one.
  static Words prefetch(const Sizes& x, Tiling) {
    return std::max({x.word(SlowArray::Q), x.word(SlowArray::O), passing_bias_of_pairs(x)});
  }
  static Io io(const Sizes& x, Tiling t) {
    const Words visits = x.pairs().visited_rows(t.Bc);
    return modifiers_io(x, x.pairs().pairs_of_keys(t.Bc), x.n_k, 1) + sinks_io(x, 1) +
           Io().read(SlowArray::K, Words(x.n_k) * x.d)
               .read(SlowArray::V, Words(x.n_k) * x.d_v)
               .read(SlowArray::Q, visits * x.d)
               .read(SlowArray::O, (visits - x.n_q) * x.d_v)
               .read(SlowArray::lse, visits - x.n_q)
               .write(SlowArray::O, visits * x.d_v)
               .write(SlowArray::lse, visits);
  }
  static Words macs(const Sizes& x, Tiling t) { return x.pairs().pairs_of_keys(t.Bc) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.key_blocks(t.Bc);
    const Slopes slopes(m, x);
    const auto sinks = m.load(x.sinks.all());
    for (index_t j = 0; j < blocks.count(); ++j) {
      const Range J = blocks(j), seeing = pairs.rows_of(J);
      const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.rows(J)), bias_j = m.load(x.shared_bias(J));
      m.each(ceil_div(seeing.size(), t.Br), [&](auto& w, index_t i) {
        const index_t begin = seeing.begin + i * t.Br;
        const Range I{begin, std::min(begin + t.Br, seeing.end)};
        // Rows that have seen keys before J come first.
        const Range again{I.begin, first_visit(pairs, I, J)}, fresh{again.end, I.end};
        const auto s = w.alloc(SlowArray::S, {I.size(), J.size()});
        const auto ln = w.alloc(x.lse.rows(I)), alpha = w.alloc(x.lse.rows(I)), beta = w.alloc(x.lse.rows(I));
        const auto of = [&](const auto& tile, Range r) { return tile.rows(r.begin - I.begin, r.size()); };
        const Place place = x.shape.place(I.begin, J.begin);
        w.compute(kernel::Scores{x.scale, place}, s, w.stream(x.Q.rows(I)), K_j);
        modify(w, modify_scores(x.shape, place), s, x.bias_of_keys ? bias_j.arg() : x.bias_of(I, J), slopes.arg());
        w.compute(kernel::BlockSoftmax{}, s, ln);  // s <- softmax(s); ln <- its lse
        if (x.shape.modifiers.sinks && fresh.size() > 0)
          w.compute(kernel::AddSinks{fresh.begin}, of(s, fresh), of(ln, fresh), sinks);
        if (x.shape.modifiers.dropout > 0) w.compute(drop(x.shape, x.instance(), place), s);
        if (fresh.size() > 0) {
          w.compute(kernel::Zero{}, of(alpha, fresh));
          w.update(kernel::MergeOutput{true}, x.O.rows(fresh), of(alpha, fresh), of(s, fresh), V_j);  // O <- s V
        }
        if (again.size() > 0) {
          w.load_into(of(alpha, again), x.lse.rows(again));  // lse of the keys before
          // ln <- lse of all; alpha, beta <- shares of old and new
          w.compute(kernel::MergeLse{}, of(ln, again), of(alpha, again), of(beta, again));
          w.compute(kernel::ScaleRows{}, of(s, again), of(beta, again));
          w.update(kernel::MergeOutput{false}, x.O.rows(again), of(alpha, again), of(s, again),
                   V_j);  // O <- alpha O + s V
        }
        w.store(ln, x.lse.rows(I));
      });
    }
  }
};

}  // namespace redblue::schedule
