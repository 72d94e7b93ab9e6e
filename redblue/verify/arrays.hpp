#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "redblue/machines/ram/storage.hpp"
#include "redblue/schedules/parts/modifiers.hpp"
#include "redblue/schedules/schedule.hpp"
#include "redblue/verify/oracle/accumulated.hpp"
#include "redblue/verify/oracle/moving.hpp"
#include "redblue/verify/oracle/moving_magnitudes.hpp"

/// The arrays of one instance of a problem, in slow memory of their own.
namespace redblue::claims {

/// Are the sequences packed sequences, perhaps used in part, all with one mask? If not, they come from a pattern.
inline bool are_sequences(const Sizes& x) {
  const std::vector<Sequence>& list = x.sequences->list;
  if (list.empty()) return false;
  const Mask& first = list.front().mask;
  const bool alike = std::ranges::all_of(list, [&](const Sequence& one) {
    const Mask& m = one.mask;
    const index_t offset = m.hi != Mask::kFar    ? m.hi - 1
                           : m.lo != -Mask::kFar ? m.lo
                                                 : one.keys.size() - one.rows.size() / m.group;
    return one.pattern == nullptr && m.lo == first.lo && m.hi == first.hi && one.slope_offset == offset;
  });
  return alike && list.front().rows.begin == 0 && list.front().keys.begin == 0;
}

/// The problem that has these sizes: one group of heads, at a scale where even exp without a shift stays finite.
inline Problem problem_of(const plan::Schedule& s, const Sizes& x) {
  Problem p;
  p.op = s.operation;
  p.heads = x.mask.group;
  p.kv_heads = 1;
  p.n_q = x.n_q / x.mask.group;
  p.n_k = x.n_k;
  p.d = x.d;
  p.d_v = x.d_v;
  p.d_in = x.d_in;
  Mask mask = x.mask;
  if (x.sequences != nullptr && !are_sequences(x)) {
    std::vector<RunLists> heads(static_cast<std::size_t>(mask.group));
    index_t row = 0;
    const auto up_to = [&](index_t end) {  // see no key
      for (; row < end; ++row) heads[static_cast<std::size_t>(row % mask.group)].append(1, std::span<const Range>());
    };
    for (const Sequence& one : x.sequences->list) {
      up_to(one.rows.begin);
      for (; row < one.rows.end; ++row) {
        std::vector<Range> runs;
        const index_t r = row - one.rows.begin;
        if (one.pattern != nullptr)
          runs.assign(one.pattern->rows().of(r).begin(), one.pattern->rows().of(r).end());
        else
          runs.push_back(one.mask.keys(r, one.keys.size()));
        for (Range& run : runs) run = run.shifted(one.keys.begin);
        heads[static_cast<std::size_t>(row % mask.group)].append(1, runs);
      }
    }
    up_to(x.n_q);
    std::vector<std::shared_ptr<const RunLists>> lists;
    lists.reserve(heads.size());
    for (RunLists& one : heads) lists.push_back(std::make_shared<const RunLists>(std::move(one)));
    p.patterns = std::move(lists);
  } else if (x.sequences != nullptr) {
    const auto& list = x.sequences->list;
    mask = list.front().mask;
    for (const Sequence& one : list) mask.prefix = std::max(mask.prefix, one.mask.prefix);
    for (const Sequence& one : list) {
      p.cu_seqlens_q.push_back(one.rows.begin / mask.group);
      p.cu_seqlens_k.push_back(one.keys.begin);
      p.seqused_q.push_back(one.rows.size() / mask.group);
      p.seqused_k.push_back(one.keys.size());
    }
    p.cu_seqlens_q.push_back(p.n_q);
    p.cu_seqlens_k.push_back(p.n_k);
  }
  const bool left = mask.lo != -Mask::kFar, right = mask.hi != Mask::kFar;
  p.causal = right;
  if (left || right) p.causal_offset = right ? mask.hi - 1 : mask.lo;
  if (left) p.window_left = *p.causal_offset - mask.lo;
  p.prefix = mask.prefix;
  p.scale = is_projected(s.operation) ? 0.15 : 0.7;
  p.score = x.score;
  p.approximation = x.approximation;
  if (p.approximation != nullptr && p.approximation->score_range() > 0) p.scale = 0.05;  // so that scores stay in it
  const Modifiers& m = x.modifiers;
  p.softcap = m.softcap;
  if (m.bias == Modifiers::Bias::of_keys) p.bias = {1, 1, 1, x.n_k};
  if (m.bias == Modifiers::Bias::of_pairs) p.bias = {1, p.heads, p.n_q, m.bias_over_keys ? 1 : x.n_k};
  p.bias_direction = m.bias_moves;
  p.bias_gradient = m.forms_bias_gradient() && !m.bias_moves;
  p.alibi = m.slopes;
  p.sinks = m.sinks;
  p.sinks_direction = m.sinks_move;
  p.sinks_gradient = m.sinks_gradient && !m.sinks_move;
  p.dropout = m.dropout;
  p.seed = static_cast<index_t>(m.seed);
  if (m.dropout > 0) p.dropout_from = {m.drop_head, p.heads + m.drop_other_heads, m.drop_row, m.drop_col};
  p.lse_gradient = x.lse_gradient;
  p.lse_required = x.lse_required;
  p.accumulate = x.accumulate;
  if (s.traits.shared_source) p.sources = Sources::shared;
  return p;
}

template <class T>
struct Arrays {
  Problem problem;
  Sizes sizes;
  std::map<SlowArray, std::vector<T>> words;

  /// Inputs and given outputs N(0, 1), the latter with rows that nothing was added to, then changed by change(arrays);
  /// O and lse as a forward pass leaves them; what was never written is NaN.
  template <class Change>
  Arrays(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t, const Change& change, unsigned seed = 1)
      : problem(problem_of(s, x)), sizes(x) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (const SlowArray a : plan::inputs_of(problem.op))
      for (T& word : fresh(a, shape_of(a).words())) word = static_cast<T>(normal(random));
    for (const SlowArray a : plan::outputs_of(problem.op)) fresh(a, shape_of(a).words());
    if (x.accumulate) fill_given([&] { return static_cast<T>(normal(random)); });
    workspace_ = s.workspace(x, t);
    for (const Workspace& m : workspace_) fresh(m.array, m.words());
    change(*this);
    if (problem.sources != Sources::distinct) words[SlowArray::A3] = words[SlowArray::A2];
    if (x.accumulate)
      for (const SlowArray a : plan::outputs_of(problem.op)) given_[a] = matrix<long double>(a);
    const auto set = [&](SlowArray a, const oracle::Matrix<long double>& m) {
      std::transform(words[a].begin(), words[a].end(), m.words.begin(), words[a].begin(),
                     [](T, long double v) { return static_cast<T>(v); });
    };
    if (problem.op == Operation::weights) set(SlowArray::lse, dense<long double>(false).lse());
    if (!follows_forward(problem.op)) return;
    const auto forward = dense<long double>(false).forward();
    for (const SlowArray a : {SlowArray::O, SlowArray::lse}) set(a, forward.at(a));
  }
  Arrays(const plan::Schedule& s, const Sizes& x, const plan::Tiling& t) : Arrays(s, x, t, [](Arrays&) {}) {}

  machine::SlowMemory slow() {
    machine::SlowMemory m;
    for (auto& [array, w] : words) m[index_of(array)] = machine::Storage::matrix(w.data(), shape_of(array));
    for (const Workspace& w : workspace_) m[index_of(w.array)].row_stride = w.row_stride;
    return m;
  }
  SlowMatrix matrix_of(SlowArray a) const {
    for (const SlowMatrix& m : workspace_)  // under a pattern schedules differ in it
      if (m.array == a) return m;
    return plan::matrix_of(problem.op, sizes, a);
  }
  Shape shape_of(SlowArray a) const { return matrix_of(a).shape; }
  template <class R>
  oracle::Matrix<R> matrix(SlowArray a) const {
    oracle::Matrix<R> m(shape_of(a));
    std::transform(words.at(a).begin(), words.at(a).begin() + static_cast<std::ptrdiff_t>(m.words.size()),
                   m.words.begin(), [](T v) { return static_cast<R>(v); });
    return m;
  }
  /// Plain attention on these inputs; `given`: gradients start from O and lse as they are here.
  template <class R>
  oracle::Dense<R> dense(bool given) const {
    oracle::Matrices<R> in;
    for (const SlowArray a : plan::inputs_of(problem.op))
      if (given || (a != SlowArray::O && a != SlowArray::lse)) in[a] = matrix<R>(a);
    return {problem, std::move(in)};
  }
  /// What the outputs should be, in exact arithmetic as far as long double has it.
  oracle::Matrices<long double> wanted() const { return outputs<long double>(false); }
  /// What plain arithmetic in T makes of it.
  oracle::Matrices<T> naive() const { return outputs<T>(true); }

  /// What roundings of tangents, or of gradients of gradients, are relative to.
  oracle::Matrices<long double> magnitudes() const { return oracle::moved_magnitudes(problem, inputs<long double>()); }

  bool same_bits(const Arrays& other) const {
    return std::all_of(words.begin(), words.end(), [&](const auto& entry) {
      const auto& [array, v] = entry;
      return v.empty() || std::memcmp(v.data(), other.words.at(array).data(), v.size() * sizeof(T)) == 0;
    });
  }

 private:
  template <class R>
  oracle::Matrices<R> inputs() const {
    oracle::Matrices<R> in;
    for (const SlowArray a : plan::inputs_of(problem.op)) in[a] = matrix<R>(a);
    return in;
  }
  template <class R>
  oracle::Matrices<R> outputs(bool given) const {
    if (problem.op == Operation::merge)
      return oracle::accumulated<R>(
          problem.op, given_,
          {{SlowArray::O, matrix<R>(SlowArray::Og)}, {SlowArray::lse, matrix<R>(SlowArray::lse_g)}});
    if (has_directions(problem.op)) return of_shared_bias(oracle::moved(problem, inputs<R>()));
    const oracle::Matrices<R> part = outputs(dense<R>(given));
    return sizes.accumulate ? oracle::accumulated<R>(problem.op, given_, part) : part;
  }
  /// An oracle gives the terms of a dBias, or LBias, that all keys share; here they are added up.
  template <class R>
  oracle::Matrices<R> of_shared_bias(oracle::Matrices<R> all) const {
    const Modifiers& m = sizes.modifiers;
    if (!m.forms_bias_gradient() || !m.bias_over_keys) return all;
    oracle::Matrix<R>& gradient = all.at(schedule::gradient_array_of_bias(m));
    oracle::Matrix<R> sums({gradient.shape.rows, 1});
    for (index_t i = 0; i < gradient.shape.rows; ++i)
      for (index_t j = 0; j < gradient.shape.cols; ++j) sums(i, 0) += gradient(i, j);
    gradient = std::move(sums);
    return all;
  }
  /// The outputs of an oracle.
  template <class R>
  oracle::Matrices<R> outputs(const oracle::Dense<R>& x) const {
    if (!follows_forward(problem.op)) return x.forward();
    return of_shared_bias(x.gradients());
  }
  /// Given outputs. Every fourth row has met no key yet.
  template <class Next>
  void fill_given(const Next& next) {
    for (const SlowArray a : plan::outputs_of(problem.op))
      for (T& word : words[a]) word = next();
    if (!words.contains(SlowArray::lse) || words[SlowArray::lse].empty() || follows_forward(problem.op)) return;
    for (index_t i = 0; i < sizes.n_q; i += 4) {
      words[SlowArray::lse][static_cast<std::size_t>(i)] = kernel::kMinusInf<T>;
      std::fill_n(words[SlowArray::O].begin() + i * sizes.d_v, sizes.d_v, T(0));
    }
  }
  std::vector<T>& fresh(SlowArray a, Words count) {
    auto& v = words[a];
    v.assign(static_cast<std::size_t>(count.to_index()), std::numeric_limits<T>::quiet_NaN());
    return v;
  }

  std::vector<Workspace> workspace_;
  oracle::Matrices<long double> given_;  ///< outputs as they were
};

/// The largest absolute difference; infinity where NaN or infinities disagree.
template <class T, class R>
double largest_gap(const std::vector<T>& a, const std::vector<R>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (static_cast<R>(a[i]) == b[i]) continue;
    const double gap = std::abs(static_cast<double>(static_cast<long double>(a[i]) - static_cast<long double>(b[i])));
    most = std::isfinite(gap) ? std::max(most, gap) : std::numeric_limits<double>::infinity();
  }
  return most;
}
template <class R>
double largest_entry(const oracle::Matrix<R>& m) {
  double most = 0;
  for (const R v : m.words)
    if (std::isfinite(v)) most = std::max(most, static_cast<double>(std::abs(v)));
  return most;
}

}  // namespace redblue::claims
