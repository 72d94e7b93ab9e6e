#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/forward/flash.hpp"
#include "redblue/schedules/forward/key_outer.hpp"
#include "redblue/schedules/forward/small_cache.hpp"
#include "redblue/schedules/forward/split_keys.hpp"
#include "redblue/schedules/ring/backward.hpp"
#include "redblue/schedules/ring/forward.hpp"

/// Wrong schedules, each with one slip that a person might make. The data-free checks must catch every one.
namespace redblue::test::mutants {

using namespace redblue::schedule;

/// Slips in flash; `none` is flash itself, to show that the checks pass a right schedule.
enum class FlashSlip {
  none,
  loads_keys_instead_of_streaming,
  reloads_queries_for_every_key,
  forgets_to_store_lse,
  forgets_to_store_the_last_block,
  allocates_scores_too_early,
  keeps_scores_as_a_square_tile,
  streams_values_twice,
  skips_the_initialisation,
  stores_into_an_input,
  visits_invisible_keys,
  misses_the_last_key,
};

struct Flash {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, FlashForward::Tiling t, FlashSlip slip) {
    using Step = kernel::OnlineAttention;
    using enum FlashSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    const auto early = m.alloc(SlowArray::S, {slip == allocates_scores_too_early ? t.Br : 0, 1});
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const auto Q_i = w.load(x.Q.rows(I), Step::Q);
      const auto O_i = w.alloc(x.O.rows(I), Step::O);
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I));
      const index_t Bc = slip == keeps_scores_as_a_square_tile ? x.shape.n_k : std::min(t.Bc, x.shape.n_k);
      const auto S = w.alloc(SlowArray::S, {I.size(), Bc}, Step::S);
      if (slip != skips_the_initialisation) w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
      const index_t seen = x.shape.pairs().keys_of(I).end;
      const index_t kappa = slip == visits_invisible_keys ? x.shape.n_k : seen - (slip == misses_the_last_key ? 1 : 0);
      for (index_t j = 0; j < kappa; j += t.Bc) {
        const index_t keys = std::min(t.Bc, kappa - j);
        const Step step{{x.scale, {x.shape.mask, I.begin, j}}};
        if (slip == reloads_queries_for_every_key) w.load_into(Q_i, x.Q.rows(I));
        if (slip == streams_values_twice) w.compute(kernel::Gemm{}, O_i, S.cols(keys), w.stream(x.V.rows(j, keys)));
        if (slip == loads_keys_instead_of_streaming) {
          const auto K_j = w.load(x.K.rows(j, keys));
          w.compute(step, S.cols(keys), O_i, m_i, l_i, Q_i, K_j, w.stream(x.V.rows(j, keys)), kNoWords, kNoWords);
        } else {
          w.compute(step, S.cols(keys), O_i, m_i, l_i, Q_i, w.stream(x.K.rows(j, keys)), w.stream(x.V.rows(j, keys)),
                    kNoWords, kNoWords);
        }
      }
      w.compute(kernel::SoftmaxFinish{}, O_i, m_i, l_i);
      if (slip != forgets_to_store_the_last_block || i + 1 < blocks.count()) w.store(O_i, x.O.rows(I));
      if (slip == stores_into_an_input) w.store(Q_i, x.Q.rows(I));
      if (slip != forgets_to_store_lse) w.store(m_i, x.lse.rows(I));
    });
  }
};

/// Key-outer that treats every block as the first: old outputs are overwritten unread.
struct KeyOuterForgetsWhatWas {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, KeyOuterForward::Tiling t) {
    const auto K = tiled(x.K, t.Bc), V = tiled(x.V, t.Bc);
    for (index_t j = 0; j < K.rows(); ++j) {
      const auto K_j = m.load(K(j)), V_j = m.load(V(j));
      m.each(x.Q.shape.rows, [&](auto& w, index_t i) {
        const auto s = w.alloc(SlowArray::S, {1, K(j).shape.rows});
        const auto ln = w.alloc(SlowArray::lse, {1, 1}), alpha = w.alloc(SlowArray::lse, {1, 1}),
                   beta = w.alloc(SlowArray::lse, {1, 1});
        w.compute(kernel::Scores{x.scale}, s, w.stream(x.Q.rows(i, 1)), K_j);
        w.compute(kernel::BlockSoftmax{}, s, ln);
        w.compute(kernel::Zero{}, alpha);
        w.update(kernel::MergeOutput{true}, x.O.rows(i, 1), alpha, s, V_j);
        w.store(ln, x.lse.rows(i, 1));
      });
    }
  }
};

/// Slips in split_keys.
enum class SplitSlip {
  none,
  merges_before_the_groups,
  forgets_the_last_group,
  forgets_lse_of_the_groups,
  keeps_lse_of_all_groups,
};

struct SplitKeys {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, SplitKeysForward::Tiling t, SplitSlip slip) {
    using enum SplitSlip;
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    const index_t keys = SplitKeysForward::keys_per_group(x.shape, t);
    const auto of_group = [&](index_t g, const SlowMatrix& parts, Range I) {
      return parts.rows(t.G * x.shape.row0 + g * x.shape.n_q + I.begin, I.size());
    };
    const auto merge = [&] {
      for (index_t i = 0; i < blocks.count(); ++i) {
        const Range I = blocks(i);
        const auto O_i = m.alloc(x.O.rows(I)), ln = m.alloc(x.lse.rows(I));
        const index_t kept = slip == keeps_lse_of_all_groups ? t.G : 1;
        const auto before = m.alloc(x.lse.rows(I)), shares = m.alloc(SlowArray::lse, {I.size(), kept});
        const Arg share = shares.cols(1);
        m.compute(kernel::SoftmaxInit{}, O_i, ln, before);
        for (index_t g = 0; g < t.G - (slip == forgets_the_last_group); ++g) {
          m.load_into(share, of_group(g, x.lse_g, I));
          m.compute(kernel::MergeLse{}, ln, share, before);
          m.compute(kernel::MergeRows{}, O_i, before, share, m.stream(of_group(g, x.Og, I)));
        }
        m.store(O_i, x.O.rows(I));
        m.store(ln, x.lse.rows(I));
      }
    };
    if (slip == merges_before_the_groups) merge();
    for (index_t i = 0; i < blocks.count(); ++i)
      for (index_t g = 0; g < t.G; ++g) {
        const Range I = blocks(i);
        ForwardOperands y = x;
        y.store_lse = slip != forgets_lse_of_the_groups;
        FlashForward::attend(m, y, {I, of_group(g, x.Og, I), of_group(g, x.lse_g, I)},
                             intersection({g * keys, (g + 1) * keys}, x.shape.pairs().keys_of(I)), t.Bc,
                             [](auto& w, const Block& b) { return w.stream(b); });
      }
    if (slip != merges_before_the_groups) merge();
  }
};

/// Slips in ring.
enum class RingSlip {
  none,
  has_a_place_too_few,
  has_a_place_too_many,
  loads_keys_again,
  misses_the_last_key_of_all,
};

struct Ring {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, RingForward::Tiling t, RingSlip slip) {
    using enum RingSlip;
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    const index_t s = RingForward::places(x.shape, t) + (slip == has_a_place_too_many) - (slip == has_a_place_too_few);
    const auto K_ring = m.alloc(SlowArray::K, {s, x.shape.d}), V_ring = m.alloc(SlowArray::V, {s, x.shape.d_v});
    index_t loaded = 0;
    const auto ring = [&](auto& w, const Block& b) {
      const index_t key = b.row;
      const Arg place = (b.array == x.K.array ? K_ring : V_ring).rows(key % s, b.shape.rows);
      const bool misses = slip == misses_the_last_key_of_all && key + 1 == x.shape.n_k;
      if ((key >= loaded && !misses) || slip == loads_keys_again) w.load_into(place, b);
      if (b.array == x.V.array) loaded = std::max(loaded, key + b.shape.rows);
      return place;
    };
    for (index_t i = 0; i < blocks.count(); ++i) {
      const Range I = blocks(i);
      std::vector<Range> keys;  // one by one
      for (index_t j = pairs.keys_of(I).begin; j < pairs.keys_of(I).end; ++j) keys.push_back({j, j + 1});
      FlashForward::attend(m, x, {I, x.O.rows(I), x.lse.rows(I)}, Runs(std::move(keys)), t.Bc, ring);
    }
  }
};

/// Slips in the ring of gradients.
enum class RingBackwardSlip {
  none,
  has_a_place_too_few,
  has_a_place_too_many,
  loads_keys_again,
  forgets_to_begin_gradients_with_zero,
  forgets_to_store_the_last_gradients,
  leaves_out_the_second_part,
  forgets_keys_that_nobody_sees,  ///< under a pattern
};

struct RingBackward {
  using S = schedule::RingBackward;
  template <Machine M>
  static void run(M& m, const BackwardOperands& x, S::Tiling t, RingBackwardSlip slip) {
    using enum RingBackwardSlip;
    const RingSide side = RingSide::of_keys(x.shape.pairs(), t.Br);
    RingSteps steps(side, S::places(x.shape, t) + (slip == has_a_place_too_many) - (slip == has_a_place_too_few),
                    x.shape.n_k, RingOrder::together);
    const Shape K{steps.places(), x.shape.d}, V{steps.places(), x.shape.d_v};
    const S::Keys<M> keys{m.alloc(SlowArray::K, K), m.alloc(SlowArray::V, V), m.alloc(SlowArray::dK, K),
                          m.alloc(SlowArray::dV, V)};
    const auto of = [](const auto& tile, Range rows) { return tile.rows(rows.begin, rows.size()); };
    for (index_t i = 0; i < side.blocks.count(); ++i) {
      const std::vector<RingStep>& of_block = steps.next();
      bool second = false;
      for (const RingStep& j : of_block) {
        if (!j.enters && slip != loads_keys_again) continue;
        if (slip == leaves_out_the_second_part && std::exchange(second, true)) continue;
        m.load_into(of(keys.K, j.rows), x.K.rows(j.items));
        m.load_into(of(keys.V, j.rows), x.V.rows(j.items));
        if (slip == forgets_to_begin_gradients_with_zero) continue;
        m.compute(kernel::Zero{}, of(keys.dK, j.rows));
        m.compute(kernel::Zero{}, of(keys.dV, j.rows));
      }
      S::gradients(m, x, keys, side.blocks(i), joined(of_block), t.bv);
      for (const RingStep& j : of_block) {
        if (!j.leaves || (slip == forgets_to_store_the_last_gradients && i + 1 == side.blocks.count())) continue;
        m.store(of(keys.dK, j.rows), x.dK.rows(j.items));
        m.store(of(keys.dV, j.rows), x.dV.rows(j.items));
      }
    }
    if (slip == forgets_keys_that_nobody_sees) return;
    for_unmet(side, [&](Range J) {
      m.update(kernel::ZeroOver{}, x.dK.rows(J));
      m.update(kernel::ZeroOver{}, x.dV.rows(J));
    });
  }
};

/// Small cache whose phases stand in the wrong order: scores are read before they are written.
struct SmallCachePhasesSwapped {
  template <Machine M>
  static void run(M& m, const ForwardOperands& x, SmallCacheForward::Tiling t) {
    SmallCacheForward::output(m, x, t);
    SmallCacheForward::scores(m, x, t);
  }
};

}  // namespace redblue::test::mutants
