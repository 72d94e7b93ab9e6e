#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/maths/hashing.hpp"
#include "redblue/methods/schedules/parts/few_rows.hpp"
#include "redblue/schedules/parts/limits.hpp"

namespace redblue::schedule {

/// Exact attention on k keys drawn at random without a look at any score, resident with their values: what methods that
/// choose keys by their scores have to beat. Queries pass word by word where a row of k weights is less than a query
/// with its output, else row by row.
///   reads k (d + d_v) + n_q d   writes n_q d_v   footprint k (d + d_v) + min(k + 1, d + d_v + 3) for br = g = 1
struct UniformSampleForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "uniform_sample";
  static constexpr std::string_view idea = "attending to keys drawn at random, which stay resident";
  static constexpr Traits traits{.method = methods::kUniformSample};
  static constexpr std::array<SlowArray, 0> workspace{};

  using Tiling = FewRowsTiling;

  static index_t keys(const Sizes& x) { return std::get<UniformSample>(method_of(x)).keys; }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query), 1}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    return few_rows_tiling<UniformSampleForward>(x, limits, keys(x));
  }

  static Words footprint(const Sizes& x, Tiling t) {
    return x.tile(SlowArray::K, keys(x), x.d) + x.tile(SlowArray::V, keys(x), x.d_v) +
           attending(x, t, keys(x)).footprint;
  }
  /// The next word of Q, or the next queries.
  static Words prefetch(const Sizes& x, Tiling t) { return attending(x, t, keys(x)).prefetch; }
  static Io io(const Sizes& x, Tiling) {
    const Words drawn = keys(x), rows = x.n_q;
    return Io()
        .read(SlowArray::K, drawn * x.d)
        .read(SlowArray::V, drawn * x.d_v)
        .read(SlowArray::Q, rows * x.d)
        .write(SlowArray::O, rows * x.d_v);
  }
  static Words macs(const Sizes& x, Tiling) { return Words(x.n_q) * keys(x) * (Words(x.d) + x.d_v); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const UniformSample& u = std::get<UniformSample>(method_of(x.shape));
    const auto K = m.alloc(SlowArray::K, {u.keys, x.shape.d}), V = m.alloc(SlowArray::V, {u.keys, x.shape.d_v});
    index_t row = 0;
    for (const index_t j : random_subset(u.keys, x.shape.n_k, u.seed)) {
      m.load_into(K.rows(row, 1), x.K.rows(j, 1));
      m.load_into(V.rows(row, 1), x.V.rows(j, 1));
      ++row;
    }
    attend(m, x, t, {K.arg(), V.arg()});
  }
};

}  // namespace redblue::schedule
