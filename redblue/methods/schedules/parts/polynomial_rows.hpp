#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "redblue/kernels/attention.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/methods/kernels/feature_maps.hpp"
#include "redblue/methods/kernels/row_polynomials.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/parts/polynomial_state.hpp"

/// Polynomial attention with a polynomial for each row: the state of all keys but a few, which are kept and have exact
/// weights; rows that read it; and rows that attend to the keys themselves.
namespace redblue::schedule {

/// How many keys have exact weights.
inline index_t exact_keys(const Sizes& s) { return std::min(row_polynomials_of(s)->exact_keys, s.n_k); }

/// What stays while keys enter and rows read: monomials of the keys (of their difference from the mean, if they are
/// centred), the length of the longest of them, and the keys that are kept.
template <class M>
struct RowState {
  RowState(M& m, const Sizes& s, index_t kept)
      : all(all_monomials(s)),
        kept(kept),
        Z(m.alloc(SlowArray::Z, {all.rows, s.d_v})),
        z(m.alloc(SlowArray::Z, {all.rows, 1})),
        longest(m.alloc(SlowArray::den, {1, 1})),
        K(m.alloc(SlowArray::K, {kept, s.d})),
        V(m.alloc(SlowArray::V, {kept, s.d_v})) {
    m.compute(kernel::Zero{}, Z);
    m.compute(kernel::Zero{}, z);
    m.compute(kernel::Zero{}, longest);
  }
  MonomialGroup all;
  index_t kept;
  Tile<M> Z, z, longest, K, V;
};

/// mean <- the mean of the keys, which stream past.
template <class M>
void mean_of_keys(M& m, const ForwardOperands& x, const Tile<M>& mean) {
  const index_t n_k = x.shape.n_k;
  m.compute(kernel::Zero{}, mean);
  for (index_t j = 0; j < n_k; j += kEnough)
    m.compute(kernel::AddUpRows{}, mean, m.stream(x.K.rows(j, std::min(kEnough, n_k - j))));
  m.compute(kernel::Scale{1 / static_cast<double>(n_k)}, mean);
}

/// These keys enter the state.
template <class M>
void add_to_state(M& m, const RowState<M>& state, const Tile<M>& K_j, const Tile<M>& V_j) {
  m.compute(kernel::LongestRow{}, state.longest, K_j);
  const auto stack = m.alloc(SlowArray::den, {state.all.monomials.degree, 1});
  m.compute(kernel::AddMonomials{state.all.monomials}, state.Z, state.z, stack, K_j, V_j, kNoWords);
}

/// These keys, which follow those that are there, less the mean if there is one: the first of all into those that are
/// kept, then bc at a time. A longer one takes the place of the shortest that is kept, and what is left enters the
/// state.
template <class M>
void keys_by_length(M& m, const ForwardOperands& x, const RowState<M>& state, const Tile<M>& mean, Range keys,
                    index_t bc) {
  const auto centre = [&](const auto& rows) {
    if (mean.shape().rows > 0) m.compute(kernel::SubtractFromRows{}, rows, mean);
  };
  const Range first = intersection(keys, {0, state.kept});
  if (first.size() > 0) {
    m.load_into(state.K.rows(first.begin, first.size()), x.K.rows(first));
    m.load_into(state.V.rows(first.begin, first.size()), x.V.rows(first));
    centre(state.K.rows(first.begin, first.size()));
  }
  for (index_t j = std::max(keys.begin, state.kept); j < keys.end; j += bc) {
    const Range J{j, std::min(j + bc, keys.end)};
    const auto K_j = m.load(x.K.rows(J)), V_j = m.load(x.V.rows(J));
    centre(K_j);
    if (state.kept > 0) {
      const auto shortest = m.alloc(SlowArray::den, {2, 1});
      m.compute(kernel::KeepLongest{}, state.K, state.V, K_j, V_j, shortest);
    }
    add_to_state(m, state, K_j, V_j);
  }
}

/// number <- the number of the polynomial of the row Q_i, by its radius or its spread: the last one for what is beyond
/// the range, or one more where such rows are exact. `stack` has a word for each degree.
template <class M, class State, class Row, class Word>
void number_row(M& m, const ForwardOperands& x, const State& state, const Row& Q_i, const Word& number,
                const Tile<M>& stack) {
  const RowPolynomials& fits = *row_polynomials_of(x.shape);
  const index_t most = fits.exact_rows ? fits.steps() : fits.steps() - 1;
  if (fits.by_spread()) {
    kernel::Monomials squares = state.all.monomials;
    squares.weighted = true;
    squares.scale = x.scale;
    squares.c[2] = 1;  // of SUM_j (scale q.k_j)^2
    const auto no_values = m.alloc(SlowArray::O, {1, 0});
    m.compute(kernel::Zero{}, number);
    m.compute(kernel::ApplyMonomials{squares}, no_values, number, stack, Q_i, state.Z.cols(0), state.z);
    m.compute(kernel::SpreadNumber{fits.step(), most}, number, state.z);
  } else {
    m.compute(kernel::RadiusNumber{x.scale, fits.step(), most}, number, Q_i, state.longest);
  }
}

/// The number of the polynomial of the row Q_i, if its radius or its spread is in the range. `number` is a word for it.
template <class M, class Row, class Word>
std::optional<index_t> polynomial_of_row(M& m, const ForwardOperands& x, const RowState<M>& state, const Row& Q_i,
                                         const Word& number, const Tile<M>& stack) {
  number_row(m, x, state, Q_i, number, stack);
  const RowPolynomials& fits = *row_polynomials_of(x.shape);
  const index_t beyond = fits.steps();
  const index_t k = fits.exact_rows ? decide(m, number, beyond) : look_up(m, number, beyond - 1);
  return k == beyond ? std::nullopt : std::optional(k);
}
/// The stack that polynomial_of_row takes.
inline index_t stack_of_numbers(const Sizes& s) {
  return row_polynomials_of(s)->by_spread() ? row_polynomials_of(s)->degree() : 0;
}

/// Row i goes on the list; `number` is a word for it.
template <class M, class Word>
void list_row(M& m, const ForwardOperands& x, index_t i, const Word& number, std::vector<index_t>& listed) {
  m.compute(kernel::SetTo{static_cast<double>(i)}, number);
  m.store(number, x.ids.rows(std::ssize(listed), 1));
  listed.push_back(i);
}

/// The running maximum of a row that takes polynomial k: its unit, or, where the state has none of the row's keys, that
/// of a row that has met none.
template <class M, class Word>
void begin_maximum(M& m, const Sizes& s, index_t k, bool is_empty, const Word& most) {
  if (is_empty)
    m.compute(kernel::MinusInfinity{}, most);
  else
    m.compute(kernel::SetTo{row_polynomials_of(s)->log_unit(k)}, most);
}

/// num, den += polynomial k of the scores of this query, by the state.
template <class M, class Sums, class Sum, class Row>
void read_state(M& m, const ForwardOperands& x, const RowState<M>& state, index_t k, const Sums& num, const Sum& den,
                const Row& Q_i, const Tile<M>& stack) {
  m.compute(kernel::ApplyMonomials{state.all.monomials.times((*row_polynomials_of(x.shape))[k], x.scale)}, num, den,
            stack, Q_i, state.Z, state.z);
}

/// Row i, which sees the keys that are there, by the state, if its radius or spread is in the range; else it goes on
/// the list.
template <class M>
void row_by_state(M& m, const ForwardOperands& x, const RowState<M>& state, index_t i, std::vector<index_t>& listed) {
  const index_t g = state.all.monomials.degree, seen = x.shape.pairs().keys_of({i, i + 1}).end,
                exact = std::min(seen, state.kept);
  const auto Q_i = m.load(x.Q.rows(i, 1)), number = m.alloc(SlowArray::den, {1, 1});
  std::optional<index_t> k;
  {
    const auto stack = m.alloc(SlowArray::den, {stack_of_numbers(x.shape), 1});
    k = polynomial_of_row(m, x, state, Q_i, number, stack);
  }
  if (!k) return list_row(m, x, i, number, listed);
  const auto num = m.alloc(x.O.rows(i, 1)), den = m.alloc(SlowArray::den, {1, 1});
  m.compute(kernel::Zero{}, num);
  m.compute(kernel::Zero{}, den);
  {
    const auto stack = m.alloc(SlowArray::den, {g, 1});
    read_state(m, x, state, *k, num, den, Q_i, stack);
  }
  begin_maximum(m, x.shape, *k, exact == seen, number);
  const auto S = m.alloc(SlowArray::S, {1, std::min(g, state.kept)});
  for (index_t j = 0; j < exact; j += g) {
    const index_t keys = std::min(g, exact - j);
    m.compute(kernel::OnlineAttention{{x.scale}}, S.cols(keys), num, number, den, Q_i, state.K.rows(j, keys),
              state.V.rows(j, keys), kNoWords, kNoWords);
  }
  m.compute(kernel::DivideRows{}, num, den);
  m.store(num, x.O.rows(i, 1));
}

/// All rows by the state, each after the keys that it sees, which enter bc at a time. Under a mask the mean stays for
/// the keys that are yet to come.
template <class M>
void rows_after_keys(M& m, const ForwardOperands& x, const RowState<M>& state, index_t bc,
                     std::vector<index_t>& listed) {
  const Sizes& s = x.shape;
  const auto read = [&](Range I) { row_by_state(m, x, state, I.begin, listed); };
  {
    const auto mean = m.alloc(SlowArray::K, {row_polynomials_of(s)->centred ? 1 : 0, s.d});
    if (row_polynomials_of(s)->centred) mean_of_keys(m, x, mean);
    const auto enter = [&](Range J) { keys_by_length(m, x, state, mean, J, bc); };
    if (!s.mask.full()) return for_queries_after_keys(s, 1, s.n_k, enter, read);
    enter({0, s.n_k});
  }
  for (index_t i = 0; i < s.n_q; ++i) read({i, i + 1});
}

/// Keys per step of listed rows, Br at a time. Under a mask no more than the first of the last Br rows sees: then no
/// choice of rows has longer steps than where all are listed, and the memory that a machine lays aside for these does.
inline index_t exact_step(const Sizes& x, index_t Br, index_t Bc) {
  const index_t first = x.n_q - std::min(Br, x.n_q);
  return std::min(Bc, x.pairs().keys_of({first, first + 1}).end);
}

/// The rows at these places of the list, Br of them or fewer, attend to all keys that they see, Bc at a time, as in
/// flash. Under a mask the list is ascending, so that the keys up to the end of one row's are seen by it and the rows
/// after it.
template <class M>
void exact_rows(M& m, const ForwardOperands& x, Range places, const std::vector<index_t>& listed, index_t Br,
                index_t Bc) {
  const Sizes& s = x.shape;
  const index_t rows = places.size(), step = exact_step(s, Br, Bc);
  const auto ids = m.load(x.ids.rows(places)), Q = m.alloc(SlowArray::Q, {rows, s.d});
  const auto row = [&](index_t r) { return listed[static_cast<std::size_t>(places.begin + r)]; };
  const auto id = [&](index_t r) { return look_up(m, ids.rows(r, 1), row(r)); };
  for (index_t r = 0; r < rows; ++r) m.load_into(Q.rows(r, 1), x.Q.rows(id(r), 1));
  const auto O = m.alloc(SlowArray::O, {rows, s.d_v});
  const auto max = m.alloc(SlowArray::lse, {rows, 1}), sum = m.alloc(SlowArray::lse, {rows, 1});
  const auto S = m.alloc(SlowArray::S, {rows, step});
  m.compute(kernel::SoftmaxInit{}, O, max, sum);
  index_t met = 0;
  for (index_t r = 0; r < rows; ++r) {
    const index_t end = s.pairs().keys_of({row(r), row(r) + 1}).end, left = rows - r;
    for (index_t keys = 0; met < end; met += keys) {
      keys = std::min(step, end - met);
      m.compute(kernel::OnlineAttention{{x.scale}}, S.part({left, keys}, r), O.rows(r, left), max.rows(r, left),
                sum.rows(r, left), Q.rows(r, left), m.stream(x.K.rows(met, keys)), m.stream(x.V.rows(met, keys)),
                kNoWords, kNoWords);
    }
  }
  m.compute(kernel::DivideRows{}, O, sum);
  for (index_t r = 0; r < rows; ++r) m.store(O.rows(r, 1), x.O.rows(id(r), 1));
}

/// What is met as scores: the keys that pass listed rows, Br at a time, and the pairs of those rows, and of all others
/// with the keys that are kept.
struct MetAsScores {
  Words keys, pairs;
  MetAsScores(const Sizes& x, index_t Br, const Decisions& listed) {
    const index_t h = listed.worst, kept = exact_keys(x);
    if (x.mask.full()) {
      keys = c(h, Br) * x.n_k;
      pairs = Words(h) * x.n_k + Words(x.n_q - h) * kept;
      return;
    }
    if (kept > 0) pairs = Pairs{x.mask, x.n_q, kept}.count();
    index_t place = 0;
    listed.for_worst([&](index_t row) {
      const index_t seen = x.pairs().keys_of({row, row + 1}).end;
      if ((h - ++place) % Br == 0) keys += seen;
      pairs += seen - std::min(seen, kept);
    });
  }
};

/// exact_rows, where `h` are listed.
inline Phase phase_of_exact_rows(const Sizes& x, index_t Br, index_t Bc, index_t h) {
  using A = SlowArray;
  const index_t rows = std::min(Br, h);
  const Words passing = std::max(x.word(A::K), x.word(A::V));
  return {x.tile(A::ids, rows, 1) + x.tile(A::Q, rows, x.d) + x.tile(A::O, rows, x.d_v) + 2 * x.tile(A::lse, rows, 1) +
              x.tile(A::S, rows, exact_step(x, Br, Bc)) + passing,
          passing};
}

/// Multiply-adds by which rows find their polynomial.
inline Words macs_of_numbers(const Sizes& x) {
  const RowPolynomials& fits = *row_polynomials_of(x);
  return fits.by_spread() ? Words(x.n_q) * monomials(x.d, fits.degree()) : Words(0);
}

/// The phases, where `h` rows are listed.
inline std::vector<Phase> phases_of_rows(const Sizes& x, index_t Br, index_t Bc, index_t bc, index_t h) {
  using A = SlowArray;
  const RowPolynomials& fits = *row_polynomials_of(x);
  const index_t kept = exact_keys(x), at_first = x.pairs().keys_of({0, 1}).end - kept, g = fits.degree();
  const index_t entering = std::min(bc, std::max(at_first, std::min<index_t>(1, x.n_k - kept)));  // then one at a time
  const Words r = monomials(x.d, g), word = x.tile(A::den, 1, 1), stack = x.tile(A::den, g, 1);
  const Words state =
      x.tile(A::Z, r, x.d_v) + x.tile(A::Z, r, 1) + word + x.tile(A::K, kept, x.d) + x.tile(A::V, kept, x.d_v);
  const Words mean = fits.centred ? x.tile(A::K, 1, x.d) : Words(0);
  const Words keys = x.tile(A::K, entering, x.d) + x.tile(A::V, entering, x.d_v);
  const Words scratch = std::max(kept > 0 ? x.tile(A::den, 2, 1) : Words(0), stack), query = x.tile(A::Q, 1, x.d);
  std::vector<Phase> phases;
  phases.reserve(4);
  if (fits.centred) phases.push_back({state + mean + x.word(A::K), x.word(A::K)});
  phases.push_back({state + mean + keys + (entering > 0 ? scratch : Words(0)), keys});
  const Words sums = x.tile(A::O, 1, x.d_v) + word + std::max(stack, x.tile(A::S, 1, std::min(g, kept)));
  const Words numbering = x.tile(A::den, stack_of_numbers(x), 1);
  const Words left = x.mask.full() ? Words(0) : mean;  // keys are yet to come
  phases.push_back({state + left + query + word + (h < x.n_q ? sums : numbering), query});
  if (h > 0) phases.push_back(phase_of_exact_rows(x, Br, Bc, h));
  return phases;
}

}  // namespace redblue::schedule
