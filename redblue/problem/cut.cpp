#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "redblue/hardware/physical_memory.hpp"
#include "redblue/language/error.hpp"
#include "redblue/problem/options.hpp"
#include "redblue/problem/sequences.hpp"

/// The sequences of a problem: what sequences, a dilation and patterns become.
namespace redblue {

namespace {

/// Are these lengths, one for each batch, one and the same?
bool one_length(const std::vector<index_t>& used) {
  return std::ranges::adjacent_find(used, std::ranges::not_equal_to()) == used.end();
}

}  // namespace

/// Null where the lengths are those of the whole problem. With a dilation each sequence becomes one for each
/// residue.
std::shared_ptr<const Sequences> Problem::packed_sequences() const {
  if (!several() && dilation == 1) return nullptr;
  Sequences all;
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
  return std::make_shared<const Sequences>(std::move(all));
}

namespace {

/// The keys that a position sees by the sequences of one batch; all without sequences.
class Allowed {
 public:
  Allowed(const Sequences* sequences, index_t batch, const Mask& mask, index_t positions, index_t n_k)
      : mask_(mask), n_k_(n_k), of_position_(sequences == nullptr ? 0 : static_cast<std::size_t>(positions)) {
    mask_.group = 1;
    if (sequences == nullptr) return;
    for (const Sequence& one : sequences->list) {
      const index_t group = one.mask.group;
      if (sequences->batches == 1 || one.batch == batch)
        std::fill(of_position_.begin() + one.rows.begin / group, of_position_.begin() + one.rows.end / group, &one);
    }
    everything_ = false;
  }
  bool everything() const { return everything_ && mask_.full(); }
  Range operator()(index_t position) const {
    if (everything_) return mask_.keys(position, n_k_);
    const Sequence* one = of_position_[static_cast<std::size_t>(position)];
    if (one == nullptr) return {};
    Mask mask = one->mask;
    mask.group = 1;
    return mask.keys(position - one->rows.begin / one->mask.group, one->keys.size()).shifted(one->keys.begin);
  }

 private:
  Mask mask_;
  index_t n_k_;
  bool everything_ = true;
  std::vector<const Sequence*> of_position_;
};

}  // namespace

/// The last sequences that were made of patterns, by what of the problem they depend on: a planner goes back and forth
/// between orders.
struct Patterns::Made {
  struct Entry {
    Mask whole;
    std::shared_ptr<const Sequences> sequences;
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

namespace {

/// Appends the value of an option, so that unequal values make unequal texts.
template <class T>
void add_text(const T& x, std::string& to) {
  if constexpr (requires { name_of(x); })
    to += fmt::format(" {}", name_of(x));
  else if constexpr (requires { x.has_value(); })
    to += x ? fmt::format(" {}", *x) : " -";
  else if constexpr (requires { x.begin(); })
    to += fmt::format(" {}", fmt::join(x, ","));
  else
    to += fmt::format(" {}", x);
}

}  // namespace

/// Where patterns and masks together make one mask, that is `whole`, and there are no sequences.
std::shared_ptr<const Sequences> Problem::sequences(Mask& whole) const {
  if (patterns.empty()) {
    if (!several() && dilation == 1) return nullptr;
    require_sequences();
    require_dilation();
    std::shared_ptr<const Sequences> all = packed_sequences();
    if (all == nullptr) return nullptr;
    whole = Mask{.group = group()};
    if (!is_projected(op) || all->batches > 1) return all;
    Sequences closed = *all;  // products of A1 and A3 go over all queries and keys of the core
    const std::shared_ptr<const Order> closing = close_gaps(closed.list, n_q, n_k);
    if (dilation == 1)
      closed.orders = {closing};
    else if (closing != nullptr)
      closed.orders = {std::make_shared<const Order>(chained(*closed.orders.front(), *closing))};
    return std::make_shared<const Sequences>(std::move(closed));
  }
  std::string from = fmt::format("{} {}", may_reorder(), is_projected(op));
  option::for_each(problem_options(), [&](const auto& option) {
    if (option.about.pairs) add_text(option.of(*this), from);
  });
  const std::lock_guard lock(patterns.made_->mutex);
  auto& known = patterns.made_->known;
  auto found = known.find(from);
  if (found == known.end()) {
    if (known.size() >= kPatternOrderNames.size()) known.clear();
    Patterns::Made::Entry made;
    made.sequences = sequences_of_patterns(made.whole);
    found = known.emplace(std::move(from), std::move(made)).first;
  }
  whole = found->second.whole;
  return found->second.sequences;
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

/// The slope offset of a part. It lies inside one of the whole sequences, for no query sees keys of two.
index_t slope_offset_in(const Sequences& whole, index_t batch, const Sequence& part) {
  for (const Sequence& one : whole.list)
    if (one.batch == (whole.batches == 1 ? 0 : batch) && one.rows.begin <= part.rows.begin &&
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

/// The rows that these lists make, one list or one for each query head of a position; `together` heads see the same.
RunLists rows_of(const std::vector<const RunLists*>& lists, index_t together, const Allowed& allowed,
                 const std::optional<ShownKeys>& shown, index_t n_q) {
  RunLists rows;
  if (lists.size() == 1 && allowed.everything()) {
    lists[0]->for_groups([&](Range part, std::span<const Range> runs) { rows.append(part.size() * together, runs); });
    return rows;
  }
  for (index_t p = 0; p < n_q; ++p)
    for (const RunLists* list : lists) {
      const Range part = shown ? (*shown)(allowed(p)) : allowed(p);
      std::vector<Range> seen;
      for_inside(list->of(p), part, [&](Range run) { seen.push_back(run.shifted(part.begin)); });
      rows.append(together, seen);
    }
  return rows;
}

/// The sequences of one pattern, and the order in which its queries and keys lie; none where they stay.
struct PatternParts {
  std::vector<Sequence> sequences;
  std::shared_ptr<const Order> order;
};

/// The parts of these rows of a problem with that number of keys. `drops`: rows and keys without a pair may go.
PatternParts parts_of(const Problem& problem, const RunLists& rows, index_t keys, const std::optional<ShownKeys>& shown,
                      bool drops, const Sequence& like) {
  PatternParts made;
  bool moves = shown || (drops && is_projected(problem.op)) || is_searched(problem.order);
  if (!moves) {
    made.sequences = redblue::sequences_of(rows, keys, like);
    moves = drops && !made.sequences.empty() && made.sequences.front().pattern != nullptr;
  }
  // Products of A1, A2 and A3 go over all queries and keys of a part: none that sees nothing may lie between two parts.
  const bool has_to_stay = problem.order == PatternOrder::in_place && is_projected(problem.op);
  if ((moves || has_to_stay) && problem.may_reorder()) {
    auto found = order_of(has_to_stay ? PatternOrder::natural : problem.order, rows, keys, problem.group());
    if (!found)
      throw Unsupported(fmt::format("order {}: a pattern of {} pairs is too large to look for it; use natural",
                                    name_of(problem.order), count_of(rows).str()));
    if (has_to_stay && !found->idle())
      throw Unsupported(
          fmt::format("order in-place: {} takes queries without keys, and keys without queries, last; use "
                      "natural, which copies them there",
                      name_of(problem.op)));
    if (shown || !found->idle()) {
      made.sequences = redblue::sequences_of(in_order(rows, *found, problem.group()), keys, like);
      Order complete = shown ? shown->among_all(*found, problem.n_q, problem.n_k) : std::move(*found);
      if (!complete.idle()) made.order = std::make_shared<const Order>(std::move(complete));
    }
  }
  if (!made.order && made.sequences.empty() && !shown) made.sequences = redblue::sequences_of(rows, keys, like);
  return made;
}

}  // namespace

std::shared_ptr<const Sequences> Problem::sequences_of_patterns(Mask& whole) const {
  require_patterns();
  const std::shared_ptr<const Sequences> plain = packed_sequences();
  whole = Mask{.group = group()};
  const bool alike = patterns.alike() && (plain == nullptr || plain->batches == 1);
  const bool by_head = !alike_in_batches(patterns, heads);
  const index_t lists = alike ? 1 : by_head ? instances() : batch;
  const index_t together = by_head ? 1 : group();  // heads of a position that see the same
  // A bias has n_q n_k words to copy: it stays unless an order is asked for.
  const bool drops = order != PatternOrder::in_place && (!bias || is_searched(order));  // what no pair has
  const bool own_offsets = alibi && plain != nullptr;  // each sequence has its own, which one mask cannot hold
  Sequences all{.batches = lists, .by_head = by_head, .list = {}, .orders = {}, .block_index = {}};
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
    const auto [kind, block_words] = index_of(of_head, by_head ? group() : 1);
    index.push_back({.kind = kind});
    all.block_index.push_back(block_words);
    std::vector<const RunLists*> given;  // of each head, or of all
    for (index_t h = 0; h < group(); h += together) given.push_back(&of_head(h));
    std::optional<ShownKeys> shown;
    if (may_reorder() && drops && !allowed.everything()) shown = shown_keys(given, allowed, n_q, n_k);
    std::vector<RunLists> anew;
    if (shown) anew.reserve(given.size());
    for (std::size_t h = 0; shown && h < given.size(); ++h) given[h] = &anew.emplace_back((*shown)(*given[h]));
    RunLists rows = rows_of(given, together, allowed, shown, n_q);
    rows.set_index(index.back());
    held += Words(static_cast<index_t>(sizeof(Pattern))) + Words(rows.size()) * 4 +
            Words(rows.runs_held()) * static_cast<index_t>(sizeof(Range));
    if (held * 16 > physical_memory())
      throw MemoryError(fmt::format("the patterns of {} heads of {} batches take more memory than this machine has ({} "
                                    "bytes); fewer of them, or one pattern for all, take less",
                                    heads, batch, physical_memory().str()),
                        held * 16, physical_memory());
    const index_t keys = shown ? shown->count() : n_k;
    if (const auto mask = redblue::mask_of(rows, keys, group()); mask && alike && !own_offsets && !shown) {
      whole = part_of({*mask, n_q * group(), n_k}, {0, n_q * group()}, {0, n_k}).mask;
      return nullptr;
    }
    Sequence like;
    like.batch = k;
    like.mask.group = group();
    like.slope_offset = causal_offset.value_or(n_k - n_q);
    PatternParts parts = parts_of(*this, rows, keys, shown, drops, like);
    for (Sequence& one : parts.sequences) {
      if (own_offsets) one.slope_offset = slope_offset_in(*plain, batch_now, one);
      all.list.push_back(std::move(one));
    }
    all.orders.push_back(std::move(parts.order));
  }
  if (std::ranges::any_of(all.list, [](const Sequence& one) { return one.pattern != nullptr; }))
    for (Sequence& one : all.list) make_pattern(one, index[static_cast<std::size_t>(one.batch)]);
  return std::make_shared<const Sequences>(std::move(all));
}

}  // namespace redblue
