#include "redblue/planner/classes.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "redblue/problem/sequences.hpp"

namespace redblue {

namespace {

/// Problems with kMoreHeads times as many heads are a class of their own, up to kManyHeads: it takes time to copy what
/// caches do not hold.
constexpr index_t kMoreHeads = 4, kManyHeads = 256;

/// The shortest and the longest length of the class of n. All lengths up to 32 are classes of their own; those below
/// 256 differ by an eighth at most, longer ones by a half, and from 16,384 on all are alike.
struct Lengths {
  index_t shortest, longest;
};
Lengths lengths_like(index_t n) {
  constexpr index_t kFew = 32, kMany = 256, kAlike = 16'384;
  if (n <= kFew) return {n, n};
  const int kept = n < kMany ? 4 : 2;  // leading binary digits
  const auto m = static_cast<std::uint64_t>(std::min(n, kAlike));
  const int dropped = static_cast<int>(std::bit_width(m)) - kept;
  const auto first = static_cast<index_t>(m >> dropped << dropped);
  return {first, first + (index_t{1} << dropped) - 1};
}

/// How many problems of their own these are, the most queries and the most keys of one.
struct Parts {
  index_t count, n_q, n_k;
};
Parts parts_of(const Problem& problem) {
  Parts parts{problem.instances(), problem.n_q, problem.n_k};
  if (!problem.several()) return parts;
  const std::shared_ptr<const Sequences> sequences = problem.sizes().sequences;
  if (sequences == nullptr) return parts;
  parts = {problem.instances() / sequences->batches * std::ssize(sequences->list), 0, 0};
  for (const Sequence& one : sequences->list) {
    parts.n_q = std::max(parts.n_q, one.rows.size() / problem.group());
    parts.n_k = std::max(parts.n_k, one.keys.size());
  }
  return parts;
}

/// Queries and keys of any lengths may begin together.
bool is_top_left(const Problem& problem) { return problem.causal_offset == index_t{0} && !problem.several(); }

/// This problem with other lengths.
Problem with_lengths(const Problem& one, index_t n_q, index_t n_k) {
  Problem other = one;
  other.n_q = n_q;
  other.n_k = n_k;
  if (other.bias) {
    auto& bias = *other.bias;
    if (bias[2] != 1) bias[2] = n_q;
    if (bias[3] != 1) bias[3] = n_k;
  }
  return other;
}

/// This problem with a mask in place of all that says who sees whom; nothing where no option of a problem says so.
std::optional<Problem> with_mask(Problem p, const Mask& mask) {
  p.causal = false;
  p.causal_offset = p.window_left = p.window_right = std::nullopt;
  if (mask.prefix != 0) return std::nullopt;
  index_t offset = p.n_k - p.n_q;
  const index_t last = mask.hi - 1;
  if (mask.hi != Mask::kFar && last <= offset) {
    p.causal = true;
    if (last < offset) p.causal_offset = last;
    offset = last;
  } else if (mask.hi != Mask::kFar) {
    p.window_right = last - offset;
  }
  if (mask.lo != -Mask::kFar && mask.lo > offset) return std::nullopt;
  if (mask.lo != -Mask::kFar) p.window_left = offset - mask.lo;
  return p;
}

/// This problem with masks in place of its patterns, where these make masks: of several sequences, as many problems
/// like the one that has the most queries times keys. There is none where a list says who sees whom, or where queries
/// or keys are moved, which takes a time of its own.
std::optional<Problem> with_masks(const Problem& problem) {
  const Sizes x = problem.sizes();
  if (x.sequences != nullptr && x.sequences->reordered()) return std::nullopt;
  Problem plain = problem;
  plain.patterns = {};
  plain.order = PatternOrder::natural;
  plain.cu_seqlens_q.clear(), plain.cu_seqlens_k.clear(), plain.seqused_q.clear(), plain.seqused_k.clear();
  plain.prefix = 0;
  if (x.sequences == nullptr) return with_mask(std::move(plain), x.mask);
  const std::vector<Sequence>& list = x.sequences->list;
  const auto is_listed = [](const Sequence& one) { return one.pattern != nullptr || one.intervals != nullptr; };
  if (list.empty() || std::ranges::any_of(list, is_listed)) return std::nullopt;
  plain.batch = 1;
  plain.kv_heads = problem.instances() / x.sequences->batches * std::ssize(list);
  plain.heads = *plain.kv_heads * problem.group();
  const auto pairs = [](const Sequence& one) { return Words(one.rows.size()) * one.keys.size(); };
  const Sequence& most = *std::ranges::max_element(list, {}, pairs);
  plain.n_q = most.rows.size() / problem.group();
  plain.n_k = most.keys.size();
  return with_mask(std::move(plain), most.mask);
}

}  // namespace

std::optional<Problem> class_of(const Problem& problem, int threads) {
  const bool has_classes =
      problem.op == Operation::forward || problem.op == Operation::backward || has_directions(problem.op);
  if (!has_classes || problem.dilation != 1 || problem.approximation != nullptr) return std::nullopt;
  if (!problem.patterns.empty()) {
    const std::optional<Problem> plain = with_masks(problem);
    return plain ? class_of(*plain, threads) : std::nullopt;
  }
  if (problem.prefix != 0 || (problem.moves_diagonal() && !is_top_left(problem))) return std::nullopt;
  const Parts parts = parts_of(problem);
  if (parts.count == 0 || parts.n_q == 0 || parts.n_k == 0) return std::nullopt;
  Problem one = problem;
  one.cu_seqlens_q.clear(), one.cu_seqlens_k.clear(), one.seqused_q.clear(), one.seqused_k.clear();
  index_t kv_heads = std::min(parts.count, index_t{kHeadsOfThread} * threads);
  while (kv_heads * kMoreHeads <= parts.count && kv_heads < kManyHeads) kv_heads *= kMoreHeads;
  one.batch = 1;
  one.kv_heads = kv_heads;
  one.heads = kv_heads * problem.group();
  // Which schedule threads share best depends on the very lengths.
  if (problem.op == Operation::second && has_few_heads(one, threads)) return std::nullopt;
  const Lengths queries = lengths_like(parts.n_q), keys = lengths_like(parts.n_k);
  one.n_q = queries.shortest;
  one.n_k = keys.shortest;
  if (one.n_q == one.n_k && parts.n_q != parts.n_k && problem.masked())  // the diagonal begins, or ends, elsewhere
    (parts.n_q < parts.n_k ? one.n_k : one.n_q) = queries.longest;
  if (!problem.moves_diagonal()) one.causal_offset = std::nullopt;
  one.scale = std::nullopt;
  if (one.softcap > 0) one.softcap = 1;
  if (one.dropout > 0) one.dropout = 0.5;
  if (one.dropout_from) one.dropout_from = {0, one.heads, 0, 0};
  one.seed = 0;
  one.forward_given = true;
  if (one.bias) {
    const std::array<index_t, 4> whole{one.batch, one.heads, one.n_q, one.n_k};
    for (std::size_t i = 0; i < whole.size(); ++i)
      if ((*one.bias)[i] != 1) (*one.bias)[i] = whole[i];
  }
  return one;
}

bool has_few_heads(const Problem& one, int threads) {
  return threads > 1 && one.instances() < index_t{kHeadsOfThread} * threads;
}

std::vector<Problem> others_like(const Problem& one) {
  const index_t n_q = lengths_like(one.n_q).longest, n_k = lengths_like(one.n_k).longest;
  if (n_q == one.n_q && n_k == one.n_k) return {};
  return {with_lengths(one, std::min(one.n_q + 1, n_q), std::min(one.n_k + 1, n_k)), with_lengths(one, n_q, n_k)};
}

Problem kind_of(Problem one, int threads) {
  if (has_few_heads(one, threads)) return one;
  const auto like = [](index_t n) {
    constexpr std::array<index_t, 3> kLengths{32, 192, 1024};
    const auto at = std::ranges::lower_bound(kLengths, n);
    return n <= 4 ? n : at == kLengths.end() ? kLengths.back() : *at;
  };
  one = with_lengths(one, like(one.n_q), like(one.n_k));
  for (std::optional<index_t>* window : {&one.window_left, &one.window_right})
    if (*window && **window > 0) *window = static_cast<index_t>(std::bit_floor(static_cast<std::uint64_t>(**window)));
  return one;
}

}  // namespace redblue
