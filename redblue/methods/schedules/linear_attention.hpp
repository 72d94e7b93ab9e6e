#pragma once
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/schedules/parts/state_passes.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linear attention with the feature map phi(x) = elu(x) + 1 (Katharopoulos et al. 2020, arXiv 2006.16236): the state
/// Z = SUM_j phi(k_j) (v_j, 1) resident, O_i = phi(q_i) Z over its last column. Keys stream past a block of values,
/// queries past their outputs.
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint d (d_v + 1) + d_v + 2 for br = bc = 1
struct LinearAttentionForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linear_attention";
  static constexpr std::string_view idea = "keeping the state of feature maps resident";
  static constexpr Traits traits{.masks = true, .method = methods::kLinearAttention};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step (one under a mask)
    index_t bc = 1;  ///< keys per step
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
    }
  };

  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return doubled_in_turn<LinearAttentionForward>(x, limits);
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const index_t keys = keys_entering(x, t.bc), rows = x.mask.full() ? std::min(t.br, x.n_q) : 1;
    const Words V = x.tile(SlowArray::V, keys, x.d_v), k = x.word(SlowArray::K), q = x.word(SlowArray::Q);
    const Words sums = x.tile(SlowArray::O, rows, x.d_v) + x.tile(SlowArray::den, rows, 1);
    return {Phase{V + k, V + k}, Phase{sums + q, q}};
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::Z, x.d, x.d_v) + x.tile(SlowArray::Z, x.d, 1) + footprint_of(phases(x, t));
  }
  /// The next values and word of K, or word of Q.
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling) { return (Words(x.n_k) + x.n_q) * x.d * (Words(x.d_v) + 1); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const auto Z = m.alloc(SlowArray::Z, {s.d, s.d_v}), z = m.alloc(SlowArray::Z, {s.d, 1});
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    for_queries_after_keys(
        s, t.br, t.bc,
        [&](Range J) {
          const auto V_j = m.load(x.V.rows(J));
          m.compute(kernel::AddElu{}, Z, z, m.stream(x.K.rows(J)), V_j);
        },
        [&](Range I) {
          const auto num = m.alloc(x.O.rows(I)), den = m.alloc(SlowArray::den, {I.size(), 1});
          m.compute(kernel::Zero{}, num);
          m.compute(kernel::Zero{}, den);
          m.compute(kernel::ApplyElu{}, num, den, m.stream(x.Q.rows(I)), Z, z);
          m.compute(kernel::DivideRows{}, num, den);
          m.store(num, x.O.rows(I));
        });
  }
};

}  // namespace redblue::schedule
