#pragma once
#include "redblue/kernel/materialised.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/gemm.hpp"

namespace redblue::schedule {

/// Three passes, each matrix through slow memory: S = scale Q K^T; P = softmax(S), over S; O = P V. The baseline.
///   rho = 1 if a row of scores fits in fast memory, else 2
///   reads R_mm(Q K^T) + rho n_q n_k + R_mm(P V)   writes 2 n_q n_k + n_q d_v (+ n_q if lse is required)
///   footprint max(F_mm, F_mm, rho = 1 ? n_k + 2 : 3)
struct NaiveForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "naive";
  static constexpr std::string_view idea = "three passes through slow memory";
  static constexpr Traits traits{.keeps_scores = true};
  static constexpr std::array workspace{SlowArray::S};

  struct Tiling {
    index_t b1 = 1;   ///< tile of S: queries
    index_t b2 = 1;   ///< tile of S: keys
    index_t b3 = 1;   ///< tile of O: queries
    index_t b4 = 1;   ///< tile of O: value columns
    index_t rho = 2;  ///< sweeps over a row of scores
    void knobs(const auto& knob) {
      knob({"b1", &Sizes::n_q}, b1);
      knob({"b2", &Sizes::n_k}, b2);
      knob({"b3", &Sizes::n_q}, b3);
      knob({"b4", &Sizes::d_v}, b4);
      knob({"rho", nullptr, 1, 2}, rho);
    }
    GemmTiling scores() const { return {b1, b2}; }
    GemmTiling output() const { return {b3, b4}; }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {q, smallest_tile(x.n_k, m.key), q, smallest_tile(x.d_v, m.feature), 2};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const Multiples& s = limits.multiple;
    const auto qk = scores(x).choose(x, limits, s.query, s.key);
    const auto pv = output(x).choose(x, limits, s.query, s.feature);
    const index_t rho = limits.fit(softmax(x, 1)) ? 1 : 2;
    if (!qk || !pv || !limits.fit(softmax(x, rho))) return std::nullopt;
    return Tiling{qk->b1, qk->b2, pv->b1, pv->b2, rho};
  }

  static GemmCost scores(const Sizes& x) { return {SlowArray::S, SlowArray::Q, SlowArray::K, x.n_q, x.d, x.n_k}; }
  static GemmCost output(const Sizes& x) { return {SlowArray::O, SlowArray::S, SlowArray::V, x.n_q, x.n_k, x.d_v}; }
  /// A row of scores, or one streamed word of it, with its two statistics.
  static Phase softmax(const Sizes& x, index_t rho) {
    const Words row = rho == 1 ? x.tile(SlowArray::S, 1, x.n_k) : x.word(SlowArray::S);
    return {row + 2 * x.tile(SlowArray::lse, 1, 1), row};
  }
  static std::array<Phase, 3> phases(const Sizes& x, Tiling t) {
    return {scores(x).phase(x, t.scores()), softmax(x, t.rho), output(x).phase(x, t.output())};
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return scores(x).io(t.scores()) +
           Io().read(SlowArray::S, x.N() * t.rho)
               .write(SlowArray::S, x.N())
               .write(SlowArray::lse, x.lse_required ? x.n_q : 0) +
           output(x).io(t.output());
  }
  static Words macs(const Sizes& x, Tiling) { return x.N() * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    gemm(m, x.shape.fast, x.S, {x.Q}, transposed(x.K), t.scores(),
         [&](auto& w, const auto& T) { w.compute(kernel::Scale{x.scale}, T); });
    const auto S = tiled(x.S, 1), lse = tiled(x.lse, 1);
    m.each(S.rows(), [&](auto& w, index_t i) {
      const auto m_i = w.alloc(SlowArray::lse, {1, 1}), l_i = w.alloc(SlowArray::lse, {1, 1});
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      if (t.rho == 1) {
        const auto s = w.load(S(i));
        w.compute(kernel::StatisticsAdd{}, m_i, l_i, s);
        w.compute(kernel::NormaliseRows{}, s, m_i, l_i);
        w.store(s, S(i));
      } else {
        w.compute(kernel::StatisticsAdd{}, m_i, l_i, w.stream(S(i)));
        w.update(kernel::NormaliseRows{}, S(i), m_i, l_i);
      }
      if (x.shape.lse_required) {
        w.compute(kernel::LogSum{}, m_i, l_i);
        w.store(m_i, lse(i));
      }
    });
    gemm(m, x.shape.fast, x.O, {x.S}, {x.V}, t.output());
  }
};

}  // namespace redblue::schedule
