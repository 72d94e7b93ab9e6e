#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/gemm.hpp"

namespace redblue::schedule {

/// A schedule for small caches without n x n workspace: a tile of scores is formed by rank-one updates, turned into
/// weights where it lies, and multiplied into O, whose columns are revisited in slow memory. 2 sqrt(6) n^2 d / sqrt(M)
/// words to leading order.
///   reads ceil(n_k/b) n_q d + ceil(n_q/a) n_k (d + d_v) + (ceil(n_k/b) - 1) n_q d_v
///   writes ceil(n_k/b) n_q d_v + n_q   footprint a b + 4 a + 1
struct ScoreTilesForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "score_tiles";
  static constexpr std::string_view idea = "keeping a tile of scores resident";
  static constexpr Traits traits{.keeps_scores = true, .rewrites_outputs = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t a = 1;  ///< queries of the score tile
    index_t b = 1;  ///< keys of the score tile
    void knobs(const auto& knob) {
      knob({"a", &Sizes::n_q}, a);
      knob({"b", &Sizes::n_k}, b);
    }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {smallest_tile(x.n_q, m.query), smallest_tile(x.n_k, m.key)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Prices& p = limits.price;
    const Words per_key_block =
        p.reading(SlowArray::Q) * x.n_q * x.d + (p.reading(SlowArray::O) + p.writing(SlowArray::O)) * x.n_q * x.d_v;
    const Words per_query_block = p.reading(SlowArray::K) * x.n_k * x.d + p.reading(SlowArray::V) * x.n_k * x.d_v;
    const auto best = best_tile(x.n_q, x.n_k, limits.multiple.query, limits.multiple.key, per_key_block,
                                per_query_block, limits.M / x.word(SlowArray::S), [&](index_t a, index_t b) {
                                  return limits.fit(footprint(x, {a, b}), prefetch(x, {a, b}));
                                });
    if (!best) return std::nullopt;
    return Tiling{(*best)[0], (*best)[1]};
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const index_t a = std::min(t.a, x.n_q), b = std::min(t.b, x.n_k);
    return x.tile(SlowArray::S, a, b) + 3 * x.tile(SlowArray::lse, a, 1) + prefetch(x, t);
  }
  /// A column of Q or O and a streamed word; with second buffers, the next ones.
  static Words prefetch(const Sizes& x, Tiling t) {
    const index_t a = std::min(t.a, x.n_q);
    return std::max(x.tile(SlowArray::Q, a, 1) + x.word(SlowArray::K),
                    x.tile(SlowArray::O, a, 1) + x.word(SlowArray::V));
  }
  static Io io(const Sizes& x, Tiling t) {
    const Words key_blocks = c(x.n_k, t.b), query_blocks = c(x.n_q, t.a);
    return Io()
        .read(SlowArray::Q, key_blocks * x.n_q * x.d)
        .read(SlowArray::K, query_blocks * x.n_k * x.d)
        .read(SlowArray::V, query_blocks * x.n_k * x.d_v)
        .read(SlowArray::O, (key_blocks - 1) * x.n_q * x.d_v)
        .write(SlowArray::O, key_blocks * x.n_q * x.d_v)
        .write(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, Tiling) { return x.N() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const auto S = tiled(x.S, t.a, t.b);  // never in slow memory: only its blocks' places
    const auto lse = tiled(x.lse, t.a), K = tiled(x.K, t.b, 1), V = tiled(x.V, t.b, 1);
    const auto Q = tiled(x.Q, t.a, 1), O = tiled(x.O, t.a, 1);
    m.each(S.rows(), [&](auto& w, index_t i) {
      const auto m_i = w.alloc(lse(i)), l_i = w.alloc(lse(i)), alpha = w.alloc(lse(i));
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      for (index_t j = 0; j < S.cols(); ++j) {
        const bool first = j == 0, last = j + 1 == S.cols();
        const auto S_ij = w.alloc(S(i, j));
        w.compute(kernel::Zero{}, S_ij);
        for (index_t k = 0; k < Q.cols(); ++k) {
          const auto q = w.load(Q(i, k));
          w.compute(kernel::Gemm{false, true}, S_ij, q, w.stream(K(j, k)));  // S += q k^T
        }
        w.compute(kernel::Scale{x.scale}, S_ij);
        w.compute(kernel::TileSoftmax{}, S_ij, m_i, l_i, alpha);  // S <- exp(S - m); alpha <- exp(m_old - m)
        for (index_t k = 0; k < O.cols(); ++k) {
          const auto o = w.alloc(O(i, k));
          if (first) {
            w.compute(kernel::Zero{}, o);
          } else {
            w.load_into(o, O(i, k));
            w.compute(kernel::ScaleRows{}, o, alpha);
          }
          w.compute(kernel::Gemm{}, o, S_ij, w.stream(V(j, k)));  // o += S v
          if (last) w.compute(kernel::DivideRows{}, o, l_i);
          w.store(o, O(i, k));
        }
      }
      w.compute(kernel::LogSum{}, m_i, l_i);
      w.store(m_i, lse(i));
    });
  }
};

}  // namespace redblue::schedule
