#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/few_rows.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linformer (Wang et al. 2020, arXiv 2006.04768): K' = E K and V' = E V, of k rows each, stay resident, and queries
/// attend to them. E (k x n_k) is made in code: means of segments of the keys, or random signs. Queries pass word by
/// word where a row of k weights is less than a query with its output, else row by row.
///   reads n_k (d + d_v) + n_q d   writes n_q d_v   footprint k (d + d_v) + min(k + 1, d + d_v + 3) for br = g = 1
struct LinformerForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linformer";
  static constexpr std::string_view idea = "keeping keys and values projected to few rows resident";
  static constexpr Traits traits{.method = methods::kLinformer};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = FewRowsTiling;

  static index_t rank(const Sizes& x) { return std::get<Linformer>(method_of(x)).rank; }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query), 1}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return few_rows_tiling<LinformerForward>(x, limits, rank(x));
  }

  static std::array<Phase, 2> phases(const Sizes& x, Tiling t) {
    const Words word = std::max(x.word(SlowArray::K), x.word(SlowArray::V));
    return {Phase{word, word}, attending(x, t, rank(x))};
  }
  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::Z, rank(x), x.d) + x.tile(SlowArray::Z, rank(x), x.d_v) + footprint_of(phases(x, t));
  }
  /// The next word of K or V, or of Q, or the next queries.
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling) { return one_pass_io(x); }
  static Words macs(const Sizes& x, Tiling) {
    const index_t per_key = std::get<Linformer>(method_of(x)).random_signs ? rank(x) : 1;
    return (Words(x.n_k) * per_key + Words(x.n_q) * rank(x)) * (Words(x.d) + x.d_v);
  }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Sizes& s = x.shape;
    const Linformer& l = std::get<Linformer>(method_of(s));
    const auto keys = m.alloc(SlowArray::Z, {l.rank, s.d}), values = m.alloc(SlowArray::Z, {l.rank, s.d_v});
    const kernel::ProjectRows project{s.n_k, 0, l.random_signs, l.seed};
    m.compute(kernel::Zero{}, keys);
    m.compute(kernel::Zero{}, values);
    m.compute(project, keys, m.stream(x.K.all()));
    m.compute(project, values, m.stream(x.V.all()));
    attend(m, x, t, {keys.arg(), values.arg()});
  }
};

}  // namespace redblue::schedule
