#pragma once
#include "redblue/schedule/parts/few_rows.hpp"
#include "redblue/schedule/parts/limits.hpp"
#include "redblue/schedule/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linformer (Wang et al. 2020, arXiv 2006.04768): K' = E K and V' = E V, of k rows each, stay resident, and queries
/// attend to them. E (k x n_k) is made in code: means of segments of the keys, or random signs. Queries pass word by
/// word where a row of k weights is less than a query with its output, else row by row.
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint k (d + d_v) + min(k + 1, d + d_v + 3) for br = g = 1
struct LinformerForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linformer";
  static constexpr std::string_view idea = "keeping keys and values projected to few rows resident";
  static constexpr Traits traits{.method = MethodKind::linformer};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t br = 1;  ///< queries per step
    index_t g = 1;   ///< rows of K' per step, where queries pass row by row
    void knobs(const auto& knob) {
      knob({"br", &Sizes::n_q}, br);
      knob({"g"}, g);
    }
  };

  static index_t rank(const Sizes& x) { return std::get<Linformer>(x.method).rank; }
  static bool by_words(const Sizes& x) { return rank(x) + 1 <= x.d + x.d_v + 3; }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query), 1}; }
  /// All move the same words: g and br doubled in turn while there is room.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](Tiling u) { return limits.fit(footprint(x, u), prefetch(x, u)); };
    Tiling t = smallest(x, limits.multiple);
    if (!fits(t)) return std::nullopt;
    for (index_t enough = 2; enough <= kEnough; enough *= 2) {
      t.g = doubled(t.g, rank(x), [&](index_t g) { return fits({t.br, g}); }, by_words(x) ? 1 : enough);
      t.br = doubled(t.br, x.n_q, [&](index_t rows) { return fits({rows, t.g}); }, enough);
    }
    return t;
  }

  static Words word(const Sizes& x) { return std::max(x.word(SlowArray::K), x.word(SlowArray::V)); }
  static Words queries(const Sizes& x, Tiling t) {
    const index_t rows = std::min(t.br, x.n_q);
    return by_words(x) ? words_by_words(x, rows, rank(x)) : words_by_rows(x, rows, t.g, rank(x));
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::Z, rank(x), x.d) + x.tile(SlowArray::Z, rank(x), x.d_v) + std::max(word(x), queries(x, t));
  }
  /// The next word of K or V, or of Q, or the next queries.
  static Words prefetch(const Sizes& x, Tiling t) {
    const Words next = by_words(x) ? x.word(SlowArray::Q) : x.tile(SlowArray::Q, std::min(t.br, x.n_q), x.d);
    return prefetch_of({Phase{word(x), word(x)}, Phase{queries(x, t), next}});
  }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling) {
    const index_t per_key = std::get<Linformer>(x.method).random_signs ? rank(x) : 1;
    return (Words(x.n_k) * per_key + Words(x.n_q) * rank(x)) * (Words(x.d) + x.d_v);
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const Linformer& l = std::get<Linformer>(s.method);
    const auto keys = m.alloc(SlowArray::Z, {l.rank, s.d}), values = m.alloc(SlowArray::Z, {l.rank, s.d_v});
    const kernel::ProjectRows project{s.n_k, 0, l.random_signs, l.seed};
    m.compute(kernel::Zero{}, keys);
    m.compute(kernel::Zero{}, values);
    m.compute(project, keys, m.stream(x.K.all()));
    m.compute(project, values, m.stream(x.V.all()));
    const Blocks rows = s.pairs().row_blocks(t.br);
    for (index_t i = 0; i < rows.count(); ++i)
      if (by_words(s))
        attend_by_words(m, x, rows(i), keys, values);
      else
        attend_by_rows(m, x, rows(i), t.g, keys, values);
  }
};

}  // namespace redblue::schedule
