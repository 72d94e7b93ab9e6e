#include "redblue/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "redblue/core/documents.hpp"
#include "redblue/core/error.hpp"
#include "redblue/core/physical_memory.hpp"

namespace redblue {

namespace {

constexpr index_t kLargest = index_t{1} << 48;

void require_size(std::string_view name, index_t value) {
  if (value < 1 || value > kLargest)
    throw InvalidProblem(fmt::format("{} = {} is not a size: give a whole number from 1 to 2^48", name, value));
}

}  // namespace

void Problem::validate() const {
  require_size("batch", batch);
  require_size("heads", heads);
  require_size("kv_heads", kv_heads.value_or(heads));
  require_size("n_q", n_q);
  require_size("n_k", n_k);
  require_size("d", d);
  require_size("d_v", d_v);
  if (heads % kv_heads.value_or(heads) != 0)
    throw InvalidProblem(fmt::format(
        "heads = {} is not a multiple of kv_heads = {}: each key-value head serves the same number of query heads",
        heads, *kv_heads));
  const auto require_product = [](const char* what, index_t a, index_t b) {
    index_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kLargest)
      throw InvalidProblem(fmt::format("{} = {} x {} is too large: at most 2^48", what, a, b));
  };
  require_product("batch x kv_heads", batch, kv_heads.value_or(heads));
  require_product("n_q x heads / kv_heads", n_q, group());
  if (causal_offset && (*causal_offset > kLargest || *causal_offset < -kLargest))
    throw InvalidProblem(fmt::format("causal_offset = {} is out of range: at most 2^48 either way", *causal_offset));
  for (const auto& [name, keys] : {std::pair("window_left", window_left), std::pair("window_right", window_right)})
    if (keys && (*keys < 0 || *keys > kLargest))
      throw InvalidProblem(fmt::format(
          "{} = {} is no number of keys: give 0 to 2^48, or leave it out for a window without that edge", name, *keys));
  if (prefix < 0 || prefix > n_k)
    throw InvalidProblem(fmt::format("prefix = {} keys of n_k = {}: give a number from 0 to n_k", prefix, n_k));
  if (prefix > 0 && !causal && !window_right)
    throw InvalidProblem(fmt::format(
        "prefix = {} keys are seen by all, and no mask ends before them: set causal or window_right too", prefix));
  require_sequences();
  require_patterns();
  require_dilation();
  require_modifiers();
  require_approximation();
  require_method();
  if (is_projected(op)) {
    if (kv_heads && *kv_heads != heads)
      throw InvalidProblem(
          fmt::format("kv_heads = {}: with operation {} every head has its own A2 and A3, so kv_heads = heads = {}",
                      *kv_heads, name_of(op), heads));
    if (sources == Sources::self && n_q != n_k)
      throw InvalidProblem(
          fmt::format("n_q = {} and n_k = {}: self-attention has A1 = A2 = A3, so n_q = n_k", n_q, n_k));
    if (op == Operation::backward_w) {
      require_size("d_in (columns of A1, A2, A3; --d-in)", d_in);
      if (!forward_given && score == Score::softmax)
        throw InvalidProblem(
            "operation backward-w needs O and lse: run operation forward on Q = A1 WQ, K = A2 WK, V = A3 WV first");
    }
  } else if (sources != Sources::distinct) {
    throw InvalidProblem(
        fmt::format("sources = {}: operation {} has no A1, A2, A3; use distinct", name_of(sources), name_of(op)));
  }
  if (scale && !std::isfinite(*scale)) throw InvalidProblem(fmt::format("scale = {} is not a finite number", *scale));
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
        name.back() == 'q' ? "--seqlens" : "--seqlens-k, or --seqlens where it stands alone",
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
        fmt::format("cu_seqlens_q (--seqlens) has {} sequences and cu_seqlens_k (--seqlens-k) {}: give as many of "
                    "both",
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

void Problem::require_dilation() const {
  if (dilation == 1) return;
  require_size("dilation", dilation);
  const auto refuse = [&](bool wrong, std::string_view what) {
    if (wrong)
      throw InvalidProblem(fmt::format(
          "dilation = {} takes queries and keys in another order, {}; give the window as a pattern: patterns::window",
          dilation, what));
  };
  refuse(alibi || dropout > 0, "and ALiBi and dropout depend on their numbers");
  refuse(is_of_pairs(op), fmt::format("and the matrix of operation {} keeps its own", name_of(op)));
  refuse(!patterns.empty(), "and patterns have their own numbers");
  refuse(method_kind() != MethodKind::exact, "which approximations do not take");
  refuse(!may_move(), "and batches with lengths of their own share one bias");
}

void Problem::require_modifiers() const {
  const auto require = [](bool right, const std::string& text) {
    if (!right) throw InvalidProblem(text);
  };
  require(softcap >= 0 && std::isfinite(softcap),
          fmt::format("softcap = {} is no limit for scores: give a number above 0, or 0 for none", softcap));
  require(dropout >= 0 && dropout < 1,
          fmt::format("dropout = {} is no share of the weights: give 0 <= share < 1", dropout));
  require(seed >= 0 && seed <= (index_t{1} << 53), fmt::format("seed = {} is out of range: give 0 to 2^53", seed));
  if (bias) {
    const std::array<index_t, 4> full{batch, heads, n_q, n_k};
    for (std::size_t k = 0; k < 4; ++k)
      require((*bias)[k] == 1 || (*bias)[k] == full[k],
              fmt::format("bias [{}] does not broadcast to [{}] (batch, heads, n_q, n_k): each size must be that, or 1",
                          fmt::join(*bias, ", "), fmt::join(full, ", ")));
  }
  const Modifiers m = modifiers();
  if (!m.any()) {
    require(!bias_gradient, "bias_gradient: the problem has no bias");
    require(!sinks_gradient, "sinks_gradient: the problem has no sinks");
    return;
  }
  require(!is_projected(op), fmt::format("operation {} knows no bias, softcap, ALiBi, sinks or dropout: they are for "
                                         "operations on Q, K and V",
                                         name_of(op)));
  require(score == Score::softmax || (softcap == 0 && !sinks && dropout == 0),
          fmt::format("score {}: softcap, sinks and dropout are for the softmax; a bias and ALiBi go with any score",
                      name_of(score)));
  const bool backward = op == Operation::backward;
  require(!bias_gradient || (backward && bias), "bias_gradient is for operation backward with a bias");
  require(!sinks_gradient || (backward && sinks), "sinks_gradient is for operation backward with sinks");
  require(!m.bias_gradient || scale_or_default() != 0,
          "bias_gradient: with scale = 0 it cannot be formed, for it is made of the gradient times scale; give another "
          "scale");
}

void Problem::require_approximation() const {
  if (row_polynomials != nullptr && (approximation == nullptr || op != Operation::forward))
    throw InvalidProblem(
        "row_polynomials: they are for the forward pass, beside an approximation of their degree and range");
  if (row_polynomials != nullptr &&
      (row_polynomials->range() != approximation->range || row_polynomials->degree() != approximation->degree() ||
       row_polynomials->fit != approximation->fit))
    throw InvalidProblem(fmt::format(
        "row_polynomials: {} ones of degree {} up to {}, and the approximation is a {} one of degree {} up to {}",
        name_of(row_polynomials->fit), row_polynomials->degree(), row_polynomials->range(), name_of(approximation->fit),
        approximation->degree(), approximation->range));
  if (approximation == nullptr) return;
  const auto require = [](bool right, const std::string& text) {
    if (!right) throw InvalidProblem("approximation: " + text);
  };
  require(op == Operation::forward || op == Operation::backward,
          fmt::format("there is none of operation {}, only of forward and backward", name_of(op)));
  require(score == Score::softmax, fmt::format("it is for the softmax, not for score {}", name_of(score)));
  require(!modifiers().any(), "it knows no bias, softcap, ALiBi, sinks or dropout");
  if (row_polynomials != nullptr && row_polynomials->cluster > 0 && row_polynomials->cluster >= n_k)
    throw InvalidProblem(
        fmt::format("cluster = {}: with one cluster of all {} keys every pair is exact; give fewer keys, or leave the "
                    "approximation out",
                    row_polynomials->cluster, n_k));
  const bool proved = row_polynomials == nullptr || row_polynomials->proves();
  require(approximation->degree() >= 1 && (approximation->error < 1 || !proved),
          fmt::format("a polynomial of degree {} whose proved relative error is {:.3g}: it must be below 1",
                      approximation->degree(), approximation->error));
}

void Problem::require_method() const {
  if (kind_of(method) == MethodKind::exact) return;
  const auto require = [&](bool right, const std::string& text) {
    if (!right) throw InvalidProblem(fmt::format("method: {}: {}", name_of(kind_of(method)), text));
  };
  require(approximation == nullptr, "there is a polynomial (approximation), too; give one of both");
  require(op == Operation::forward, fmt::format("operation {} has none: it is for forward", name_of(op)));
  require(score == Score::softmax, fmt::format("it is for the softmax, not for score {}", name_of(score)));
  require(!modifiers().any(), "it knows no bias, softcap, ALiBi, sinks or dropout");
  require_sound(fitted(method, n_k), n_q, n_k);
  require(!scale || kind_of(method) != MethodKind::linear_attention,
          fmt::format("scale = {}: its feature map takes q and k as they are, so that a scale would change nothing; "
                      "leave it out, or multiply q by a number of your own",
                      scale.value_or(0)));
  require(scale_or_default() > 0 || kind_of(method) != MethodKind::performer,
          fmt::format("scale = {}: its features are of q and k times sqrt(scale); give a positive one",
                      scale_or_default()));
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
    m.bias_gradient = bias_gradient && !m.bias_gradient_of_rows;
    m.bias_over_batches = (*bias)[0] == 1 && batch > 1;
    m.bias_over_heads = (*bias)[1] == 1 && m.kv_heads > 1;
  }
  m.slopes = alibi;
  m.slope_offset = causal_offset.value_or(n_k - n_q);
  m.sinks_gradient = sinks_gradient;
  if (!is_of_pairs(op)) {  // a sink acts through lse, and dropout on what becomes of the weights
    m.sinks = sinks;
    m.dropout = dropout;
  }
  m.seed = static_cast<std::uint64_t>(seed);
  return m;
}

double Problem::scale_or_default() const {
  const bool papers = is_projected(op) && op != Operation::backward_w;  // any factor is part of X
  return scale.value_or(papers ? 1 : 1 / std::sqrt(static_cast<double>(d)));
}

/// Of queries of which the first stands at key `offset`; the first `shown` keys are the prefix.
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

namespace {

/// Are these lengths, one for each batch, one and the same?
bool one_length(const std::vector<index_t>& used) {
  return std::ranges::adjacent_find(used, std::ranges::not_equal_to()) == used.end();
}

}  // namespace

/// Nothing where the lengths are those of the whole problem. With a dilation each sequence becomes one for each
/// residue.
std::shared_ptr<const Documents> Problem::sequences() const {
  if (!several() && dilation == 1) return nullptr;
  Documents all;
  Order moved;  // of the batch
  const auto add = [&](index_t b, Range queries, Range keys) {
    const index_t offset = causal_offset.value_or(keys.size() - queries.size());
    if (dilation == 1) {
      all.list.push_back(
          {b, {queries.begin * group(), queries.end * group()}, keys, mask_of(keys.size(), offset, prefix), offset});
      return;
    }
    // Keys r, r + dilation, ... of the sequence are seen by the queries that stand at such places.
    for (index_t r = 0; r < std::min(dilation, keys.size()); ++r) {
      const index_t first = ((r - offset) % dilation + dilation) % dilation;
      const auto take = [&](std::vector<index_t>& places, Range part, index_t from) {
        const index_t before = std::ssize(places);
        for (index_t i = part.begin + from; i < part.end; i += dilation) places.push_back(i);
        return Range{before, std::ssize(places)};
      };
      const Range seeing = take(moved.queries, queries, first), seen = take(moved.keys, keys, r);
      if (seeing.size() == 0) continue;
      const index_t stands = (first + offset - r) / dilation,
                    shown = ceil_div(std::max<index_t>(0, prefix - r), dilation);
      all.list.push_back(
          {b, {seeing.begin * group(), seeing.end * group()}, seen, mask_of(seen.size(), stands, shown), stands});
    }
  };
  const auto end_batch = [&] {
    if (dilation == 1) return;
    moved.complete(n_q, n_k);
    all.orders.push_back(std::make_shared<const Order>(std::exchange(moved, {})));
  };
  const auto used = [](const std::vector<index_t>& lengths, std::size_t s, Range whole) -> Range {
    return lengths.empty() ? whole : Range{whole.begin, whole.begin + lengths[s]};
  };
  if (!cu_seqlens_q.empty() || !cu_seqlens_k.empty()) {
    const auto& q = cu_seqlens_q.empty() ? cu_seqlens_k : cu_seqlens_q;
    const auto& k = cu_seqlens_k.empty() ? cu_seqlens_q : cu_seqlens_k;
    for (std::size_t s = 1; s < q.size(); ++s)
      add(0, used(seqused_q, s - 1, {q[s - 1], q[s]}), used(seqused_k, s - 1, {k[s - 1], k[s]}));
    end_batch();
  } else {
    all.batches = one_length(seqused_q) && one_length(seqused_k) ? std::min<index_t>(batch, 1) : batch;
    for (index_t b = 0; b < all.batches; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const Range queries = used(seqused_q, at, {0, n_q}), keys = used(seqused_k, at, {0, n_k});
      if (dilation == 1 && all.batches == 1 && queries == Range{0, n_q} && keys == Range{0, n_k}) return nullptr;
      add(b, queries, keys);
      end_batch();
    }
  }
  return std::make_shared<const Documents>(std::move(all));
}

namespace {

/// The keys that a position sees by the documents of one batch; all without documents.
class Allowed {
 public:
  Allowed(const Documents* documents, index_t batch, const Mask& mask, index_t positions, index_t n_k)
      : mask_(mask), n_k_(n_k), of_position_(documents == nullptr ? 0 : static_cast<std::size_t>(positions)) {
    mask_.group = 1;
    if (documents == nullptr) return;
    for (const Document& one : documents->list) {
      const index_t group = one.mask.group;
      if (documents->batches == 1 || one.batch == batch)
        std::fill(of_position_.begin() + one.rows.begin / group, of_position_.begin() + one.rows.end / group, &one);
    }
    everything_ = false;
  }
  bool everything() const { return everything_ && mask_.full(); }
  Range operator()(index_t position) const {
    if (everything_) return mask_.keys(position, n_k_);
    const Document* one = of_position_[static_cast<std::size_t>(position)];
    if (one == nullptr) return {};
    Mask mask = one->mask;
    mask.group = 1;
    return mask.keys(position - one->rows.begin / one->mask.group, one->keys.size()).shifted(one->keys.begin);
  }

 private:
  Mask mask_;
  index_t n_k_;
  bool everything_ = true;
  std::vector<const Document*> of_position_;
};

}  // namespace

/// The last documents that were made of patterns, by what of the problem they depend on: a planner goes back and forth
/// between orders.
struct Patterns::Made {
  struct Entry {
    Mask whole;
    std::shared_ptr<const Documents> documents;
  };
  std::mutex mutex;
  std::map<std::string, Entry> known;
};

Patterns::Patterns(std::vector<std::shared_ptr<const RunLists>> list)
    : list_(std::move(list)), made_(std::make_shared<Made>()) {}

bool Patterns::alike() const {
  return std::ranges::all_of(list_, [&](const auto& lists) { return lists == list_[0] || *lists == *list_[0]; });
}

bool Patterns::large() const {
  return std::ranges::any_of(list_, [](const auto& lists) { return too_large_to_search(*lists); });
}

/// Where patterns and masks together make one mask, that is `whole`, and there are no documents.
std::shared_ptr<const Documents> Problem::documents(Mask& whole) const {
  if (patterns.empty()) {
    if (!several() && dilation == 1) return nullptr;
    require_sequences();
    require_dilation();
    std::shared_ptr<const Documents> all = sequences();
    if (all == nullptr) return nullptr;
    whole = Mask{.group = group()};
    if (!is_projected(op) || all->batches > 1) return all;
    Documents closed = *all;  // products of A1 and A3 go over all queries and keys of the core
    const std::shared_ptr<const Order> closing = close_gaps(closed.list, n_q, n_k);
    if (dilation == 1)
      closed.orders = {closing};
    else if (closing != nullptr)
      closed.orders = {std::make_shared<const Order>(chained(*closed.orders.front(), *closing))};
    return std::make_shared<const Documents>(std::move(closed));
  }
  const auto text = [](const std::optional<index_t>& x) { return x ? fmt::format("{}", *x) : std::string("-"); };
  std::string from = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", batch, heads, text(kv_heads), n_q,
                                 n_k, causal, text(causal_offset), text(window_left), text(window_right), prefix,
                                 may_reorder() + 2 * (alibi ? 1 : 0) + 4 * (is_projected(op) ? 1 : 0), name_of(order),
                                 fmt::join(cu_seqlens_q, ","), fmt::join(cu_seqlens_k, ","), fmt::join(seqused_q, ","),
                                 fmt::join(seqused_k, ","));
  const std::lock_guard lock(patterns.made_->mutex);
  auto& known = patterns.made_->known;
  auto found = known.find(from);
  if (found == known.end()) {
    if (known.size() >= kPatternOrderNames.size()) known.clear();
    Patterns::Made::Entry made;
    made.documents = documents_of_patterns(made.whole);
    found = known.emplace(std::move(from), std::move(made)).first;
  }
  whole = found->second.whole;
  return found->second.documents;
}

namespace {

/// The index of the patterns of these heads, and its words if they are given by blocks. A pattern that heads share has
/// one index.
template <class OfHead>
std::pair<PatternIndex::Kind, Words> index_of(const OfHead& of_head, index_t heads) {
  std::set<const RunLists*> given;
  for (index_t h = 0; h < heads; ++h) given.insert(&of_head(h));
  auto kind = PatternIndex::Kind::none;
  Words words;
  for (const RunLists* lists : given) {
    kind = std::max(kind, lists->index().kind);
    if (lists->index().kind == PatternIndex::Kind::blocks) words += block_index_words(*lists);
  }
  return {kind, kind == PatternIndex::Kind::blocks ? words : Words(0)};
}

/// Of a part of one of these sequences: it lies inside one, for no query sees a key of two.
index_t slope_offset_in(const Documents& sequences, index_t batch, const Document& part) {
  for (const Document& one : sequences.list)
    if (one.batch == (sequences.batches == 1 ? 0 : batch) && one.rows.begin <= part.rows.begin &&
        part.rows.begin < one.rows.end)
      return one.slope_offset + (part.rows.begin - one.rows.begin) / part.mask.group -
             (part.keys.begin - one.keys.begin);
  return part.slope_offset;
}

}  // namespace

/// ALiBi and dropout depend on the numbers of query and key. A bias is taken in both orders, one for all that share it.
bool Problem::may_move() const {
  if (alibi || dropout > 0 || is_of_pairs(op)) return false;
  if (!bias) return true;
  const Modifiers m = modifiers();
  const bool own = !m.bias_over_batches && !m.bias_over_heads;
  const bool packed = !cu_seqlens_q.empty() || !cu_seqlens_k.empty();  // lengths are then those of all batches
  return own || ((packed || (one_length(seqused_q) && one_length(seqused_k))) && patterns.alike());
}

namespace {

/// Do the heads of each batch have the same?
bool alike_in_batches(const Patterns& patterns, index_t heads) {
  if (static_cast<index_t>(patterns.size()) <= heads) return patterns.alike();
  for (std::size_t k = 0; k < patterns.size(); ++k)
    if (const RunLists &one = patterns[k], &first = patterns[k - k % static_cast<std::size_t>(heads)];
        &one != &first && one != first)
      return false;
  return true;
}

/// The keys that some lists show, numbered anew without the others.
class ShownKeys {
 public:
  explicit ShownKeys(std::vector<Range> shown) : shown_(std::move(shown)) {
    for (const Range& run : shown_) before_.push_back(before_.back() + run.size());
  }
  index_t count() const { return before_.back(); }
  Range operator()(Range keys) const {
    const index_t begin = before(keys.begin);
    return {begin, std::max(begin, before(keys.end))};
  }
  RunLists operator()(const RunLists& lists) const {
    RunLists anew;
    anew.set_index(lists.index());
    std::vector<Range> places;
    lists.for_groups([&](Range part, std::span<const Range> runs) {
      places.clear();
      for (const Range& run : runs) places.push_back((*this)(run));
      anew.append(part.size(), places);
    });
    return anew;
  }
  /// The order of all keys where these are taken in `order`, and the others last.
  Order among_all(const Order& order, index_t positions, index_t n_k) const {
    Order all;
    for (const Range& run : shown_)
      for (index_t j = run.begin; j < run.end; ++j) all.keys.push_back(j);
    all.queries.resize(static_cast<std::size_t>(positions));
    std::iota(all.queries.begin(), all.queries.end(), 0);
    all = chained(all, order);
    all.complete(positions, n_k);
    return all;
  }

 private:
  /// How many of them come before a key.
  index_t before(index_t key) const {
    const auto run = std::ranges::upper_bound(shown_, key, {}, &Range::begin) - shown_.begin();
    if (run == 0) return 0;
    const auto at = static_cast<std::size_t>(run - 1);
    return before_[at] + std::min(key - shown_[at].begin, shown_[at].size());
  }
  std::vector<Range> shown_;
  std::vector<index_t> before_{0};  ///< those before each run, and their number
};

/// The keys that these lists show, where they are to be numbered anew first: rows have very many runs together, and a
/// mask cuts some of them. Where all lists have the same gaps, as those of a mask of keys have, a row then has one run.
std::optional<ShownKeys> shown_keys(const std::vector<const RunLists*>& lists, const Allowed& allowed, index_t n_q,
                                    index_t n_k) {
  constexpr index_t kMany = index_t{1} << 20;
  index_t runs = 0;
  for (index_t p = 0; p < n_q && runs <= kMany; ++p)
    for (const RunLists* list : lists) runs += std::ssize(list->of(p));
  if (runs <= kMany) return std::nullopt;
  const auto is_cut = [&](const RunLists& list, index_t p) {
    const Range keys = allowed(p);
    return std::ranges::count_if(list.of(p), [&](const Range& run) { return intersection(run, keys).size() > 0; }) > 1;
  };
  const auto cut = [&](index_t p) {
    return std::ranges::any_of(lists, [&](const RunLists* list) { return is_cut(*list, p); });
  };
  index_t p = 0;
  while (p < n_q && !cut(p)) ++p;
  if (p == n_q) return std::nullopt;  // each row has one run at most: it may be masks as it is
  std::vector<Range> shown;
  for (const RunLists* list : lists) {
    const std::vector<Range> more = union_of(*list, {0, n_q});
    shown.insert(shown.end(), more.begin(), more.end());
  }
  sort_and_join(shown);
  ShownKeys keys(std::move(shown));
  return keys.count() < n_k ? std::optional(std::move(keys)) : std::nullopt;
}

}  // namespace

std::shared_ptr<const Documents> Problem::documents_of_patterns(Mask& whole) const {
  require_patterns();
  const std::shared_ptr<const Documents> plain = sequences();
  whole = Mask{.group = group()};
  const bool alike = patterns.alike() && (plain == nullptr || plain->batches == 1);
  const bool by_head = !alike_in_batches(patterns, heads);
  const index_t lists = alike ? 1 : by_head ? instances() : batch;
  Documents all{.batches = lists, .by_head = by_head, .list = {}, .orders = {}, .block_index = {}};
  std::vector<PatternIndex> index;
  index.reserve(static_cast<std::size_t>(lists));
  Words held;  // bytes of the lists; what is made of them takes several times as many
  const Mask everywhere = mask_of(n_k, causal_offset.value_or(n_k - n_q), prefix);
  for (index_t k = 0; k < lists; ++k) {
    const index_t batch_now = by_head ? k / kv_heads.value_or(heads) : k;
    const Allowed allowed(plain.get(), batch_now, everywhere, n_q, n_k);
    const auto of_head = [&](index_t h) -> const RunLists& {
      return patterns[static_cast<std::size_t>(by_head ? k * group() + h : k * heads) % patterns.size()];
    };
    const index_t together = by_head ? 1 : group();  // heads of a position that see the same
    const auto [kind, block_words] = index_of(of_head, by_head ? group() : 1);
    index.push_back({.kind = kind});
    all.block_index.push_back(block_words);
    std::vector<const RunLists*> given;  // of each head, or of all
    for (index_t h = 0; h < group(); h += together) given.push_back(&of_head(h));
    // A bias has n_q n_k words to copy: it stays unless an order is asked for.
    const bool drops = order != PatternOrder::in_place && (!bias || is_searched(order));  // what no pair has
    std::optional<ShownKeys> shown;
    if (may_reorder() && drops && !allowed.everything()) shown = shown_keys(given, allowed, n_q, n_k);
    std::vector<RunLists> anew;
    if (shown) anew.reserve(given.size());
    for (std::size_t h = 0; shown && h < given.size(); ++h) given[h] = &anew.emplace_back((*shown)(*given[h]));
    const index_t keys = shown ? shown->count() : n_k;
    RunLists rows;
    rows.set_index(index.back());
    if (together == group() && allowed.everything())
      given[0]->for_groups([&](Range part, std::span<const Range> runs) { rows.append(part.size() * group(), runs); });
    else
      for (index_t p = 0; p < n_q; ++p)
        for (const RunLists* list : given) {
          const Range part = shown ? (*shown)(allowed(p)) : allowed(p);
          std::vector<Range> seen;
          for_inside(list->of(p), part, [&](Range run) { seen.push_back(run.shifted(part.begin)); });
          rows.append(together, seen);
        }
    held += Words(static_cast<index_t>(sizeof(Pattern))) + Words(rows.size()) * 4 +
            Words(rows.runs_held()) * static_cast<index_t>(sizeof(Range));
    if (held * 16 > physical_memory())
      throw MemoryError(fmt::format("the patterns of {} heads of {} batches take more memory than this machine has ({} "
                                    "bytes); fewer of them, or one pattern for all, take less",
                                    heads, batch, physical_memory().str()),
                        held * 16, physical_memory());
    const bool own_offsets = alibi && plain != nullptr;  // each sequence has its own, which one mask cannot hold
    if (const auto mask = redblue::mask_of(rows, keys, group()); mask && alike && !own_offsets && !shown) {
      whole = part_of({*mask, n_q * group(), n_k}, {0, n_q * group()}, {0, n_k}).mask;
      return nullptr;
    }
    Document like;
    like.batch = k;
    like.mask.group = group();
    like.slope_offset = causal_offset.value_or(n_k - n_q);
    std::vector<Document> documents;
    bool moves = shown || (drops && is_projected(op)) || is_searched(order);
    if (!moves) {
      documents = redblue::documents_of(rows, n_k, like);
      moves = drops && !documents.empty() && documents.front().pattern != nullptr;
    }
    std::shared_ptr<const Order> moved;
    if (moves && may_reorder()) {
      auto found = order_of(order, rows, keys, group());
      if (!found)
        throw Unsupported(fmt::format("order {}: a pattern of {} pairs is too large to look for it; use natural",
                                      name_of(order), count_of(rows).str()));
      if (shown || !found->idle()) {
        documents = redblue::documents_of(in_order(rows, *found, group()), keys, like);
        Order complete = shown ? shown->among_all(*found, n_q, n_k) : std::move(*found);
        if (!complete.idle()) moved = std::make_shared<const Order>(std::move(complete));
      }
    }
    if (!moved && documents.empty() && !shown) documents = redblue::documents_of(rows, n_k, like);
    for (Document& one : documents) {
      if (own_offsets) one.slope_offset = slope_offset_in(*plain, batch_now, one);
      all.list.push_back(std::move(one));
    }
    all.orders.push_back(std::move(moved));
  }
  if (std::ranges::any_of(all.list, [](const Document& one) { return one.pattern != nullptr; }))
    for (Document& one : all.list) make_pattern(one, index[static_cast<std::size_t>(one.batch)]);
  return std::make_shared<const Documents>(std::move(all));
}

Sizes Problem::sizes() const {
  Sizes s;
  s.n_q = n_q * group();
  s.n_k = n_k;
  s.d = d;
  s.d_v = d_v;
  s.mask = mask();
  s.documents = documents(s.mask);
  s.score = score;
  s.polynomial = approximation;
  s.row_polynomials = row_polynomials;
  s.method = fitted(method, n_k);
  s.lse_required = lse_required && s.statistics() > 0;
  s.d_in = d_in;
  s.modifiers = modifiers();
  return s;
}

bound::AttentionProblem Problem::bound_problem(Words M) const { return {sizes(), instances(), M, sources}; }

bool Problem::forward_first() const { return follows_forward(op) && !forward_given && has_statistics(); }

Problem Problem::forward() const {
  Problem p = *this;
  p.op = op == Operation::backward ? Operation::forward : Operation::forward_x;  // backward_w: validate() refuses
  p.lse_required = true;
  p.forward_given = true;
  p.bias_gradient = p.sinks_gradient = false;
  p.scale = scale_or_default();
  return p;
}

}  // namespace redblue
