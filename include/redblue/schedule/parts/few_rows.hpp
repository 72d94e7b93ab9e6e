#pragma once
#include "redblue/kernel/landmarks.hpp"
#include "redblue/schedule/forward/operands.hpp"
#include "redblue/schedule/parts/limits.hpp"

/// Exact attention of the queries on few rows of keys and values that are resident.
namespace redblue::schedule {

/// The queries I, word by word: a row of weights for each is resident, queries stream past and outputs word by word.
template <class M>
void attend_by_words(M& m, const ForwardOperands& x, Range I, const Tile<M>& keys, const Tile<M>& values) {
  const auto S = m.alloc(SlowArray::S, {I.size(), keys.shape().rows});
  m.compute(kernel::Scores{x.scale}, S, m.stream(x.Q.rows(I)), keys);
  m.compute(kernel::SoftmaxRows{}, S);
  m.update(kernel::GemmOver{.first = true}, x.O.rows(I), S, values);
}
inline Words words_by_words(const Sizes& x, index_t queries, index_t rows) {
  return x.tile(SlowArray::S, queries, rows) + std::max(x.word(SlowArray::Q), x.word(SlowArray::O));
}

/// The queries I, row by row: queries and outputs are resident, and g of the rows' weights at a time.
template <class M>
void attend_by_rows(M& m, const ForwardOperands& x, Range I, index_t g, const Tile<M>& keys, const Tile<M>& values) {
  const index_t rows = keys.shape().rows;
  const auto O_i = m.alloc(x.O.rows(I));
  const auto most = m.alloc(SlowArray::den, {I.size(), 1}), sums = m.alloc(SlowArray::den, {I.size(), 1});
  m.compute(kernel::SoftmaxInit{}, O_i, most, sums);
  {
    const auto Q_i = m.load(x.Q.rows(I)), S = m.alloc(SlowArray::S, {I.size(), std::min(g, rows)});
    for (index_t a = 0; a < rows; a += g) {
      const index_t some = std::min(g, rows - a);
      m.compute(kernel::OnlineAttention{{x.scale}}, S.cols(some), O_i, most, sums, Q_i, keys.rows(a, some),
                values.rows(a, some), kNoWords, kNoWords);
    }
  }
  m.compute(kernel::DivideRows{}, O_i, sums);
  m.store(O_i, x.O.rows(I));
}
inline Words words_by_rows(const Sizes& x, index_t queries, index_t g, index_t rows) {
  return x.tile(SlowArray::Q, queries, x.d) + x.tile(SlowArray::O, queries, x.d_v) +
         2 * x.tile(SlowArray::den, queries, 1) + x.tile(SlowArray::S, queries, std::min(g, rows));
}

}  // namespace redblue::schedule
