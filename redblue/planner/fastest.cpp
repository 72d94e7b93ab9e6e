#include "redblue/planner/fastest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/language/error.hpp"
#include "redblue/language/word_type.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/planner/run_on.hpp"
#include "redblue/planner/shapes.hpp"
#include "redblue/planner/timed.hpp"
#include "redblue/planner/widths.hpp"
#include "redblue/problem/cores.hpp"

namespace redblue {

namespace {

/// Problems whose walk takes more operations than this, some 0.2 ms, are walked in part. A part of a masked problem has
/// more of the diagonal than the whole, so it is made a larger one.
std::size_t most_operations(const Problem& p) { return p.masked() || !p.patterns.empty() ? 4'000 : 1'000; }
/// A schedule that goes pair by pair may take this many times more operations: most of them are small, and a part with
/// few keys has more of them for each pair.
constexpr std::size_t kMorePairs = 16;
/// The share of a problem that is walked next where the walk ended before its first product.
constexpr double kUnknownShare = 1.0 / 16;

/// A model's view of one problem and one machine.
class Modeller {
 public:
  Modeller(const Problem& problem, const plan::Options& options, const TimeOptions& time)
      : problem_(problem),
        options_(options),
        time_(time),
        independent_(independent(problem)),
        rates_(model::rates_of(time.hardware, time.isa.value_or(model::largest_isa(time.hardware)), time.dtype)) {
    if (time.threads < 1 || time.threads > kMostCores)
      throw InvalidProblem(fmt::format("threads = {}: give a number from 1 to {}", time.threads, kMostCores));
    set_widths(widths_, problem, time.tensors.value_or(time.dtype), word_of(time.dtype), {});
    for (std::size_t a = 0; a < kSlowArrays; ++a)
      if (options.width[a] > 0) {
        widths_.width[a] = options.width[a];
        widths_.unfinished[a] = options.unfinished[a];
      }
    for (const auto& arrays : {inputs_of(problem), outputs_of(problem)})
      for (const SlowArray a : arrays) {
        double words = 1;
        for (const index_t size : shape_of(problem, a)) words *= static_cast<double>(size);
        tensor_bytes_ += words * static_cast<double>(widths_.width[index_of(a)]);
      }
    if (const auto sequences = problem.sizes().sequences; sequences != nullptr && sequences->reordered())
      copies_s_ = copy_seconds(2 * tensor_bytes_);
  }

  const model::Rates& rates() const { return rates_; }

  /// The row on its own, for all instances.
  model::Time time_of(const plan::Row& row) {
    const Walk walk = walk_of(row);
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
  static double independent(const Problem& problem) {
    const Sizes x = problem.sizes();
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

  Walk walk_of(const plan::Row& row) {
    plan::Plan part;
    part.problem = head_for(row);
    part.rows = {row};
    const double macs = row.flops.to_double() / 2,
                 head_macs = row.algorithm->macs(part.problem.sizes(), row.tiling).to_double();
    std::size_t most = most_operations(problem_);
    if (row.algorithm->traits.lists_pairs) most *= kMorePairs;
    for (double left = 1;;) {  // share of one head that is walked
      model::Timed timed(rates_, most, !part.problem.patterns.empty());
      try {
        machine::Any any(timed);
        run_on(any, part);
        if (timed.macs() == 0) return {timed, independent_, 1};
        return {timed, macs / timed.macs(), head_macs / timed.macs()};
      } catch (const model::Timed::TooMany&) {
        const double reached = std::min(1.0, timed.macs() / (left * head_macs));
        Problem smaller = part.problem;
        // Before the first product it is not known how far a smaller part would come.
        double shrunk = shrink(smaller, reached > 0 ? std::clamp(reached, 1e-9, 0.5) : kUnknownShare);
        smaller.patterns = part_for(part.problem, smaller.n_q, smaller.n_k);
        const bool lists_pairs = row.algorithm->traits.lists_pairs;
        bool takes = !lists_pairs || has_pattern(smaller.sizes());
        if (!takes) {  // a part that is a mask
          smaller.patterns = part_for(part.problem, smaller.n_q, smaller.n_k, true);
          takes = has_pattern(smaller.sizes());
        }
        if (takes)
          part.problem = smaller;
        else
          shrunk = 1;
        if (shrunk == 1) most *= 2;  // there is no smaller problem
        left *= shrunk;
        part.rows = {for_keys(row, static_cast<double>(part.problem.n_k) / static_cast<double>(problem_.n_k))};
      }
    }
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
  plan::Options widths_;  ///< of words in slow memory: those of the options, or of the tensors' type
  double independent_;    ///< sequences of all heads
  model::Rates rates_;
  double tensor_bytes_ = 0;
  double copies_s_ = 0;  ///< of inputs and outputs, where the run takes queries and keys in an order of their own
  std::array<std::optional<Problem>, 2> heads_{};  ///< one_head for other schedules, and for those of patterns alone
  std::map<std::tuple<const RunLists*, index_t, index_t, bool>, Patterns> parts_;  ///< of patterns, made by part_of
};

/// Heads for each thread that do not leave one idle for long.
constexpr index_t kFewHeads = 4;

/// Queries that see the same keys lie in groups, and so do keys that the same queries see: the lengths of those groups
/// that hold the most queries, and the most keys. 1 without a pattern.
struct Alike {
  index_t queries = 1, keys = 1;
};
Alike alike(const Problem& problem) {
  std::map<index_t, index_t> queries, keys;  // by the length of their groups
  const auto add = [](const RunLists& lists, std::map<index_t, index_t>& to) {
    lists.for_groups([&](Range group, std::span<const Range>) { to[group.size()] += group.size(); });
  };
  for (std::size_t k = 0; k < problem.patterns.size(); ++k) {
    add(problem.patterns[k], queries);
    add(transposed(problem.patterns[k], problem.n_k), keys);
  }
  const auto usual = [](const std::map<index_t, index_t>& of) {
    const auto most =
        std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == of.end() ? 1 : most->first;
  };
  return {usual(queries) * problem.group(), usual(keys)};
}

/// May kernels go pair by pair (kernels/pair_by_pair.hpp), and have all patterns few pairs, in short runs?
bool are_scattered(const Problem& p, const model::Rates& rates) {
  constexpr index_t kShare = 3, kRun = 8;
  bool scattered = !p.patterns.empty() && !p.modifiers().any() && p.score == Score::softmax &&
                   rates.isa != Isa::portable && !rates.multiplies_bf16 &&
                   std::max(p.d, p.d_v) <= kernel::PairByPair::kMostWords;
  for (std::size_t k = 0; scattered && k < p.patterns.size(); ++k) {
    const Words pairs = count_of(p.patterns[k]);
    scattered = kShare * pairs < Words(p.n_q) * p.n_k && pairs < kRun * Words(p.patterns[k].runs_held());
  }
  return scattered;
}

bool has_multiples(const plan::Options& o) { return o.multiple.query > 1 || o.multiple.key > 1; }

/// What the planner may be asked so that it answers with tiles that kernels like: multiples of the register tile on one
/// side, some hundred on the other, and a part of M, 1/share, for words alone always want the longest tile. Keys and
/// values stream past each panel of a tile anew: room is left for those of one step.
std::vector<plan::Options> candidates(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                                      int share) {
  plan::Options o = options;
  o.M = std::max(Words(1), options.M / share);
  if (has_multiples(options)) return {o};
  std::vector<plan::Options> list;
  const index_t panel = index_t{model::kRegisterVectors} * rates.lanes;
  const index_t scores = std::min(panel, problem.n_q * problem.group());  // of one key, made at a time
  const index_t bytes = rates.multiplies_bf16 ? 2 : static_cast<index_t>(rates.word_bytes);  // of a weight
  // Scores of single pairs take no room in a cache, and rows with many keys lose less at their ends.
  const bool scattered = are_scattered(problem, rates);
  for (const index_t q : {panel, 4 * panel})
    for (const index_t k : {16, 64, 128, 256, 512}) {
      if (scattered ? k < 128 : scores * k * bytes > rates.levels.front().bytes) continue;
      const Words passing = Words(k) * (problem.d + problem.d_v);
      if (passing * 2 > options.M / share) continue;
      o.M = options.M / share - passing;
      o.multiple.query = q;
      o.multiple.key = k;
      // States of monomials in tiles: few coordinates and columns at a time move few words, many fill vectors.
      for (const index_t f : {1, 16, 64}) {
        if (f > 1 && (problem.approximation == nullptr || problem.approximation->terms(problem.d) == 0)) continue;
        o.multiple.feature = std::lcm(options.multiple.feature, f);
        list.push_back(o);
      }
    }
  return list;
}

/// Options for blocks of a size that the problem suggests.
std::vector<plan::Options> blocks(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                                  int threads) {
  std::vector<plan::Options> list;
  if (has_multiples(options)) return list;
  // Blocks of these many queries, and steps of these many keys, where `also` is for a step.
  const auto block_of = [&](index_t queries, index_t keys, Words also) {
    plan::Options o = options;
    o.multiple.query = queries;
    o.multiple.key = keys;
    o.M = std::min(options.M, Words(queries) * (problem.d + problem.d_v + keys + 4) + also);
    list.push_back(o);
  };
  // Under a pattern of blocks: tiles of one block, of which all queries see all keys. Gradients hold four tiles of
  // keys.
  if (const Alike a = alike(problem); std::min(a.queries, a.keys) >= rates.lanes)
    block_of(a.queries, a.keys,
             problem.op == Operation::forward ? Words(0)
                                              : Words(a.keys) * (Words(2) * (problem.d + problem.d_v) + a.queries));
  // Heads too few for all threads: as many blocks of queries, of one size, as keep them all at work.
  if (threads > 1 && problem.instances() < kFewHeads * threads)
    for (const index_t each : {1, 2, 4}) {
      const index_t rows = ceil_div(problem.n_q * problem.group(), each * threads);
      block_of(ceil_div(rows, rates.lanes) * rates.lanes, 128, 0);
    }
  return list;
}

bool is_same(const plan::Row& a, const plan::Row& b) { return a.schedule == b.schedule && a.tiling == b.tiling; }
std::string text_of(const model::Time& t) {
  return fmt::format("{:.3g} ms: compute {:.3g}, exp {:.3g}, passes {:.3g}, transfer {:.3g}", 1e3 * t.total_s,
                     1e3 * t.compute_s, 1e3 * t.exp_s, 1e3 * t.pass_s, 1e3 * t.transfer_s);
}

/// Modelled times so close are no reason to move more words.
constexpr double kTie = 1.002;

/// What the chosen plan is best at, for its reason.
std::string_view merit(const plan::Plan& plan, bool fastest) {
  if (!plan.options.schedule.empty()) return "was asked for";
  if (fastest) return "takes the least modelled time";
  return "moves the fewest words of those within 0.2 % of the least modelled time";
}

/// The choice in a sentence: its time, and what fewer words would have cost.
std::string reason(const plan::Plan& plan, bool fastest, const plan::Row& fewest, const model::Rates& rates,
                   const TimeOptions& time) {
  const plan::Row& best = plan.row();
  std::string text =
      fmt::format("{}, {} {}, {} thread{}, M = {}: {} ({}) {} ({})", time.hardware.cpu, name_of(rates.isa),
                  name_of(rates.dtype), time.threads, time.threads == 1 ? "" : "s", plan.options.M.str(),
                  best.algorithm->idea, best.schedule, merit(plan, fastest), text_of(*best.time));
  if (const std::string_view caveat = best.algorithm->caveat(plan.problem.sizes(), best.tiling); !caveat.empty())
    text += fmt::format("; {}", caveat);
  const double words = best.io.total().to_double(), least = fewest.io.total().to_double();
  if (words <= least) return text + "; no plan moves fewer words";
  const std::string more = words < 1.001 * least ? "less than 0.1 % more than" : fmt::format("{:.4g}x", words / least);
  return text + fmt::format("; it moves {} the fewest words, with which {} would take {:.2f}x the time ({})", more,
                            plan::text_of(fewest), fewest.time->total_s / best.time->total_s, text_of(*fewest.time));
}

/// Takes out the rows that break the cap of the plan. A schedule of which none is left is refused, with the least bytes
/// that one of its tilings takes.
void keep_the_cap(plan::Plan& plan, std::vector<plan::Row>& rows) {
  std::map<std::string_view, plan::Refusal> refused;
  std::set<std::string_view> kept;
  std::erase_if(rows, [&](const plan::Row& row) {
    auto refusal = plan::beyond_cap(plan, row);
    if (!refusal) {
      kept.insert(row.schedule);
      return false;
    }
    const auto [entry, fresh] = refused.try_emplace(row.schedule, *refusal);
    if (!fresh && refusal->smallest_cap &&
        (!entry->second.smallest_cap || *refusal->smallest_cap < *entry->second.smallest_cap))
      entry->second = *refusal;
    return true;
  });
  for (auto& [name, refusal] : refused)
    if (!kept.contains(name)) plan.refused.push_back(std::move(refusal));
}

}  // namespace

Words fast_memory_of(const Hardware& hardware, DType compute) {
  return Words(2) * hardware.private_cache().bytes / Words(size_of(word_of(compute)));
}

model::Time modelled_time(const plan::Plan& plan, const TimeOptions& time) {
  model::Time t = Modeller(plan.problem, plan.options, time).time_of(plan.row());
  if (!plan.forward) return t;
  const model::Time before = modelled_time(*plan.forward, time);
  return {t.compute_s + before.compute_s, t.exp_s + before.exp_s, t.pass_s + before.pass_s,
          t.transfer_s + before.transfer_s, t.total_s + before.total_s};
}

namespace {

plan::Plan fastest_in_order(const Problem& problem, const plan::Options& given, const TimeOptions& time) {
  plan::Options options = given;
  if (options.M == 0) options.M = fast_memory_of(time.hardware, time.dtype);
  // Without the cap: tiles that move the fewest words may break it where others keep it.
  plan::Options uncapped = options;
  uncapped.cap.reset();
  uncapped.reorder = false;
  Problem alone = problem;
  alone.forward_given = true;                          // what runs before does not matter to the tilings
  plan::Plan plan = plan::make_plan(alone, uncapped);  // refuses what cannot be done
  Modeller modeller(problem, options, time);
  const plan::Row fewest_words = plan.row();
  plan.problem = problem;
  plan.options = options;

  std::vector<plan::Row> considered;
  const auto consider = [&](plan::Row& row) {
    if (std::ranges::any_of(considered, [&](const plan::Row& r) { return is_same(r, row); })) return;
    row.time = modeller.time_of(row);
    considered.push_back(std::move(row));
  };
  for (plan::Row& row : std::exchange(plan.rows, {})) consider(row);
  const Sizes x = plan::sizes_of(alone, uncapped);
  const auto try_all = [&](const std::vector<plan::Options>& list) {
    for (const plan::Options& o : list)
      for (plan::Row& row : plan::rows_that_fit(alone, o, x)) consider(row);
  };
  for (const int share : {1, 2, 4}) try_all(candidates(problem, uncapped, modeller.rates(), share));
  try_all(blocks(problem, uncapped, modeller.rates(), time.threads));
  keep_the_cap(plan, considered);
  if (options.cap && std::ranges::none_of(considered, [&](const plan::Row& r) { return plan.may_choose(r); })) {
    plan::Row row = plan::make_plan(alone, options).row();  // lists of pairs may keep it
    consider(row);
  }
  const auto by_time = [](const plan::Row& a, const plan::Row& b) {
    return std::make_tuple(a.time->total_s, a.io.total()) < std::make_tuple(b.time->total_s, b.io.total());
  };
  std::stable_sort(considered.begin(), considered.end(), by_time);
  const auto may_choose = [&](const plan::Row& r) { return plan.may_choose(r); };
  const auto least = std::find_if(considered.begin(), considered.end(), may_choose);
  if (least == considered.end()) plan::throw_nothing_fits(plan);
  auto best = least, fewest = least;
  for (auto r = least; r != considered.end(); ++r) {
    if (!may_choose(*r)) continue;
    if (r->time->total_s <= kTie * least->time->total_s && r->io.total() < best->io.total()) best = r;
    if (fewest->io.total() > r->io.total()) fewest = r;
  }
  // Where tilings move the same words, this takes the one that the planner of words takes.
  for (auto r = considered.begin(); r != considered.end(); ++r)
    if (is_same(*r, fewest_words)) fewest = r;

  std::map<std::string_view, plan::Row> shown{{best->schedule, *best}};  // of the others the fastest tilings
  for (const plan::Row& row : considered) shown.try_emplace(row.schedule, row);
  for (auto& [name, row] : shown) plan.rows.push_back(std::move(row));
  std::stable_sort(plan.rows.begin(), plan.rows.end(), by_time);
  const auto chosen = std::find_if(plan.rows.begin(), plan.rows.end(),
                                   [&](const plan::Row& r) { return r.schedule == best->schedule; });
  plan::order_rows(plan, chosen);
  if (problem.forward_first())
    plan.forward = plan::forward_before(problem, options, [&](const Problem& forward, const plan::Options& before) {
      return make_fastest_plan(forward, before, time);
    });
  plan::compare_rows(plan);
  plan.reason = reason(plan, best == least, *fewest, modeller.rates(), time) + plan::note_of_order(problem);
  return plan;
}

/// The keys that blocks of some queries see, block by block: what a plan multiplies, whatever its tiles.
Words visited_keys(const Sizes& x) {
  constexpr index_t kQueries = 64;
  return sum_of_pairs(x, [](const Pairs& pairs) { return pairs.visited_keys(kQueries); });
}

double seconds(const plan::Plan& plan) {
  return plan.row().time->total_s + (plan.forward ? plan.forward->row().time->total_s : 0);
}

/// The plan in this order; nothing where the order is too much work to find, or its copies take more memory than may
/// be.
std::optional<plan::Plan> plan_in(PatternOrder order, double most_visits, Problem problem, const plan::Options& given,
                                  const TimeOptions& time) {
  problem.order = order;
  try {
    if (visited_keys(problem.sizes()).to_double() > most_visits) return std::nullopt;
    return fastest_in_order(problem, given, time);
  } catch (const InvalidProblem&) {
    throw;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The plan with queries and keys in place where that takes less time: natural order copies all that it leaves out one
/// query or key of.
plan::Plan in_place_if_faster(plan::Plan natural, const Problem& problem, const plan::Options& given,
                              const TimeOptions& time) {
  auto in_place = plan_in(PatternOrder::in_place, HUGE_VAL, problem, given, time);
  if (!in_place || seconds(*in_place) >= seconds(natural)) return natural;
  in_place->reason += fmt::format(
      "; queries and keys stay in place: the copies of natural order, which leaves out those that no pair has, would "
      "take {:.2f}x the time",
      seconds(natural) / seconds(*in_place));
  return std::move(*in_place);
}

}  // namespace

plan::Plan make_fastest_plan(const Problem& problem, const plan::Options& given, const TimeOptions& time) {
  const CoreMemo memo;
  const bool may_choose = given.reorder && problem.order == PatternOrder::natural && problem.may_reorder();
  plan::Plan natural;
  try {
    natural = fastest_in_order(problem, given, time);
  } catch (const MemoryError& natural_needs) {  // in place there are no copies
    if (!may_choose) throw;
    try {
      Problem ordered = problem;
      ordered.order = PatternOrder::in_place;
      plan::Plan in_place = fastest_in_order(ordered, given, time);
      in_place.reason += plan::kOnlyInPlace;
      return in_place;
    } catch (const MemoryError& needs) {
      throw needs.needed < natural_needs.needed ? needs : natural_needs;
    } catch (const Error&) {
      throw natural_needs;
    }
  }
  if (!may_choose) return natural;
  const Sizes x = problem.sizes();
  if (!has_pattern(x)) return natural;
  if (x.sequences->reordered()) natural = in_place_if_faster(std::move(natural), problem, given, time);
  if (problem.patterns.large()) {
    natural.reason += plan::kNoOtherOrder;
    return natural;
  }
  // Another order saves about as much time as it saves visits, and its copies take some.
  constexpr double kWorthPlanning = 0.8;
  const double most_visits = kWorthPlanning * visited_keys(x).to_double();
  std::optional<plan::Plan> best;
  for (const PatternOrder order : {PatternOrder::rcm, PatternOrder::jaccard})
    if (auto plan = plan_in(order, most_visits, problem, given, time);
        plan && seconds(*plan) < seconds(best ? *best : natural))
      best = std::move(plan);
  if (!best) return natural;
  best->reason += fmt::format("; queries and keys are taken in {} order; the natural order would take {:.2f}x the time",
                              name_of(best->problem.order), seconds(natural) / seconds(*best));
  return std::move(*best);
}

}  // namespace redblue
