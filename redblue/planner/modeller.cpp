#include "redblue/planner/modeller.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/planner/timed.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/problem/cores.hpp"

namespace redblue {

bool is_same(const plan::Row& a, const plan::Row& b) { return a.schedule == b.schedule && a.tiling == b.tiling; }
bool is_faster(const plan::Row& a, const plan::Row& b) {
  if (a.time->total_s != b.time->total_s) return a.time->total_s < b.time->total_s;
  return a.io.total() < b.io.total();
}

namespace {

/// Problems whose walk takes more operations than this, some 0.2 ms, even with some rounds of loops for all, are walked
/// in part. A part of a masked problem has more of the diagonal than the whole, so it is made a larger one.
std::size_t most_operations(const Problem& p) { return p.masked() || !p.patterns.empty() ? 4'000 : 1'000; }
/// A schedule that goes pair by pair may take this many times more operations: most of them are small, and a part with
/// few keys has more of them for each pair.
constexpr std::size_t kMorePairs = 16;
/// The rounds of a loop that stand for all: where a walk of all takes too many operations, and where one of kRounds
/// still does, or in a walk in haste for one thread.
constexpr index_t kRounds = 16, kQuickRounds = 3;
/// The share of a problem that is walked next where the walk ended before its first product.
constexpr double kUnknownShare = 1.0 / 16;

}  // namespace

class Modeller::Walks {
 public:
  Walks(const Problem& problem, const plan::Options& options, const TimeOptions& time)
      : problem_(problem),
        options_(options),
        time_(time),
        rates_(model::rates_of(time.hardware, time.isa.value_or(model::largest_isa(time.hardware)), time.dtype)) {
    if (time.threads < 1 || time.threads > kMostCores)
      throw InvalidProblem(fmt::format("threads = {}: give a number from 1 to {}", time.threads, kMostCores));
    set_widths(widths_, problem, time.tensors.value_or(time.dtype), word_of(time.dtype), {});
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      if (options.width[a] > 0) {
        widths_.width[a] = options.width[a];
        widths_.unfinished[a] = options.unfinished[a];
        widths_.words_of_scales[a] = options.words_of_scales[a];
        widths_.scales_of_head = options.scales_of_head;
      }
    for (const auto& arrays : {inputs_of(problem), outputs_of(problem)})
      for (const SlowArray a : arrays) {
        double words = 1;
        for (const index_t size : shape_of(problem, a)) words *= static_cast<double>(size);
        tensor_bytes_ += words * static_cast<double>(widths_.width[index_of(a)]);
      }
    const Sizes x = problem.sizes();
    independent_ = independent(problem, x);
    if (x.sequences != nullptr && x.sequences->reordered()) copies_s_ = copy_seconds(2 * tensor_bytes_);
  }

  const model::Rates& rates() const { return rates_; }
  std::size_t operations() const { return walked_; }
  bool walked_part() const { return part_; }

  /// The row on its own, for all instances. `hopeless_s`: of a walk in haste, the time from which on it ends early.
  model::Time time_of(const plan::Row& row, std::size_t most, std::optional<double> hopeless_s = {}) {
    const Walk walk = walk_of(row, most > 0 ? most : most_operations(problem_), hopeless_s);
    const double alone = walk.timed.time().work_s() * walk.times;
    // The last of sequences of mixed lengths begins a round of its own, however short it is.
    const auto copies = static_cast<index_t>(std::ceil(std::clamp(walk.times - 1e-6, 1.0, 1e15)));
    // Workers idle where there are too few heads, or rounds that wait for others: `cores` of them work on average.
    const double duration = std::max(
        {alone / time_.threads, walk.timed.span() * walk.head_times,
         model::makespan(walk.timed.items(), copies, time_.threads) * walk.times / static_cast<double>(copies)});
    const double cores = alone > 0 ? alone / duration : 1;
    model::Time t = walk.timed.time();
    for (double* cause : {&t.compute_s, &t.exp_s, &t.pass_s}) *cause *= walk.times / cores;
    model::Traffic traffic = traffic_of(row, walk);
    const double transfer = model::transfer_seconds(rates_, traffic, cores);
    // Nothing is computed while words are copied: they hide behind no work.
    traffic.touched_bytes = 0;
    const double share = walk.timed.copied_share(), copied = share * model::transfer_seconds(rates_, traffic, cores);
    t.transfer_s = transfer - copied;
    t = model::combined(t);
    t.transfer_s = transfer;
    t.pass_s += copies_s_;
    t.total_s += copies_s_ + std::max(copied, share * model::least_copy_seconds(rates_, traffic, cores));
    return t;
  }

 private:
  /// One head, or a part of one; the whole problem takes `times` as long, and the head `head_times`.
  struct Walk {
    model::Timed timed;
    double times, head_times;
  };

  /// The row for a part of its keys: in groups of as many keys as before, down to some groups.
  static plan::Row for_keys(plan::Row row, double share) {
    constexpr double kGroups = 8;
    for (schedule::TileSize& k : row.tiling)
      if (row.algorithm->tile_size(k.name).groups) {
        const auto groups = static_cast<double>(k.value);
        k.value = static_cast<index_t>(std::min(groups, std::max(kGroups, std::ceil(groups * share))));
      }
    return row;
  }

  /// Sequences do not wait for each other.
  static double independent(const Problem& problem, const Sizes& x) {
    const auto pieces = static_cast<double>(std::max<std::size_t>(1, sequences_of(x).size()));
    return pieces * static_cast<double>(problem.instances()) / static_cast<double>(batches_of(x));
  }
  struct Piece {
    Range queries, keys;
    Words pairs() const { return Words(queries.size()) * keys.size(); }
  };
  /// The longest first; one at least.
  static std::vector<Piece> pieces_of(Problem p) {
    p.patterns = {};
    std::vector<Piece> list;
    if (const auto sequences = p.sizes().sequences; sequences != nullptr)
      for (const Sequence& one : sequences->list)
        if (one.rows.size() > 0 && one.keys.size() > 0)
          list.push_back({{one.rows.begin / p.group(), one.rows.end / p.group()}, one.keys});
    if (list.empty()) list.push_back({{0, p.n_q}, {0, p.n_k}});
    std::ranges::stable_sort(list, std::greater(), &Piece::pairs);
    return list;
  }
  /// One key-value head of one sequence stands for all, in proportion to its arithmetic: of the longest sequence in
  /// which one sees a key, the head with the most pairs; for a schedule that takes no masks, of those whose pattern is
  /// no mask.
  static Problem one_head(const Problem& problem, bool lists_pairs) {
    const index_t group = problem.group();
    const auto of = [&](const Piece& s, index_t head) {
      Problem one = problem;
      if (one.causal_offset) one.causal_offset = *one.causal_offset / one.dilation;
      one.prefix = ceil_div(one.prefix, one.dilation);
      one.dilation = 1;  // a sequence is of one residue
      one.cu_seqlens_q.clear(), one.cu_seqlens_k.clear(), one.seqused_q.clear(), one.seqused_k.clear();
      one.batch = 1;
      one.heads = group;
      one.kv_heads = 1;
      one.n_q = s.queries.size();
      one.n_k = s.keys.size();
      one.prefix = std::min(one.prefix, one.n_k);
      one.patterns = corner(problem.patterns, head * group, group, s.queries, s.keys);
      return in_patterns(std::move(one));
    };
    const std::vector<Piece> pieces = pieces_of(problem);
    if (problem.patterns.empty()) return of(pieces.front(), 0);
    const std::vector<index_t> heads = heads_of_most_pairs(problem.patterns, group);
    for (const Piece& s : pieces)
      for (const index_t k : heads) {
        Problem one = of(s, k);
        if (pairs_of(one.patterns, 0, group) > 0 && (!lists_pairs || has_pattern(one.sizes()))) return one;
      }
    return of(pieces.front(), heads.front());
  }
  /// The pairs of the lists of a group of query heads, or of the one list that they share.
  static Words pairs_of(const Patterns& patterns, index_t head, index_t group) {
    Words pairs;
    const auto first = static_cast<std::size_t>(head * group);
    for (std::size_t k = first; k < std::min(patterns.size(), first + static_cast<std::size_t>(group)); ++k)
      pairs += count_of(patterns[k]);
    return pairs;
  }
  static std::vector<index_t> heads_of_most_pairs(const Patterns& patterns, index_t group) {
    std::vector<std::pair<Words, index_t>> heads;
    for (index_t k = 0; k < std::max<index_t>(1, static_cast<index_t>(patterns.size()) / group); ++k)
      heads.emplace_back(pairs_of(patterns, k, group), k);
    std::ranges::stable_sort(heads, [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<index_t> order;
    order.reserve(heads.size());
    for (const auto& [pairs, head] : heads) order.push_back(head);
    return order;
  }

  /// The head that stands for the problem when this row is walked, made once.
  const Problem& head_for(const plan::Row& row) {
    std::optional<Problem>& head = heads_[row.algorithm->traits.lists_pairs];
    if (!head) head = one_head(problem_, row.algorithm->traits.lists_pairs);
    return *head;
  }

  /// part_of, made once: many rows are walked in the same part, and what is made of its patterns is kept with them.
  /// `with_gap`: without one pair in the middle.
  Patterns part_for(const Problem& p, index_t n_q, index_t n_k, bool with_gap = false) {
    if (p.patterns.empty()) return {};
    const auto [entry, fresh] = parts_.try_emplace({&p.patterns[0], n_q, n_k, with_gap});
    if (fresh) entry->second = with_gap ? without_a_pair(part_for(p, n_q, n_k), n_k) : part_of(p, n_q, n_k);
    return entry->second;
  }
  /// These patterns less one pair: a query in the middle does not see the middle one of its keys, all below n_k.
  static Patterns without_a_pair(const Patterns& all, index_t n_k) {
    std::vector<std::shared_ptr<const RunLists>> list;
    const Range every{0, n_k};
    for (std::size_t k = 0; k < all.size(); ++k) {
      const index_t middle = all[k].size() / 2;
      const Range keys = envelope_of(all[k], {middle, middle + 1}, every);
      const index_t key = (keys.begin + keys.end) / 2;
      RunLists others;
      others.append(middle, {every});
      others.append(1, {Range{0, key}, Range{key + 1, n_k}});
      others.append(all[k].size() - middle - 1, {every});
      list.push_back(std::make_shared<const RunLists>(patterns::intersected(all[k], others)));
    }
    return Patterns(std::move(list));
  }

  Walk walk_of(const plan::Row& row, std::size_t most, std::optional<double> hopeless_s) {
    plan::Plan part;
    part.problem = head_for(row);
    part.rows = {row};
    const Sizes head = part.problem.sizes();
    const double macs = row.flops.to_double() / 2, head_macs = row.algorithm->macs(head, row.tiling).to_double();
    const bool lists_pairs = row.algorithm->traits.lists_pairs;
    if (lists_pairs) most *= kMorePairs;
    const auto walk = [&](model::Timed timed) -> Walk {
      const double walked = timed.macs();
      if (walked == 0) return {std::move(timed), independent_, 1};
      return {std::move(timed), macs / walked, head_macs / walked};
    };
    double left = 1;  // share of one head that is walked
    /// Goes on with such a share of the part; returns the share it has become.
    const auto walk_less = [&](double share) {
      Problem smaller = part.problem;
      double shrunk = shrink(smaller, share);
      smaller.patterns = part_for(part.problem, smaller.n_q, smaller.n_k);
      bool takes = !lists_pairs || has_pattern(smaller.sizes());
      if (!takes) {  // a part that is a mask
        smaller.patterns = part_for(part.problem, smaller.n_q, smaller.n_k, true);
        takes = has_pattern(smaller.sizes());
      }
      if (takes)
        part.problem = smaller;
      else
        shrunk = 1;
      left *= shrunk;
      part.rows = {for_keys(row, static_cast<double>(part.problem.n_k) / static_cast<double>(problem_.n_k))};
      return shrunk;
    };
    part_ = true;
    const auto rounds_of = [&](index_t some) -> model::SomeRounds {
      if (!problem_.patterns.empty()) return {};
      return {time_.threads == 1 ? some : 0, some, problem_.masked()};
    };
    model::SomeRounds some = rounds_of(hopeless_s && time_.threads == 1 ? kQuickRounds : 0);
    index_t fewer = hopeless_s || !problem_.patterns.empty() ? 0 : kRounds;  // rounds to walk next, before a part is
    const double blocks = blocks_of(row, head);
    // The share of blocks that are walked. Fewer rounds make none of them shorter.
    const auto rounds = [&](const Sizes& x) {
      return some.each > 0 ? std::min(1.0, static_cast<double>(some.each) / blocks_of(row, x, &Sizes::n_q)) : 1;
    };
    const auto shrunk = [&](double share) { return share_of(rounds(head) < 1 ? share * share : share); };
    double& each = operations_.try_emplace(row.schedule, 0).first->second;
    if (const double operations = hopeless_s ? each * blocks * rounds(head) : 0; operations > static_cast<double>(most))
      walk_less(shrunk(static_cast<double>(most) / operations));
    while (true) {
      model::Timed timed(rates_, most, !part.problem.patterns.empty(),
                         hopeless_s ? *hopeless_s * time_.threads / macs : HUGE_VAL, some);
      try {
        machine::Any any(timed);
        run_on(any, part);
        walked_ += timed.operations();
        part_ = left < 1;
        each = timed.takes_turns() && some.in_turn > 0
                   ? 0
                   : static_cast<double>(timed.operations()) / (left * blocks * rounds(part.problem.sizes()));
        return walk(std::move(timed));
      } catch (const model::Timed::TooMany&) {
        walked_ += timed.operations();
        if (timed.is_hopeless()) return walk(std::move(timed));
        if (fewer > 0 && (some.in_turn == 0 || timed.takes_turns())) {
          some = rounds_of(fewer);
          fewer = fewer == kRounds ? kQuickRounds : 0;
          continue;
        }
        if (!hopeless_s && !timed.takes_turns()) some = {};
        const double reached = std::min(1.0, timed.reached() / (left * head_macs));
        // Before the first product it is not known how far a smaller part would come.
        const double next = reached == 0 ? kUnknownShare : timed.takes_turns() ? share_of(reached) : shrunk(reached);
        if (walk_less(next) == 1) most *= 2;  // there is no smaller problem
      }
    }
  }
  /// The share of a part that is walked where a walk of all would come so far: half of it at most.
  static double share_of(double reached) { return std::clamp(reached, 1e-9, 0.5); }
  /// Into how many blocks the tiles of a row cut a head: it takes some operations for each.
  static double blocks_of(const plan::Row& row, const Sizes& head, index_t Sizes::* of = nullptr) {
    double blocks = 1;
    for (const schedule::TileSize& k : row.tiling) {
      const schedule::TileSizeRange& range = row.algorithm->tile_size(k.name);
      if (range.along == nullptr || range.least == 0 || (of != nullptr && range.along != of))
        continue;  // it says how many stay, not how many there are at a time
      blocks *= static_cast<double>(ceil_div(head.*range.along, std::max<index_t>(1, k.value)));
    }
    return blocks;
  }
  /// The problem as one whose patterns alone say who sees whom, with queries and keys numbered as a run takes them: a
  /// part of it is then one of the run.
  static Problem in_patterns(Problem one) {
    if (one.patterns.empty()) return one;
    const Sizes x = one.sizes();
    const index_t group = one.group();
    std::vector<RunLists> of_head(one.patterns.size());
    const auto append = [&](index_t row, std::span<const Range> runs, index_t first_key) {
      std::vector<Range> shifted;
      for (const Range& run : runs) shifted.push_back(run.shifted(first_key));
      const auto head = static_cast<std::size_t>(row % group);
      if (head < of_head.size()) of_head[head].append(1, shifted);
    };
    index_t row = 0;
    const Sequence whole{.rows = {0, x.n_q}, .keys = {0, x.n_k}, .mask = x.mask};
    const auto list = x.sequences == nullptr ? std::span(&whole, 1) : std::span<const Sequence>(x.sequences->list);
    for (const Sequence& part : list) {
      for (; row < part.rows.begin; ++row) append(row, {}, 0);
      for (; row < part.rows.end; ++row) {
        const index_t r = row - part.rows.begin;
        const Range seen = part.pattern != nullptr ? Range() : part.mask.keys(r, part.keys.size());
        append(row, part.pattern != nullptr ? part.pattern->rows().of(r) : std::span(&seen, 1), part.keys.begin);
      }
    }
    for (; row < x.n_q; ++row) append(row, {}, 0);
    std::vector<std::shared_ptr<const RunLists>> lists;
    for (std::size_t h = 0; h < of_head.size(); ++h) {
      of_head[h].set_index(one.patterns[h].index());
      lists.push_back(std::make_shared<const RunLists>(std::move(of_head[h])));
    }
    one.patterns = Patterns(std::move(lists));
    if (one.order != PatternOrder::in_place) one.order = PatternOrder::natural;
    one.causal = false;
    one.causal_offset = one.window_left = one.window_right = std::nullopt;
    one.prefix = 0;
    return one;
  }
  /// The patterns of a part with n_q queries and n_k keys of a problem: about the pair in the middle of all pairs, row
  /// by row, so that the part has work to do.
  static Patterns part_of(const Problem& p, index_t n_q, index_t n_k) {
    const RunLists& rows = p.patterns[static_cast<std::size_t>(heads_of_most_pairs(p.patterns, 1).front())];
    const Words half = count_of(rows) / 2;
    Words before;
    index_t query = 0, key = 0;
    rows.for_groups([&](Range part, std::span<const Range> runs) {
      index_t seen = 0;
      for (const Range& run : runs) seen += run.size();
      if (seen > 0 && before <= half) {
        query = part.begin + std::min<Words>((half - before) / seen, part.size() - 1).to_index();
        key = runs[runs.size() / 2].begin;
      }
      before += Words(seen) * part.size();
    });
    const auto around = [](index_t middle, index_t size, index_t all) {
      const index_t begin = std::clamp<index_t>(middle - size / 2, 0, all - size);
      return Range{begin, begin + size};
    };
    return corner(p.patterns, 0, p.group(), around(query, n_q, p.n_q), around(key, n_k, p.n_k));
  }
  /// The patterns of `heads` heads from `head` on, for these queries and keys.
  static Patterns corner(const Patterns& all, index_t head, index_t heads, Range queries, Range keys) {
    std::vector<std::shared_ptr<const RunLists>> list;
    const auto first = static_cast<std::size_t>(head);
    for (std::size_t k = first; k < std::min(all.size(), first + static_cast<std::size_t>(heads)); ++k) {
      RunLists rows;
      all[k].for_groups(queries, [&](Range part, std::span<const Range> runs) {
        std::vector<Range> kept;
        for_inside(runs, keys, [&](Range run) { kept.push_back(run); });
        rows.append(part.size(), kept);
      });
      list.push_back(std::make_shared<const RunLists>(std::move(rows)));
    }
    return list.empty() ? Patterns() : Patterns(std::move(list));
  }

  /// Makes a problem of about this share of the work, or less; returns the share it has become. Sizes are halved: tiles
  /// that divide them go on doing so. Where few queries meet many keys, or the other way round, the few stay: they may
  /// be one tile, and a smaller one would be another kind of work.
  static double shrink(Problem& p, double share) {
    double become = 1;
    const auto scale = [&](index_t& size, double by) {
      const index_t before = size;
      while (size > 1 && static_cast<double>(size) > static_cast<double>(before) * by) size = (size + 1) / 2;
      become *= static_cast<double>(size) / static_cast<double>(before);
    };
    if (p.n_q == 1 && p.n_k == 1) {  // the work lies in many features, or in many heads that share keys
      scale(p.heads, share);
      scale(p.d, share);
      p.d_v = std::min(p.d_v, p.d);
      p.d_in = std::min(p.d_in, p.d);
    } else {
      constexpr index_t kFew = 256;
      const bool few_queries = p.n_q <= kFew, few_keys = p.n_k <= kFew;
      const bool both = few_queries == few_keys;
      const double one = both ? std::sqrt(share) : share;
      const index_t queries = p.n_q, keys = p.n_k;
      if (both || few_keys) scale(p.n_q, one);
      if (both || few_queries) scale(p.n_k, one);
      if (p.causal_offset) {  // below 0 it counts queries that see nothing, else keys; the default follows the sizes
        const auto [now, before] = *p.causal_offset < 0 ? std::pair(p.n_q, queries) : std::pair(p.n_k, keys);
        p.causal_offset = static_cast<index_t>(static_cast<double>(*p.causal_offset) * static_cast<double>(now) /
                                               static_cast<double>(before));
      }
    }
    return become;
  }

  /// Threads share the heads of what is copied, and the bandwidth of memory.
  double copy_seconds(double bytes) const {
    const auto threads = static_cast<double>(std::min<index_t>(time_.threads, problem_.batch * problem_.heads));
    const double beyond_caches = rates_.levels.size() < 2 ? 1 : rates_.missing(rates_.levels.size() - 2, bytes);
    return std::max(bytes * rates_.seconds_per_byte(bytes) / threads,
                    bytes * beyond_caches / rates_.all_cores_bandwidth);
  }

  model::Traffic traffic_of(const plan::Row& row, const Walk& walk) const {
    model::Traffic t;
    t.bytes = plan::bytes_of(row.io, widths_, problem_.op).total().to_double();
    t.distinct_bytes = tensor_bytes_;
    t.instance_bytes =
        t.distinct_bytes / static_cast<double>(problem_.instances()) + row.workspace.to_double() * rates_.word_bytes;
    t.held_bytes = walk.timed.held() * rates_.word_bytes;
    t.fast_bytes = std::min(options_.M.to_double() * rates_.word_bytes, t.held_bytes);
    t.touched_bytes = walk.timed.touched() * walk.times * rates_.word_bytes;
    return t;
  }

  const Problem& problem_;
  const plan::Options& options_;
  const TimeOptions& time_;
  plan::Options widths_;    ///< of words in slow memory: those of the options, or of the tensors' type
  double independent_ = 1;  ///< sequences of all heads
  model::Rates rates_;
  double tensor_bytes_ = 0;
  std::size_t walked_ = 0;  ///< operations, of all walks
  bool part_ = false;       ///< did the last walk end in a part of a head?
  double copies_s_ = 0;     ///< of inputs and outputs, where the run takes queries and keys in an order of their own
  /// Operations of a block of a head, in the last walk of each schedule: 0 where some rounds stood for all, and of a
  /// schedule that was not walked yet.
  std::map<std::string_view, double> operations_;
  std::array<std::optional<Problem>, 2> heads_{};  ///< one_head for other schedules, and for those of patterns alone
  std::map<std::tuple<const RunLists*, index_t, index_t, bool>, Patterns> parts_;  ///< of patterns, made by part_of
};

Modeller::Modeller(const Problem& problem, const plan::Options& options, const TimeOptions& time)
    : walks_(std::make_unique<Walks>(problem, options, time)) {}
Modeller::~Modeller() = default;

const model::Rates& Modeller::rates() const { return walks_->rates(); }
model::Time Modeller::time_of(const plan::Row& row, std::size_t most) { return walks_->time_of(row, most); }
std::size_t Modeller::operations() const { return walks_->operations(); }
bool Modeller::walked_part() const { return walks_->walked_part(); }
model::Time Modeller::quick_time_of(const plan::Row& row, std::size_t most, double hopeless_s) {
  return walks_->time_of(row, most, hopeless_s);
}

model::Time modelled_time(const plan::Plan& plan, const TimeOptions& time) {
  model::Time t = Modeller(plan.problem, plan.options, time).time_of(plan.row());
  if (!plan.forward) return t;
  const model::Time before = modelled_time(*plan.forward, time);
  return {t.compute_s + before.compute_s, t.exp_s + before.exp_s, t.pass_s + before.pass_s,
          t.transfer_s + before.transfer_s, t.total_s + before.total_s};
}

}  // namespace redblue
