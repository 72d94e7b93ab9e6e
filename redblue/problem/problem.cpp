#include "redblue/problem/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/masks/pattern.hpp"
#include "redblue/problem/options.hpp"

namespace redblue {

void option::throw_not_allowed(std::string_view name, index_t value, const Allowed& allowed) {
  throw_not_allowed(name, Words(value), allowed);
}
void option::throw_not_allowed(std::string_view name, Words value, const Allowed& allowed) {
  throw InvalidProblem(fmt::format("{} = {}{}", name, value.str(), allowed.wrong));
}
void option::throw_not_allowed(std::string_view name, double value, const Allowed& allowed) {
  throw InvalidProblem(fmt::format("{} = {}{}", name, value, allowed.wrong));
}

void option::throw_not_served(std::string_view name, std::string_view flag, Operation op,
                              bool (*serves)(const OperationFacts&)) {
  std::vector<std::string_view> by;
  for (const OperationFacts& o : kOperations)
    if (serves(o)) by.push_back(o.name);
  throw InvalidProblem(fmt::format("{}{}{}{} is for operation {}, not for operation {}: leave it out", name,
                                   flag.empty() ? "" : " (", flag, flag.empty() ? "" : ")", fmt::join(by, ", "),
                                   name_of(op)));
}

void Problem::require_heeded() const { option::require_served(problem_options(), *this, op, false); }

void Problem::validate() const {
  option::require_allowed(problem_options(), *this);
  option::require_served(problem_options(), *this, op, true);
  if (heads % kv_heads.value_or(heads) != 0)
    throw InvalidProblem(fmt::format(
        "heads = {} is not a multiple of kv_heads = {}: each key-value head serves the same number of query heads",
        heads, *kv_heads));
  const auto require_product = [](const char* what, index_t a, index_t b) {
    index_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kLargestSize)
      throw InvalidProblem(fmt::format("{} = {} x {} is too large: at most 2^48", what, a, b));
  };
  require_product("batch x kv_heads", batch, kv_heads.value_or(heads));
  require_product("n_q x heads / kv_heads", n_q, group());
  if (prefix < 0 || prefix > n_k)
    throw InvalidProblem(fmt::format("prefix = {} keys of n_k = {}: give a number from 0 to n_k", prefix, n_k));
  if (prefix > 0 && !causal && !window_right)
    throw InvalidProblem(fmt::format(
        "prefix = {} keys are seen by all, and no mask ends before them: set causal or window_right too", prefix));
  require_sequences();
  require_patterns();
  require_order();
  require_dilation();
  require_modifiers();
  require_lse_gradient();
  if (op == Operation::second && score != Score::softmax)
    throw InvalidProblem(fmt::format("score {}: operation second is for the softmax; ask for that", name_of(score)));
  require_approximation();
  require_accumulate();
  if (is_projected(op)) {
    if (kv_heads && *kv_heads != heads)
      throw InvalidProblem(
          fmt::format("kv_heads = {}: with operation {} every head has its own A2 and A3, so kv_heads = heads = {}",
                      *kv_heads, name_of(op), heads));
    if (sources == Sources::self && n_q != n_k)
      throw InvalidProblem(
          fmt::format("n_q = {} and n_k = {}: self-attention has A1 = A2 = A3, so n_q = n_k", n_q, n_k));
    if (op == Operation::backward_w) {
      if (!kSizes.has(d_in)) option::throw_not_allowed("d_in (columns of A1, A2, A3; --d-in)", d_in, kSizes);
      if (!forward_given && score == Score::softmax)
        throw InvalidProblem(
            "operation backward-w needs O and lse: run operation forward on Q = A1 WQ, K = A2 WK, V = A3 WV first");
    }
  } else if (sources != Sources::distinct) {
    throw InvalidProblem(
        fmt::format("sources = {}: operation {} has no A1, A2, A3; use distinct", name_of(sources), name_of(op)));
  }
}

namespace {

/// Cumulative lengths of n queries or keys.
void require_cumulative(std::string_view name, const std::vector<index_t>& ends, index_t n) {
  if (ends.empty()) return;
  if (ends.size() < 2)
    throw InvalidProblem(fmt::format("{} = {}: give cumulative lengths, 0 first: 0,5,9 for lengths 5 and 4", name,
                                     fmt::join(ends, ",")));
  if (ends.front() != 0)
    throw InvalidProblem(fmt::format("{} begins with {}: cumulative lengths begin with 0", name, ends.front()));
  for (std::size_t s = 1; s < ends.size(); ++s)
    if (ends[s] < ends[s - 1])
      throw InvalidProblem(fmt::format("{} falls from {} to {} at sequence {}: cumulative lengths never fall", name,
                                       ends[s - 1], ends[s], s - 1));
  if (ends.back() != n)
    throw InvalidProblem(fmt::format(
        "{} ends with {}, and there are {} {}: the lengths of all sequences must add up to that ({}){}", name,
        ends.back(), n, name.back() == 'q' ? "queries" : "keys",
        name.back() == 'q' ? "the program's --seqlens"
                           : "the program's --seqlens-k, or --seqlens where it stands alone",
        ends[1] == 0 && n > 0 && ends.back() - ends[ends.size() - 2] == n ? "; these lengths look cumulative" : ""));
}

/// Used lengths of `batch` batches of n queries or keys, or of the packed sequences that end there.
void require_used(std::string_view name, const std::vector<index_t>& used, index_t batch, index_t n,
                  const std::vector<index_t>& ends) {
  if (used.empty()) return;
  const std::size_t lengths = ends.empty() ? static_cast<std::size_t>(batch) : ends.size() - 1;
  if (used.size() != lengths)
    throw InvalidProblem(
        fmt::format("{} has {} lengths for {}: give one for each", name, used.size(),
                    ends.empty() ? fmt::format("a batch of {}", batch) : fmt::format("{} packed sequences", lengths)));
  for (std::size_t s = 0; s < lengths; ++s)
    if (const index_t most = ends.empty() ? n : ends[s + 1] - ends[s]; used[s] < 0 || used[s] > most)
      throw InvalidProblem(fmt::format("{}[{}] = {}: give a length from 0 to {}", name, s, used[s], most));
}

}  // namespace

void Problem::require_sequences() const {
  if (!several()) return;
  const bool packed = !cu_seqlens_q.empty() || !cu_seqlens_k.empty();
  require_cumulative("cu_seqlens_q", cu_seqlens_q, n_q);
  require_cumulative("cu_seqlens_k", cu_seqlens_k, n_k);
  if (packed && (cu_seqlens_q.empty() || cu_seqlens_k.empty()) && n_q != n_k)
    throw InvalidProblem(
        fmt::format("{} alone serves queries and keys where n_q = n_k; here n_q = {} and n_k = {}: "
                    "give {}, too",
                    cu_seqlens_q.empty() ? "cu_seqlens_k" : "cu_seqlens_q", n_q, n_k,
                    cu_seqlens_q.empty() ? "cu_seqlens_q" : "cu_seqlens_k"));
  if (packed && !cu_seqlens_q.empty() && !cu_seqlens_k.empty() && cu_seqlens_q.size() != cu_seqlens_k.size())
    throw InvalidProblem(
        fmt::format("cu_seqlens_q has {} sequences and cu_seqlens_k {}: give as many of both (the program's --seqlens "
                    "and --seqlens-k)",
                    cu_seqlens_q.size() - 1, cu_seqlens_k.size() - 1));
  require_used("seqused_q", seqused_q, batch, n_q, cu_seqlens_q.empty() ? cu_seqlens_k : cu_seqlens_q);
  require_used("seqused_k", seqused_k, batch, n_k, cu_seqlens_k.empty() ? cu_seqlens_q : cu_seqlens_k);
}

void Problem::require_patterns() const {
  if (patterns.empty()) return;
  const auto given = static_cast<index_t>(patterns.size());
  if (given != 1 && given != heads && given != batch * heads)
    throw InvalidProblem(
        fmt::format("{} patterns for batch {} and {} heads: give 1 for all, {} (one for each head) or {} (one for each "
                    "head of each "
                    "batch)",
                    given, batch, heads, heads, batch * heads));
  for (std::size_t k = 0; k < patterns.size(); ++k) {
    if (patterns[k].size() != n_q)
      throw InvalidProblem(
          fmt::format("pattern {} is of {} queries and the problem has n_q = {}", k, patterns[k].size(), n_q));
    patterns[k].for_groups([&](Range rows, std::span<const Range> runs) {
      if (!runs.empty() && (runs.front().begin < 0 || runs.back().end > n_k))
        throw InvalidProblem(fmt::format("pattern {}: query {} sees keys {} to {}, and there are {} keys", k,
                                         rows.begin, runs.front().begin, runs.back().end - 1, n_k));
    });
  }
}

void Problem::take_order(std::optional<PatternOrder> asked) {
  if (asked && *asked != PatternOrder::natural && patterns.empty())
    throw InvalidProblem(fmt::format(
        "order {}: it is the order of a pattern's queries and keys, and there is no pattern; give one, or no order",
        name_of(*asked)));
  order = asked.value_or(PatternOrder::natural);
}

void Problem::require_order() const {
  if (patterns.empty() || !is_searched(order)) return;  // nothing to take in an order, or nothing moves
  const auto refuse = [&](bool wrong, std::string_view why) {
    if (wrong) throw InvalidProblem(fmt::format("order {}: {}", name_of(order), why));
  };
  refuse(is_of_pairs(op),
         fmt::format("the matrix of operation {} keeps queries and keys in natural order", name_of(op)));
  refuse(alibi || dropout > 0,
         "with ALiBi or dropout, which depend on the numbers of query and key, these stay in natural order");
  refuse(!may_move(),
         "heads or batches with patterns or lengths of their own share one bias, which would need an order for each; "
         "give a bias for each of them");
}

void Problem::require_dilation() const {
  if (dilation == 1) return;
  const auto refuse = [&](bool wrong, std::string_view what) {
    if (wrong)
      throw InvalidProblem(fmt::format(
          "dilation = {} takes queries and keys in another order, {}; give the window as a pattern in its place",
          dilation, what));
  };
  refuse(alibi || dropout > 0, "and ALiBi and dropout depend on their numbers");
  refuse(is_of_pairs(op), fmt::format("and the matrix of operation {} keeps its own", name_of(op)));
  refuse(!patterns.empty(), "and patterns have their own numbers");
  refuse(method_kind() != MethodKind::exact, "which approximations do not take");
  refuse(!may_move(), "and batches with lengths of their own share one bias");
  const bool own_lengths = !seqused_q.empty() || !seqused_k.empty();
  require_memory_for_lists(n_q, n_k, own_lengths ? batch : 1);
}

void Problem::require_modifiers() const {
  const auto require = [](bool right, const std::string& text) {
    if (!right) throw InvalidProblem(text);
  };
  if (bias) {
    const std::array<index_t, 4> full{batch, heads, n_q, n_k};
    for (std::size_t k = 0; k < 4; ++k)
      require((*bias)[k] == 1 || (*bias)[k] == full[k],
              fmt::format("bias [{}] does not broadcast to [{}] (batch, heads, n_q, n_k): each size must be that, or 1",
                          fmt::join(*bias, ", "), fmt::join(full, ", ")));
  }
  if (dropout_from) {
    const auto [head, of_heads, query, key] = *dropout_from;
    require(dropout > 0, "dropout_from is for dropout: give that, too");
    require(head >= 0 && 1 <= of_heads && of_heads <= kLargestSize && heads <= of_heads - head,
            fmt::format("dropout_from: {} heads from head {} on are no part of {}", heads, head, of_heads));
    for (const auto& [what, first] : {std::pair{"query", query}, {"key", key}})
      require(0 <= first && first <= kLargestSize,
              fmt::format("dropout_from: {} {} is out of range: give 0 to 2^48", what, first));
  }
  const Modifiers m = modifiers();
  if (!m.any()) {
    require(!bias_gradient, "bias_gradient: the problem has no bias");
    require(!bias_direction, "bias_direction: the problem has no bias");
    require(!sinks_gradient, "sinks_gradient: the problem has no sinks");
    require(!sinks_direction, "sinks_direction: the problem has no sinks");
    return;
  }
  require(!is_projected(op), fmt::format("operation {} knows no bias, softcap, ALiBi, sinks or dropout: they are for "
                                         "operations on Q, K and V",
                                         name_of(op)));
  require(score == Score::softmax || (softcap == 0 && !sinks && dropout == 0),
          fmt::format("score {}: softcap, sinks and dropout are for the softmax; a bias and ALiBi go with any score",
                      name_of(score)));
  const bool backward = op == Operation::backward;
  require(
      !bias_gradient || (backward && bias),
      fmt::format(
          "bias_gradient is for operation backward with a bias{}",
          op == Operation::second ? "; operation second forms that of a bias that moves: give bias_direction" : ""));
  require(!bias_direction || (has_directions(op) && bias),
          "bias_direction is for operations tangent and second with a bias");
  require(!sinks_gradient || (backward && sinks), "sinks_gradient is for operation backward with sinks");
  require(!sinks_direction || (has_directions(op) && sinks),
          "sinks_direction is for operations tangent and second with sinks");
  require(!m.bias_gradient || scale_or_default() != 0,
          bias_direction
              ? "bias_direction: with scale = 0 the gradient of the bias cannot be formed, for it is made of that of "
                "scores times scale; give another scale"
              : "bias_gradient: with scale = 0 it cannot be formed, for it is made of the gradient times scale; give "
                "another scale");
}

void Problem::require_lse_gradient() const {
  if (!lse_gradient) return;
  if (op != Operation::backward && op != Operation::second)
    throw InvalidProblem(fmt::format(
        "lse_gradient is for operations backward and second, not for operation {}: leave it out", name_of(op)));
  if (!has_statistics())
    throw InvalidProblem(
        fmt::format("lse_gradient: {} has no lse, and so no gradient of it; ask for the exact softmax",
                    score == Score::softmax ? "an approximation" : fmt::format("score {}", name_of(score))));
}

void Problem::require_approximation() const {
  if (approximation != nullptr) approximation->require_sound(*this);
}

void Problem::approximate(std::string_view text) { approximation = approximation_from(text); }

std::string Problem::approximate_text() const {
  return approximation == nullptr ? std::string() : approximation->text(n_k);
}

void Problem::require_offset_of_part(bool something_counts) const {
  if (something_counts && !causal_offset)
    throw InvalidProblem(
        "causal_offset (Python's alignment, the program's --causal-offset): for a part of the keys give a number, "
        "n_k - n_q - s for the part that begins at key s of n_k: query i sees the keys j <= i + causal_offset of this "
        "part");
}

void Problem::require_accumulate() const {
  if (accumulate || op == Operation::merge) require_part();
}

void Problem::require_part() const {
  const bool merges = op == Operation::merge;
  const auto require = [&](bool right, std::string_view what) {
    if (!right) throw InvalidProblem(fmt::format("{}: {}", merges ? "operation merge" : "accumulate", what));
  };
  require(merges || op == Operation::forward || op == Operation::backward,
          fmt::format("operation {} does not add to given outputs; forward and backward do", name_of(op)));
  require(method_kind() == MethodKind::exact, "it is for exact attention, not for approximations");
  require(forward_given, "a part of the keys needs the o and lse of all keys; give both");
  require(!sinks,
          "a sink is one more key, which belongs to one part: leave sinks out, and merge the state o = 0, lse = "
          "sink");
  require(dropout == 0 || dropout_from,
          "dropout depends on the number of a key among all keys, which a part does not know; a Problem of C++ says it "
          "in dropout_from");
  require(!bias_gradient, "dBias has its own columns for each part and is not added to; leave bias_gradient out");
  if (!merges) return require_offset_of_part(counts_from_offset());
  require(score == Score::softmax, fmt::format("score {} has no lse; its outputs are added", name_of(score)));
  require(!modifiers().any() && !masked() && !several() && patterns.empty(),
          "two states meet row by row; it knows no mask, no sequences and no modifiers");
  require(kv_heads.value_or(heads) == heads,
          fmt::format("kv_heads = {}: it has no keys, so kv_heads = heads = {}", kv_heads.value_or(heads), heads));
  require(
      n_k == 1 && d == 1,
      fmt::format("n_k = {} and d = {}: it has no keys, and queries without features; leave them out (1 and 1), and "
                  "give n_q and d_v",
                  n_k, d));
}

Modifiers Problem::modifiers() const {
  Modifiers m;
  m.softcap = softcap;
  m.kv_heads = kv_heads.value_or(heads);
  if (bias) {
    const bool shared_by_group = group() == 1 || (*bias)[1] == 1;
    m.bias = (*bias)[2] == 1 && shared_by_group ? Modifiers::Bias::of_keys : Modifiers::Bias::of_pairs;
    if (m.bias == Modifiers::Bias::of_pairs && (*bias)[1] == 1) m.bias_copies *= group();
    if (m.bias == Modifiers::Bias::of_pairs && (*bias)[2] == 1) m.bias_copies *= n_q;
    if ((*bias)[3] == 1) m.bias_copies *= n_k;
    m.bias_over_positions = (*bias)[2] == 1 && n_q > 1;
    m.bias_over_group = (*bias)[1] == 1 && group() > 1;
    m.bias_over_keys = (*bias)[3] == 1 && n_k > 1;
    m.bias_gradient_of_rows = bias_gradient && m.bias_over_keys && score == Score::softmax;
    m.bias_moves = bias_direction;
    m.bias_gradient = (bias_gradient && !m.bias_gradient_of_rows) || (bias_direction && op == Operation::second);
    m.bias_over_batches = (*bias)[0] == 1 && batch > 1;
    m.bias_over_heads = (*bias)[1] == 1 && m.kv_heads > 1;
  }
  m.slopes = alibi;
  m.slope_offset = causal_offset.value_or(n_k - n_q);
  m.sinks_move = sinks_direction;
  m.sinks_gradient = sinks_gradient || (sinks_direction && op == Operation::second);
  if (!is_of_pairs(op)) {  // a sink acts through lse, and dropout on what becomes of the weights
    m.sinks = sinks;
    m.dropout = dropout;
  }
  m.seed = static_cast<std::uint64_t>(seed);
  if (m.dropout > 0 && dropout_from) {
    const auto [head, of_heads, query, key] = *dropout_from;
    m.drop_head = head;
    m.drop_other_heads = of_heads - heads;
    m.drop_row = query;
    m.drop_col = key;
  }
  return m;
}

double Problem::scale_or_default() const {
  const bool papers = is_projected(op) && op != Operation::backward_w;  // any factor is part of X
  return scale.value_or(papers ? 1 : 1 / std::sqrt(static_cast<double>(d)));
}

/// The mask of queries of which the first stands at key `offset`; the first `shown` keys are the prefix.
Mask Problem::mask_of(index_t keys, index_t offset, index_t shown) const {
  Mask m;
  m.group = group();
  if (window_left) m.lo = offset - *window_left;
  if (window_right) m.hi = offset + *window_right + 1;
  if (causal) m.hi = std::min(m.hi, offset + 1);
  m.prefix = std::min(shown, keys);
  return m;
}

Mask Problem::mask() const {
  const Mask m = mask_of(n_k, causal_offset.value_or(n_k - n_q), prefix);
  return part_of({m, n_q * m.group, n_k}, {0, n_q * m.group}, {0, n_k}).mask;  // an edge that hides nothing goes
}

Sizes Problem::sizes() const {
  Sizes s;
  s.n_q = n_q * group();
  s.n_k = n_k;
  s.d = d;
  s.d_v = d_v;
  s.mask = mask();
  s.sequences = sequences(s.mask);
  s.score = score;
  s.approximation = approximation == nullptr ? nullptr : approximation->fitted(n_k);
  if (s.approximation == nullptr) s.approximation = approximation;
  s.accumulate = accumulate || op == Operation::merge;
  s.lse_gradient = lse_gradient;
  s.lse_required = (lse_required || s.accumulate) && s.statistics() > 0;
  s.d_in = d_in;
  s.modifiers = modifiers();
  return s;
}

bool Problem::forward_first() const { return follows_forward(op) && !forward_given && has_statistics(); }

namespace {

/// The operation whose O and lse this one follows.
Operation followed_by(Operation op) {
  switch (op) {
    case Operation::backward:
    case Operation::tangent:
    case Operation::second:
      return Operation::forward;
    case Operation::gradient_x:
    case Operation::backward_x:
    case Operation::backward_w:  // validate() refuses it where O and lse are not given
      return Operation::forward_x;
    case Operation::forward:
    case Operation::forward_x:
    case Operation::scores:
    case Operation::weights:
    case Operation::merge:
      break;
  }
  throw std::logic_error("an operation that follows no forward pass");
}

}  // namespace

Problem Problem::forward() const {
  Problem p = *this;
  p.op = followed_by(op);
  p.lse_required = true;
  p.forward_given = true;
  p.bias_gradient = p.bias_direction = p.sinks_gradient = p.sinks_direction = false;
  p.lse_gradient = p.accumulate = false;
  p.scale = scale_or_default();
  return p;
}

}  // namespace redblue
