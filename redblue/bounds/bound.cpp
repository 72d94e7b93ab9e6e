#include "redblue/bounds/bound.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <map>
#include <stdexcept>
#include <utility>

#include "redblue/bounds/backward.hpp"
#include "redblue/bounds/forward.hpp"
#include "redblue/bounds/projected.hpp"
#include "redblue/bounds/rounding.hpp"
#include "redblue/bounds/scores.hpp"
#include "redblue/bounds/second.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::bound {

Need need_of(const AttentionProblem& x) {
  Need sum;
  for (const Sizes& part : sequences_of(x)) {
    const Needed one = needed_of(part.pairs());
    sum.rows += one.rows.size();
    sum.scored_rows += one.scored_rows.size();
    sum.keys += one.keys.size();
    sum.scored_keys += one.scored_keys.size();
    sum.scored_pairs += one.scored_pairs;
  }
  const Words times = x.instances / batches_of(x);
  for (Words* words : {&sum.rows, &sum.scored_rows, &sum.keys, &sum.scored_keys, &sum.scored_pairs})
    *words = times * *words;
  return sum;
}

Words scored_pairs(const AttentionProblem& x) { return need_of(x).scored_pairs; }

long double value(Words N, long double K, Words M) {
  constexpr int kFirst = 8, kLast = 160;
  const long double all = N.to_long_double(), fast = M.to_long_double();
  const long double most = largest_line<kLast - kFirst + 1>([&]<class T>(T, int step) -> Line<T> {
    const T n = static_cast<T>(all), k = static_cast<T>(4 * K), m = static_cast<T>(fast);
    const int t = kFirst + step;
    const T L = std::same_as<T, double> ? std::floor(m * t / 8) : static_cast<T>((M * t / 8).to_long_double());
    const T G = std::max({(m + L) * (m + L) / k, m + L / 2, L * L / k + m, m * m / k + L / 2});
    return {L * n / G - (L - m), L * n / G + L};
  });
  return std::max(0.0L, most);
}

namespace {

std::vector<Bound> without_dropout(Operation op, const AttentionProblem& x) {
  if (x.approximation != nullptr && attends(op)) return x.approximation->bounds(op, x);
  switch (op) {
    case Operation::forward:
      return forward_bounds(x);
    case Operation::backward:
      return backward_bounds(x);
    case Operation::forward_x:
    case Operation::gradient_x:
    case Operation::backward_x:
    case Operation::backward_w:
      return projected_bounds(op, x);
    case Operation::scores:
    case Operation::weights:
      return scores_bounds(op, x);
    case Operation::merge:
      return {merge(x)};
    case Operation::tangent:
      return tangent_bounds(x);
    case Operation::second:
      return second_bounds(x);
  }
  throw std::logic_error("an operation without bounds");
}

/// Each word of a bias that a visible score needs is read once at least, and each word of dBias written once. What a
/// schedule moves beside them is a schedule for the problem without a bias, so this adds to every bound; but see
/// `gradient_is_dS`.
/// A direction in which the bias moves is read, too: each word that the score of a row with two keys needs, for P = 1
/// of a row with one key does not move. What all keys of a query share moves lse only, which double backward may not
/// need.
struct WordsOfBias {
  Words read, gradient;
};
/// The words of a bias that these pairs need in one batch, where instances share it: those of each of its planes.
template <class WordsOfPart>
Words distinct_words_of_bias(const AttentionProblem& x, const WordsOfPart& words_of_part) {
  const Modifiers& m = x.modifiers;
  const index_t heads = std::min(m.kv_heads, x.instances), batches = x.instances / heads;
  const index_t distinct_heads = m.bias_over_heads ? 1 : heads;
  const Words distinct = Words(m.bias_over_batches ? 1 : batches) * distinct_heads;
  const auto seen = [&](index_t batch) {
    Words words;
    for (const Sizes& part : sequences_of(x, batch)) words += words_of_part(part.pairs());
    return words / m.bias_copies;
  };
  // Instances that share a plane of the bias need the words of one of them at least.
  const bool by_head = x.sequences != nullptr && x.sequences->by_head;
  std::map<std::pair<index_t, index_t>, Words> planes;
  for (index_t k = 0; k < batches_of(x); ++k) {
    const auto [batch, head] = by_head ? std::pair(k / heads, k % heads) : std::pair(k, index_t{0});
    Words& most = planes[{m.bias_over_batches ? 0 : batch, m.bias_over_heads ? 0 : head}];
    most = std::max(most, seen(k));
  }
  Words words;
  for (const auto& [plane, most] : planes) words += most;
  if (!by_head) words = words * (batches_of(x) > 1 ? Words(distinct_heads) : distinct);
  return words;
}
WordsOfBias words_of_bias(const AttentionProblem& x) {
  const Modifiers& m = x.modifiers;
  if (m.bias == Modifiers::Bias::none) return {};
  const bool of_pairs = m.bias == Modifiers::Bias::of_pairs;
  Words read = distinct_words_of_bias(
      x, [&](const Pairs& part) { return of_pairs ? visible_pairs(part) : Words(needed_of(part).keys.size()); });
  const bool only_shifts = m.bias_over_keys && m.forms_bias_gradient();
  if (m.bias_moves && !only_shifts)
    read += distinct_words_of_bias(x, [&](const Pairs& part) {
      const Needed need = needed_of(part);
      return of_pairs ? need.scored_pairs : Words(need.scored_keys.size());
    });
  const index_t heads = std::min(m.kv_heads, x.instances), batches = x.instances / heads;
  const Words distinct = Words(m.bias_over_batches ? 1 : batches) * (m.bias_over_heads ? 1 : heads);
  const Words gradient = m.forms_bias_gradient() ? Words(of_pairs ? x.n_q : 1) * x.n_k / m.bias_copies : Words(0);
  return {read, distinct * gradient};
}

/// Does no word of dBias sum over heads or batches? Then it is a word of dS, and a schedule that reads dS again has it
/// in slow memory without another write. So a line that counts writes of pair words counts that write already.
bool gradient_is_dS(const AttentionProblem& x) {
  const Modifiers& m = x.modifiers;
  const index_t heads = std::min(m.kv_heads, x.instances), batches = x.instances / heads;
  return m.bias == Modifiers::Bias::of_pairs && m.bias_copies == 1 && (!m.bias_over_heads || heads == 1) &&
         (!m.bias_over_batches || batches == 1);
}

/// B10 charges writes of unfinished pair words only, the trivial bound none.
bool counts_writes_of_dS(const Bound& b) { return b.name != "trivial" && b.name != "B10"; }

}  // namespace

std::vector<Bound> bounds_of(Operation op, const AttentionProblem& x) {
  std::vector<Bound> list = without_dropout(op, x);
  if (x.accumulate && op != Operation::merge) add_given_outputs(op, x, list);
  const WordsOfBias bias = words_of_bias(x);
  const bool twice = gradient_is_dS(x);
  for (Bound& b : list) b.words += bias.read + (twice && counts_writes_of_dS(b) ? Words(0) : bias.gradient);
  // A schedule with dlse = 0 is one without it, and reads that of each row with a key: dQ of the row depends on it.
  const Words lse_gradients = x.lse_gradient ? need_of(x).rows : Words(0);
  for (Bound& b : list) b.words += lse_gradients;
  if (x.modifiers.dropout > 0)  // a weight that is dropped needs no value
    for (Bound& b : list)
      if (b.name != "trivial") {
        b.holds = false;
        b.condition = "no dropout";
      }
  return list;
}

Bound best(const std::vector<Bound>& bounds) {
  Bound best = bounds.front();
  for (const Bound& b : bounds)
    if (b.holds && b.status == "proved" && b.words > best.words) best = b;
  return best;
}

}  // namespace redblue::bound

namespace redblue {

bound::AttentionProblem bound_problem(const Problem& p, Words M) { return {p.sizes(), p.instances(), M, p.sources}; }

}  // namespace redblue
