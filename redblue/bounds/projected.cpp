#include "redblue/bounds/projected.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "redblue/bounds/rounding.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::bound {

namespace {

constexpr std::string_view kGradient = "PA; S, h formed anew at will, any handling of U = p A2, T = A1^T p and g";
constexpr std::string_view kFullRank =
    "n_k >= 2; X, Y without exploitable low rank; distinct arrays but as --sources says";
constexpr std::string_view kCompleteU =
    "PA, every word of U complete before it is multiplied, S not formed anew per visit";
constexpr std::string_view kFormsU = "PA, U = P A formed as such";

/// What an instance needs of queries and keys, over all its sequences.
struct InstanceNeed {
  Words rows, scored_rows, keys, scored_keys;
  Words scored_rows_or_keys, scored_rows_or_scored_keys;  ///< both are rows of one array, which count once
};

/// How many numbers are in a range of one list or of the other; both go up and overlap nowhere.
Words together(const std::vector<Range>& a, const std::vector<Range>& b) {
  Words count;
  for (const auto* list : {&a, &b})
    for (const Range& r : *list) count += r.size();
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    count -= intersection(a[i], b[j]).size();
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return count;
}

InstanceNeed need_of_batch(const AttentionProblem& x, index_t batch) {
  InstanceNeed sum;
  std::vector<Range> scored_rows, keys, scored_keys;
  for (const Sizes& part : sequences_of(x, batch)) {
    const Needed one = needed_of(part.pairs());
    sum.rows += one.rows.size();
    sum.scored_rows += one.scored_rows.size();
    sum.keys += one.keys.size();
    sum.scored_keys += one.scored_keys.size();
    scored_rows.push_back(one.scored_rows.shifted(part.row0));
    keys.push_back(one.keys.shifted(part.key0));
    scored_keys.push_back(one.scored_keys.shifted(part.key0));
  }
  if (has_pattern(x)) {  // which they are is not known
    sum.scored_rows_or_keys = std::max(sum.scored_rows, sum.keys);
    sum.scored_rows_or_scored_keys = std::max(sum.scored_rows, sum.scored_keys);
  } else {
    sum.scored_rows_or_keys = together(scored_rows, keys);
    sum.scored_rows_or_scored_keys = together(scored_rows, scored_keys);
  }
  return sum;
}

/// The needed rows of A1, A2 and A3, with the values of all needed keys, or of the scored ones only. An array that has
/// several roles counts once.
Words source_rows(Sources sources, const InstanceNeed& need, bool all_values) {
  const Words values = all_values ? need.keys : need.scored_keys;
  switch (sources) {
    case Sources::distinct:
      return need.scored_rows + need.scored_keys + values;
    case Sources::shared:
      return need.scored_rows + values;
    case Sources::self:
      return all_values ? need.scored_rows_or_keys : need.scored_rows_or_scored_keys;
  }
  return 0;
}

/// The trivial bound of one instance.
Words trivial_words(Operation op, const AttentionProblem& x, const InstanceNeed& need) {
  const Words d = x.d, d_v = x.d_v, d_in = x.d_in, n = Words(x.n_q) + x.n_k + x.n_k;
  const bool scored = need.scored_rows > 0;
  const Words X = scored ? d * d : Words(0), Y = need.keys > 0 ? d * d_v : Words(0);
  const Words rows = source_rows(x.sources, need, true), A = rows * d;
  switch (op) {
    case Operation::forward_x:
      return A + X + Y + x.n_q * d_v + (x.lse_required ? x.n_q : 0);
    case Operation::gradient_x: {
      const bool scores = x.score != Score::identity;  // else g = scale A1^T (dO h^T) A2, without X
      return source_rows(x.sources, need, false) * d + (scores ? X : Words(0)) + need.scored_rows * d_v +
             (scored ? Y : Words(0)) + d * d;
    }
    case Operation::backward_x:
      return A + X + Y + need.rows * d_v + d * d + d * d_v + n * d;
    case Operation::backward_w: {
      const Words W = (scored ? 2 * d_in * d : Words(0)) + (need.keys > 0 ? d_in * d_v : Words(0));
      return rows * d_in + W + need.rows * d_v + d_in * (2 * d + d_v) + n * d_in;
    }
    case Operation::forward:
    case Operation::backward:
    case Operation::scores:
    case Operation::weights:
    case Operation::merge:
    case Operation::tangent:
    case Operation::second:
      break;
  }
  throw std::logic_error("an operation without A1, A2, A3");
}

/// min(1, c width / sqrt M): the largest price s of a start that g', g* and the shared line allow, apart from s = 1
/// with c := 1.
long double start_price(long double c, long double width, long double M) {
  return std::min(1.0L, c * width / std::sqrt(M));
}

}  // namespace

Bound projected_trivial(Operation op, const AttentionProblem& x) {
  Words words;
  for (index_t batch = 0; batch < batches_of(x); ++batch) words += trivial_words(op, x, need_of_batch(x, batch));
  return {x.instances / batches_of(x) * words, "trivial", kAny, "proved", "none", true};
}

Bound gradient(const AttentionProblem& x) {
  const long double d = static_cast<long double>(x.d), row = d + static_cast<long double>(std::min(x.d, x.d_v));
  const long double K = x.sources == Sources::distinct ? row * row
                        : x.sources == Sources::shared ? d * row
                                                       : d * row / 4;
  const bool holds = x.n_k >= 2;
  const long double words = holds ? value(scored_pairs(x), K, x.M) : 0;
  return {ceil_words(words, words + 20 * x.M.to_long_double()), "g", kGradient, "proved", kFullRank, holds};
}

Bound gradient_prime(const AttentionProblem& x) {
  const bool holds = x.d_v <= x.d && x.n_k >= 2 && x.sources == Sources::distinct;
  const long double width = static_cast<long double>(x.d) + static_cast<long double>(x.d_v);
  // s <= c width / sqrt M, and s = 1 up to sqrt M = 2 width.
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  Words words = start_words(c, start_price(c, width, M), width, N, M, M);
  if (std::sqrt(M) <= 2 * width) words = std::max(words, start_words(1, 1, width, N, M, M));
  return {holds ? words : Words(0), "g'", kGradient, "derived", "d_v <= d; distinct arrays", holds};
}

Bound gradient_star(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::distinct;
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d) + static_cast<long double>(x.d_v);
  const long double rest = M + (Words(x.instances) * x.n_q * x.d).to_long_double();
  Words words = start_words(c, start_price(c, width, M), width, N, M, rest);
  if (std::sqrt(M) <= width) words = std::max(words, start_words(1, 1, width, N, M, rest));
  return {holds ? words : Words(0),
          "g*",
          kCompleteU,
          "restricted",
          "6R, 9R-a, 9R-b, 9R-c, and 9R-d for d_v <= d; distinct arrays",
          holds};
}

Bound shared_source(const AttentionProblem& x) {
  const bool holds = x.n_k >= 2 && x.sources == Sources::shared;
  const long double N = scored_pairs(x).to_long_double(), M = x.M.to_long_double(), c = 1 - 1 / (2 * M);
  const long double width = std::sqrt(2.0L) * static_cast<long double>(x.d);
  const Words words = start_words(c, start_price(c, width, M), width, N, M, M);
  return {holds ? words : Words(0), "shared", kFormsU, "restricted", "A2 = A3", holds};
}

std::vector<Bound> projected_bounds(Operation op, const AttentionProblem& x) {
  std::vector<Bound> list{projected_trivial(op, x)};
  if (x.score == Score::identity) return list;
  if (op == Operation::forward_x) list.push_back(shared_source(x));
  if (op == Operation::backward_x || op == Operation::gradient_x) list.push_back(gradient(x));
  if (op == Operation::gradient_x) list.insert(list.end(), {gradient_prime(x), gradient_star(x)});
  return list;
}

}  // namespace redblue::bound
