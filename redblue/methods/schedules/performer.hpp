#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/feature_state.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Performer (Choromanski et al. 2020, arXiv 2009.14794): m positive random features, made in code, and a state of m
/// rows resident. Keys pass once: what keeps exp from overflowing, the largest logarithm of a feature of all keys, is
/// taken as it grows, and the state rescaled. g features of a block of rows are held at a time.
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint m (d_v + 1) + d + d_v + 3 + [mask] for br = bc = g = 1
struct PerformerForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "performer";
  static constexpr std::string_view idea = "keeping the state of all random features resident";
  static constexpr Traits traits{.masks = true, .method = methods::kPerformer};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step (one under a mask)
    index_t bc = 1;  ///< keys per step
    index_t g = 1;   ///< features at a time
    void tile_sizes(const auto& tile_size) {
      tile_size({"br", &Sizes::n_q}, br);
      tile_size({"bc", &Sizes::n_k}, bc);
      tile_size({"g"}, g);
    }
  };

  static index_t features(const Sizes& x) { return std::get<Performer>(method_of(x)).features; }
  static std::optional<std::string_view> unsupported(const Sizes& x) { return state_unsupported(x); }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key), 1};
  }
  /// All move the same words: each tile size doubled in turn while there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    Tiling t = smallest(x, limits.multiple);
    if (!fits(t)) return std::nullopt;
    for (index_t enough = 2; enough <= kEnough; enough *= 2) {
      t.g = doubled(t.g, features(x), [&](index_t g) { return fits({t.br, t.bc, g}); }, enough);
      t.bc = doubled(t.bc, x.n_k, [&](index_t keys) { return fits({t.br, keys, t.g}); }, enough);
      t.br = doubled(t.br, x.n_q, [&](index_t rows) { return fits({rows, t.bc, t.g}); }, enough);
    }
    return t;
  }

  /// Keys, and queries. Under a mask more keys come later, and the largest logarithm stays.
  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const index_t step = std::min(t.g, features(x));
    Phase reading = features_of_queries(x, t.br, {0, x.d_v, 1}, step);
    reading.footprint += x.tile(SlowArray::den, x.mask.full() ? 0 : 1, 1);
    return {features_of_keys(x, t.bc, x.d_v, step), reading};
  }
  static Words state(const Sizes& x) {
    return x.tile(SlowArray::Z, features(x), x.d_v) + x.tile(SlowArray::Z, features(x), 1);
  }
  static Words footprint(const Sizes& x, Tiling t) { return state(x) + footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling) { return (Words(x.n_k) + x.n_q) * features(x) * (Words(x.d) + x.d_v + 1); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const FeatureState<M> state(m, {0, features(s)}, {0, s.d_v, 1}, t.g);
    const auto read = [&](Range I) {
      const auto num = m.alloc(x.O.rows(I));
      const auto den = m.alloc(SlowArray::den, {I.size(), 1}), most = m.alloc(SlowArray::den, {I.size(), 1});
      m.compute(kernel::SoftmaxInit{}, num, most, den);
      state.add_to(m, x, I, num, most, den);
      m.compute(kernel::DivideRows{}, num, den);
      m.store(num, x.O.rows(I));
    };
    if (!s.mask.full()) {
      const auto c = m.alloc(SlowArray::den, {1, 1});
      m.compute(kernel::MinusInfinity{}, c);
      return for_queries_after_keys(s, 1, t.bc, [&](Range J) { state.add(m, x, c, J); }, read);
    }
    {
      const auto c = m.alloc(SlowArray::den, {1, 1});
      m.compute(kernel::MinusInfinity{}, c);
      const Blocks keys = s.pairs().key_blocks(t.bc);
      for (index_t j = 0; j < keys.count(); ++j) state.add(m, x, c, keys(j));
    }
    const Blocks rows = s.pairs().row_blocks(t.br);
    for (index_t i = 0; i < rows.count(); ++i) read(rows(i));
  }
};

}  // namespace redblue::schedule
