#pragma once
#include <optional>

#include "redblue/methods/kernels/coreset.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/landmarks.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/limits.hpp"

/// Attention of the queries on few rows of keys and values that are resident, or stream past again for each step of
/// queries. The rows may have weights, which their exponentials are multiplied with, and outputs bounds.
namespace redblue::schedule {

struct FewRows {
  Arg keys, values;
  Arg weights = kNoWords;  ///< a column; none: all are 1
  Arg bounds = kNoWords;   ///< kernel::ClipColumns; none where there are no weights, either
  bool weighed() const { return weights.shape().words() > 0; }
};
/// These rows where they are in slow memory; `bounds` are resident.
inline FewRows streaming_rows(const ForwardOperands& x, const Arg& bounds = kNoWords) {
  const bool weighed = bounds.shape().words() > 0;
  return {Arg::streaming(x.K_few.all()), Arg::streaming(x.V_few.all()),
          weighed ? Arg::streaming(x.w_few.all()) : kNoWords, bounds};
}

/// The queries I, word by word: a row of weights for each is resident, queries stream past and outputs word by word.
template <class M>
void attend_by_words(M& m, const ForwardOperands& x, Range I, const FewRows& few) {
  const auto S = m.alloc(SlowArray::S, {I.size(), few.keys.shape().rows});
  m.compute(kernel::Scores{x.scale}, S, m.stream(x.Q.rows(I)), few.keys);
  m.compute(kernel::SoftmaxRows{}, S, few.weights);
  if (few.weighed())
    m.update(kernel::ClippedProductOver{}, x.O.rows(I), S, few.values, few.bounds);
  else
    m.update(kernel::GemmOver{.first = true}, x.O.rows(I), S, few.values);
}
inline Words words_by_words(const Sizes& x, index_t queries, index_t rows) {
  return x.tile(SlowArray::S, queries, rows) + std::max(x.word(SlowArray::Q), x.word(SlowArray::O));
}

/// The queries I, row by row: queries and outputs are resident, and g of the rows' weights at a time.
template <class M>
void attend_by_rows(M& m, const ForwardOperands& x, Range I, index_t g, const FewRows& few) {
  const index_t rows = few.keys.shape().rows;
  const auto O_i = m.alloc(x.O.rows(I));
  const auto most = m.alloc(SlowArray::den, {I.size(), 1}), sums = m.alloc(SlowArray::den, {I.size(), 1});
  m.compute(kernel::SoftmaxInit{}, O_i, most, sums);
  {
    const auto Q_i = m.load(x.Q.rows(I)), S = m.alloc(SlowArray::S, {I.size(), std::min(g, rows)});
    for (index_t a = 0; a < rows; a += g) {
      const Range some{a, std::min(a + g, rows)};
      const Arg keys = few.keys.rows(some), values = few.values.rows(some), P = S.cols(some.size());
      if (few.weighed()) {
        m.compute(kernel::Scores{x.scale}, P, Q_i, keys);
        m.compute(kernel::RescaleRows{}, P, O_i, sums, most);
        m.compute(kernel::Gemm{}, O_i, P, values);
        m.compute(kernel::Gemm{}, sums, P, few.weights.rows(some));
      } else {
        m.compute(kernel::OnlineAttention{{x.scale}}, P, O_i, most, sums, Q_i, keys, values, kNoWords, kNoWords);
      }
    }
  }
  m.compute(kernel::DivideRows{}, O_i, sums);
  if (few.weighed()) m.compute(kernel::ClipColumns{}, O_i, few.bounds);
  m.store(O_i, x.O.rows(I));
}
inline Words words_by_rows(const Sizes& x, index_t queries, index_t g, index_t rows) {
  return x.tile(SlowArray::Q, queries, x.d) + x.tile(SlowArray::O, queries, x.d_v) +
         2 * x.tile(SlowArray::den, queries, 1) + x.tile(SlowArray::S, queries, std::min(g, rows));
}

/// The tile sizes of a schedule that takes the cheaper of both ways.
struct FewRowsTiling {
  index_t br = 1;  ///< queries per step
  index_t g = 1;   ///< of the few rows per step, where queries pass row by row
  void tile_sizes(const auto& tile_size) {
    tile_size({"br", &Sizes::n_q}, br);
    tile_size({"g"}, g);
  }
};

/// Word by word where a row of weights is less than a query with its output.
inline bool by_words(const Sizes& x, index_t rows) { return rows + 1 <= x.d + x.d_v + 3; }
template <class M>
void attend(M& m, const ForwardOperands& x, FewRowsTiling t, const FewRows& few) {
  const Blocks queries = x.shape.pairs().row_blocks(t.br);
  for (index_t i = 0; i < queries.count(); ++i)
    if (by_words(x.shape, few.keys.shape().rows))
      attend_by_words(m, x, queries(i), few);
    else
      attend_by_rows(m, x, queries(i), t.g, few);
}
inline Phase attending(const Sizes& x, FewRowsTiling t, index_t rows) {
  const index_t queries = std::min(t.br, x.n_q);
  if (by_words(x, rows)) return {words_by_words(x, queries, rows), x.word(SlowArray::Q)};
  return {words_by_rows(x, queries, t.g, rows), x.tile(SlowArray::Q, queries, x.d)};
}
/// Queries, and the rows that pass them: of c(n_q, br) steps each reads all of them.
inline Phase attending_streams(const Sizes& x, FewRowsTiling t, index_t rows, bool weighed) {
  const Words word =
      std::max({x.word(SlowArray::K_few), x.word(SlowArray::V_few), weighed ? x.word(SlowArray::w_few) : Words(0)});
  return {words_by_rows(x, std::min(t.br, x.n_q), t.g, rows) + word, word};
}
/// What it takes that the rows go to slow memory, and pass from there.
inline Io io_of_streaming_rows(const Sizes& x, FewRowsTiling t, index_t rows, bool weighed) {
  const Words m = rows, times = c(x.n_q, t.br), w = weighed ? m : Words(0);
  return Io()
      .read(SlowArray::K_few, times * m * x.d)
      .read(SlowArray::V_few, times * m * x.d_v)
      .read(SlowArray::w_few, times * w)
      .write(SlowArray::K_few, m * x.d)
      .write(SlowArray::V_few, m * x.d_v)
      .write(SlowArray::w_few, w);
}
/// As few steps of queries as fit, then more of the few rows at a time while there is room.
template <class Fits>
std::optional<FewRowsTiling> tiling_of_streaming_rows(const Sizes& x, const Limits& limits, index_t rows,
                                                      const Fits& fits) {
  const index_t step = limits.multiple.query,
                most = largest_tile(x.n_q, step, [&](index_t br) { return fits({br, 1}); });
  if (most == 0) return std::nullopt;
  const index_t br = balanced(x.n_q, most, step);
  return FewRowsTiling{br, doubled(1, rows, [&](index_t g) { return fits({br, g}); })};
}
/// All tilings of schedule S move the same words: g and br doubled in turn while there is room.
template <class S>
std::optional<FewRowsTiling> few_rows_tiling(const Sizes& x, const Limits& limits, index_t rows) {
  const auto fits = [&](FewRowsTiling u) { return limits.fit(S::footprint(x, u), S::prefetch(x, u)); };
  FewRowsTiling t = S::smallest(x, limits.multiple);
  if (!fits(t)) return std::nullopt;
  for (index_t enough = 2; enough <= kEnough; enough *= 2) {
    t.g = doubled(t.g, rows, [&](index_t g) { return fits({t.br, g}); }, by_words(x, rows) ? 1 : enough);
    t.br = doubled(t.br, x.n_q, [&](index_t queries) { return fits({queries, t.g}); }, enough);
  }
  return t;
}

}  // namespace redblue::schedule
