#include "redblue/planner/candidates.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "redblue/kernels/pair_by_pair.hpp"
#include "redblue/masks/patterns.hpp"

namespace redblue {

namespace {

/// Heads for each thread that do not leave one idle for long.
constexpr index_t kFewHeads = 4;

/// Queries that see the same keys lie in groups, and so do keys that the same queries see: the lengths of those groups
/// that hold the most queries, and the most keys; 1 without a pattern, and of keys where fewer than `least` queries are
/// alike, for to look for them takes a while.
struct Alike {
  index_t queries = 1, keys = 1;
};
Alike alike(const Problem& problem, index_t least) {
  std::map<index_t, index_t> queries, keys;  // by the length of their groups
  const auto add = [](const RunLists& lists, std::map<index_t, index_t>& to) {
    lists.for_groups([&](Range group, std::span<const Range>) { to[group.size()] += group.size(); });
  };
  const auto usual = [](const std::map<index_t, index_t>& of) {
    const auto most =
        std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == of.end() ? 1 : most->first;
  };
  for (std::size_t k = 0; k < problem.patterns.size(); ++k) add(problem.patterns[k], queries);
  const index_t rows = usual(queries) * problem.group();
  if (rows < least) return {rows, 1};
  for (std::size_t k = 0; k < problem.patterns.size(); ++k) add(transposed(problem.patterns[k], problem.n_k), keys);
  return {rows, usual(keys)};
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

}  // namespace

std::vector<Candidate> candidates(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                                  int share) {
  Candidate o{std::max(Words(1), options.M / share), options.multiple};
  if (has_multiples(options)) return {o};
  std::vector<Candidate> list;
  const index_t panel = index_t{model::kRegisterVectors} * rates.lanes;
  const index_t scores = std::min(panel, problem.n_q * problem.group());  // of one key, made at a time
  const index_t bytes = rates.multiplies_bf16 ? 2 : static_cast<index_t>(rates.word_bytes);  // of a weight
  // Scores of single pairs take no room in a cache, and rows with many keys lose less at their ends.
  const bool scattered = are_scattered(problem, rates);
  // Few queries wait for memory, which falls silent between keys and values: more of each come in a piece.
  const bool few = problem.n_q * problem.group() <= rates.lanes / 2;
  for (const index_t q : {panel, 4 * panel}) {
    // One multiple that spans all is as any other.
    if (q > panel && problem.n_q * problem.group() <= panel) continue;
    bool spans = false;
    for (const index_t k : {16, 64, 128, 256, 512, 1024}) {
      if (spans) break;
      if (k > 512 && (!few || scattered)) continue;
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
      spans = k >= problem.n_k;
    }
  }
  return list;
}

std::vector<Candidate> blocks(const Problem& problem, const plan::Options& options, const model::Rates& rates,
                              int threads) {
  std::vector<Candidate> list;
  if (has_multiples(options)) return list;
  // Blocks of these many queries, and steps of these many keys, where `also` is for a step. A tangent holds the
  // directions of queries, too, and two tiles of weights.
  const index_t twice = problem.op == Operation::tangent ? 2 : 1;
  const auto block_of = [&](index_t queries, index_t keys, Words also) {
    list.push_back({std::min(options.M, Words(queries) * (twice * (problem.d + keys) + problem.d_v + 4) + also),
                    {queries, keys, options.multiple.feature}});
  };
  // Under a pattern of blocks: tiles of one block, of which all queries see all keys. Gradients hold four tiles of
  // keys.
  if (const Alike a = alike(problem, rates.lanes); std::min(a.queries, a.keys) >= rates.lanes)
    block_of(a.queries, a.keys,
             problem.op == Operation::forward ? Words(0)
                                              : Words(a.keys) * (Words(2) * (problem.d + problem.d_v) + a.queries));
  // Heads too few for all threads: as many blocks of queries, of one size, as keep them all at work.
  if (threads > 1 && problem.instances() < kFewHeads * threads)
    for (const index_t each : {1, 2, 4}) {
      const index_t rows = ceil_div(problem.n_q * problem.group(), each * threads);
      block_of(ceil_div(rows, rates.lanes) * rates.lanes, 128, (twice - 1) * 128 * problem.d);
    }
  return list;
}

}  // namespace redblue
