#pragma once
#include <optional>
#include <string_view>

#include "redblue/kernels/gradient.hpp"
#include "redblue/kernels/materialised.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/maths/coreset_blocks.hpp"
#include "redblue/methods/schedules/parts/few_rows.hpp"

/// One block of keys that becomes few: which they are, and what they stand for.
namespace redblue::schedule {

/// The coreset: rows of a key, a row of values and a weight.
struct WeightedKeys {
  Arg all;
  index_t d, d_v;
  Arg columns(Range points, index_t first, index_t count) const {
    Arg a = all.rows(points);
    a.block.col += first;
    a.block.shape.cols = count;
    return a;
  }
  Arg keys(Range points) const { return columns(points, 0, d); }
  Arg values(Range points) const { return columns(points, d, d_v); }
  Arg weights(Range points) const { return columns(points, d + d_v, 1); }
};

/// The weights W by which the points stand for all keys of the block: its leading columns lie where the values of the
/// points will be, the others in W. `lengths` has the longest query and key so far, or nothing.
template <class M>
void choose_points(M& m, const ForwardOperands& x, const CoresetBlock& b, index_t j, Range J,
                   const WeightedKeys& coreset, Range points, const Tile<M>& W, const Arg& lengths) {
  const Sizes& s = x.shape;
  const Coreset& method = std::get<Coreset>(method_of(s));
  const Arg keys = coreset.keys(points), beside = coreset.columns(points, s.d, b.beside(s));
  const index_t fresh = b.points - b.before;  // of the keys that arrive, as many lie among the points
  m.load_into(keys.rows({b.before, b.points}), x.K.rows(J.begin, fresh));
  const auto rest = m.load(x.K.rows(J.begin + fresh, b.keys - fresh));
  const auto residual = m.alloc(SlowArray::S, {b.all(), 1}), places = m.alloc(SlowArray::S, {b.points, 1});
  const auto mean = m.alloc(SlowArray::K, {1, s.d}), longest = m.alloc(SlowArray::den, {1, 1});
  m.compute(kernel::Zero{}, mean);
  m.compute(kernel::AddUpRows{}, mean, keys);
  m.compute(kernel::AddUpRows{}, mean, rest);
  m.compute(kernel::Scale{1 / static_cast<double>(b.all())}, mean);
  if (method.balanced) {
    m.compute(kernel::LongestRow{}, lengths.rows({1, 2}), keys);
    m.compute(kernel::LongestRow{}, lengths.rows({1, 2}), rest);
  }
  m.compute(kernel::PivotedCholesky{x.scale, j, method.seed}, beside, W, residual, places, longest, keys, rest, mean,
            lengths);
  m.compute(kernel::InterpolationWeights{x.scale}, beside, W, places, keys, rest, mean, lengths);
}

/// Values and weights of the points: of the points before, and of the keys J.
template <class M>
void add_up_points(M& m, const ForwardOperands& x, const CoresetBlock& b, Range J, const WeightedKeys& coreset,
                   Range points, const Tile<M>& W, const Tile<M>& bounds) {
  const index_t beside = b.beside(x.shape);
  const Arg values = coreset.values(points), weights = coreset.weights(points);
  const auto leading = m.alloc(SlowArray::S, {b.points, beside}), column = m.alloc(SlowArray::S, {b.before, 1});
  m.compute(kernel::Copy{}, leading, coreset.columns(points, x.shape.d, beside));
  m.compute(kernel::Zero{}, values.rows({b.before, b.points}));
  m.compute(kernel::Zero{}, weights.rows({b.before, b.points}));
  if (b.before > 0) {
    m.compute(kernel::MultiplyFromLeft{}, values, column, W.cols(b.before));
    m.compute(kernel::MultiplyFromLeft{}, weights, column, W.cols(b.before));
  }
  const auto add = [&](const Arg& some, index_t first) {
    if (some.shape().words() == 0) return;
    m.compute(kernel::AddRowSums{}, weights, some);
    m.compute(kernel::AddValues{}, values, bounds, some, m.stream(x.V.rows(J.begin + first, some.shape().cols)));
  };
  add(leading.arg(), 0);
  add(W.cols(b.before, W.shape().cols - b.before), beside);
}

/// The longest query and the longest key so far, where tau is balanced.
template <class M>
struct LongestRows {
  LongestRows(M& m, const ForwardOperands& x)
      : lengths(m.alloc(SlowArray::den, {std::get<Coreset>(method_of(x.shape)).balanced ? 2 : 0, 1})) {
    m.compute(kernel::Zero{}, lengths);
    if (lengths.shape().rows > 0) m.compute(kernel::LongestRow{}, lengths.rows(0, 1), m.stream(x.Q.all()));
  }
  const Arg& arg() const { return lengths.arg(); }
  Tile<M> lengths;
};

/// Block j leaves its points here in the coreset.
template <class M>
void points_of_block(M& m, const ForwardOperands& x, const CoresetBlocks& blocks, index_t j,
                     const WeightedKeys& coreset, Range points, const Arg& lengths, const Tile<M>& bounds) {
  const CoresetBlock b = blocks(j);
  const Range J = blocks.keys(j);
  const auto W = m.alloc(SlowArray::S, {b.points, b.all() - b.beside(x.shape)});
  choose_points(m, x, b, j, J, coreset, points, W, lengths);
  add_up_points(m, x, b, J, coreset, points, W, bounds);
}

/// What a block has resident beside the coreset: while points are chosen, and while values are added up.
inline std::array<Phase, 2> phases_of_block(const Sizes& x, const CoresetBlock& b) {
  using A = SlowArray;
  const index_t beside = b.beside(x), fresh = b.points - b.before;
  const Words W = x.tile(A::S, b.points, b.all() - beside), rest = x.tile(A::K, b.keys - fresh, x.d);
  return {Phase{W + rest + x.tile(A::S, b.all(), 1) + x.tile(A::S, b.points, 1) + x.tile(A::K, 1, x.d) +
                    x.tile(A::den, 1, 1),
                rest},
          Phase{W + x.tile(A::S, b.points, beside) + x.tile(A::S, b.before, 1) + x.word(A::V), x.word(A::V)}};
}

}  // namespace redblue::schedule
