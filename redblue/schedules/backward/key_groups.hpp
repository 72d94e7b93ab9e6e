#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "redblue/schedules/pairs/index_words.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/schedules/passes/key_pass.hpp"

/// Blocks of keys in G groups that do not wait for each other. Each adds to a gradient of queries of its own, dQ or, in
/// double backward, LQ: to dQ itself for queries whose first key lies in the group, to a copy for the others.
namespace redblue::schedule {

struct GroupedKeyPass : KeyPass {
  index_t G = 1;  ///< groups of keys
  void tile_sizes(const auto& tile_size) {
    KeyPass::tile_sizes(tile_size);
    tile_size({.name = "G", .groups = true}, G);
  }
};

namespace detail {
/// The first key of each of G groups of keys, and their number. A cut lies between two of these blocks, where the pairs
/// before it come nearest to g/G of all; pairs_before(J) lie before block J. A group may be empty, but not the first.
template <class PairsBefore>
std::vector<index_t> cut_keys(const Blocks& units, index_t G, const PairsBefore& pairs_before) {
  const index_t T = units.count();
  const Words all = pairs_before(T);
  std::vector<index_t> first{0};
  for (index_t g = 1; g < G; ++g) {
    const index_t J = 1 + redblue::detail::first_that(T - 1, [&](index_t K) {
                        return (pairs_before(K + 1) + pairs_before(K + 2)) * G >= Words(2) * g * all;
                      });
    first.push_back(J < T ? units(J).begin : units.n);
  }
  first.push_back(units.n);
  return first;
}
}  // namespace detail

/// The number of groups. G is at most 8, so that dQ and its copies are no larger than all arrays of the problem, and
/// each group has at least 256 keys, mostly far more work than waking a worker. The words hardly depend on G.
inline index_t number_of_key_groups(const Sizes& x) { return std::clamp<index_t>(x.n_k / 256, 1, 8); }

/// The groups without a pattern. Without a mask cuts lie between whole blocks, under a mask at any multiple of 16 keys
/// (of Bc, where that is less), because there blocks are few and differ in their work. So the last block of a group may
/// be smaller, whatever the multiples.
class KeyGroups {
 public:
  KeyGroups(const Sizes& x, GroupedKeyPass t) : x_(x), t_(t) {
    const index_t unit = x.mask.full() ? t.Bc : std::min<index_t>(t.Bc, 16);
    first_ = detail::cut_keys({x.n_k, unit}, t.G,
                              [&](index_t J) { return Pairs{x.mask, x.n_q, std::min(J * unit, x.n_k)}.count(); });
  }
  Range operator()(index_t g) const {
    return {first_[static_cast<std::size_t>(g)], first_[static_cast<std::size_t>(g) + 1]};
  }

  /// f(keys) for the blocks of a group.
  template <class F>
  void for_blocks(index_t g, const F& f) const {
    const Range keys = (*this)(g);
    const Blocks blocks{keys.size(), t_.Bc};
    for (index_t J = 0; J < blocks.count(); ++J) f(blocks(J).shifted(keys.begin));
  }
  /// What all blocks meet.
  KeyVisits visits() const {
    KeyVisits all;
    for_each([&](Range keys) { all.add(of_keys(x_, keys), t_.Bc); });
    return all;
  }
  /// Their visits by queries whose first key lies in an earlier group.
  Words copied_visits() const {
    Words copied;
    for_each([&](Range keys) {
      Sizes earlier = of_keys(x_, keys);
      earlier.n_q = again(keys.begin).size();
      if (earlier.n_q == 0) return;
      earlier.n_k = earlier.pairs().keys_of({0, earlier.n_q}).end;
      copied += earlier.pairs().visited_rows(t_.Bc);
    });
    return copied;
  }
  /// The queries from the first to the last that see keys of two groups.
  Range summed() const {
    Range r{x_.n_q, x_.n_q};
    for_each([&](Range keys) {
      if (const Range both = again(keys.begin); both.size() > 0) r = {std::min(r.begin, both.begin), both.end};
    });
    return {r.begin, std::max(r.begin, r.end)};
  }
  /// words_of(sizes, own, copies) says what a block takes: block(its keys, queries that see them one after another),
  /// and prefetch(). `own`: does the group add to dQ? `copies`: to a copy?
  template <class WordsOf>
  std::vector<Phase> phases(const WordsOf& words_of) const {
    std::vector<Phase> list;
    for_each([&](Range keys) {
      const Range others = again(keys.begin);
      const bool own = x_.pairs().rows_of(keys).end > others.end;
      const Sizes group = of_keys(x_, keys);
      const auto words = words_of(group, own, others.size() > 0);
      const auto block = [&](index_t of, index_t rho) { return words.block(of, rho); };
      list.push_back({key_blocks_footprint(group, t_.Bc, block), words.prefetch()});
    });
    return list;
  }

  /// f(part, own) for parts of these queries, which see keys from the first of group g on: `own` says whether their
  /// first key is among those keys. Otherwise they see the first key of the group and the one before it.
  template <class F>
  void for_owners(index_t g, Range rows, const F& f) const {
    for_two_parts(rows, again((*this)(g).begin).end, f);
  }
  /// f(part) for parts of these queries that see a key of group g and one of an earlier group.
  template <class F>
  void for_copied(index_t g, Range rows, const F& f) const {
    if ((*this)(g).size() == 0) return;
    if (const Range part = intersection(rows, again((*this)(g).begin)); part.size() > 0) f(part);
  }

  /// These keys and the queries that see one of them, as a problem of its own.
  static Sizes of_keys(const Sizes& x, Range keys) { return part_of(x, x.pairs().rows_of(keys), keys); }
  /// What blocks of one of G groups are chosen for, whatever the number of workers.
  static Sizes typical(const Sizes& x, index_t G, index_t step) {
    if (x.mask.pattern != nullptr) return x;
    return of_keys(x, {0, std::min(x.n_k, ceil_div(ceil_div(x.n_k, G), step) * step)});
  }

 private:
  /// f(keys) for the groups that hold keys.
  template <class F>
  void for_each(const F& f) const {
    for (index_t g = 0; g < t_.G; ++g)
      if (const Range keys = (*this)(g); keys.size() > 0) f(keys);
  }
  /// The queries that see this key and the one before it.
  Range again(index_t key) const {
    if (key == 0 || key == x_.n_k) return {0, 0};
    return intersection(x_.pairs().rows_of({key - 1, key}), x_.pairs().rows_of({key, key + 1}));
  }

  const Sizes& x_;
  GroupedKeyPass t_;
  std::vector<index_t> first_;
};

/// The groups under a pattern. Cuts lie between whole blocks, and the pairs that these form are weighed, not those that
/// are seen: there may be many times as many.
class KeyGroupsOfPattern {
 public:
  KeyGroupsOfPattern(const Sizes& x, GroupedKeyPass t)
      : x_(x), t_(t), found_(x.mask.pattern->found("groups of keys", {t.Bc, t.G}, [&] { return walk(x, t); })) {}

  Range operator()(index_t g) const { return found_(g); }
  template <class F>
  void for_blocks(index_t g, const F& f) const {
    const Range keys = found_(g);
    const Blocks blocks = x_.pairs().key_blocks(t_.Bc);
    for (index_t J = keys.size() > 0 ? blocks.of(keys.begin) : blocks.count(); J < blocks.count(); ++J) {
      if (blocks(J).begin >= keys.end) return;
      f(blocks(J));
    }
  }
  KeyVisits visits() const { return key_visits(x_, t_.Bc); }
  Words copied_visits() const { return found_.copied_visits; }
  Range summed() const { return found_.summed; }
  template <class WordsOf>
  std::vector<Phase> phases(const WordsOf& words_of) const {
    std::vector<Phase> list;
    for (const Group& group : found_.groups) {
      const auto words = words_of(x_, group.own, group.copies);
      const Words footprint = group.longest.largest([&](index_t keys, index_t rho) { return words.block(keys, rho); });
      if (footprint > 0) list.push_back({footprint, words.prefetch()});
    }
    return list;
  }
  /// For the sum of copies: of each block of queries and each copy the number of queries that pass, and which.
  IndexWords index() const {
    const Words reads = c(summed().size(), t_.Bc) * (t_.G - 1) + found_.copied_rows;
    return {reads, std::min<Words>(1, reads)};
  }

  template <class F>
  void for_owners(index_t g, Range rows, const F& f) const {
    const index_t begin = found_(g).begin;
    for_alike(*x_.mask.pattern, rows, [&](std::span<const Range> runs) { return runs.front().begin >= begin; }, f);
  }
  template <class F>
  void for_copied(index_t g, Range rows, const F& f) const {
    const Range keys = found_(g);
    const auto copied = [&](std::span<const Range> runs) {
      return !runs.empty() && runs.front().begin < keys.begin && meet(runs, keys);
    };
    for_alike(*x_.mask.pattern, rows, copied, [&](Range part, bool is) {
      if (is) f(part);
    });
  }

 private:
  struct Group {
    MostBySize longest;                ///< the most queries one after another that see a block of its keys
    bool own = false, copies = false;  ///< does it add to dQ, and to a copy?
  };
  /// What a walk over the pattern finds.
  struct Found {
    std::vector<index_t> first;
    std::vector<Group> groups;
    Words copied_visits, copied_rows;
    Range summed;

    Range operator()(index_t g) const {
      return {first[static_cast<std::size_t>(g)], first[static_cast<std::size_t>(g) + 1]};
    }
    std::size_t group_of(index_t key) const {
      return static_cast<std::size_t>(std::ranges::upper_bound(first, key) - first.begin()) - 1;
    }
    /// Takes in rows that see these keys, one at least.
    void add(const Blocks& blocks, Range rows, std::span<const Range> runs) {
      std::size_t last = group_of(runs.front().begin);
      groups[last].own = true;
      const index_t own_end = first[last + 1];
      if (runs.back().end <= own_end) return;
      summed = {summed.size() > 0 ? summed.begin : rows.begin, rows.end};
      index_t met = blocks.of(own_end);  // the blocks before this one are of the own group, or counted
      for (const Range& run : runs) {
        if (run.end <= own_end) continue;
        const index_t end = blocks.of(run.end - 1) + 1;
        copied_visits += Words(rows.size()) * std::max<index_t>(0, end - std::max(blocks.of(run.begin), met));
        met = end;
        for (std::size_t g = group_of(std::max(run.begin, own_end)); first[g] < run.end; ++g) {
          if (g == last || first[g] == first[g + 1]) continue;
          groups[g].copies = true;
          copied_rows += rows.size();
          last = g;
        }
      }
    }
  };

  static Found walk(const Sizes& x, GroupedKeyPass t) {
    const Blocks blocks = x.pairs().key_blocks(t.Bc);
    std::vector<Words> before{0};  // pairs that the blocks before each form
    std::vector<index_t> longest;
    for (index_t J = 0; J < blocks.count(); ++J) {
      const Runs seeing = x.pairs().runs_of_rows(blocks(J));
      before.push_back(before.back() + Words(blocks(J).size()) * seeing.count());
      longest.push_back(seeing.longest());
    }
    Found found;
    found.first = detail::cut_keys(blocks, t.G, [&](index_t J) { return before[static_cast<std::size_t>(J)]; });
    found.groups.resize(static_cast<std::size_t>(t.G));
    for (index_t J = 0; J < blocks.count(); ++J)
      found.groups[found.group_of(blocks(J).begin)].longest.add(blocks(J).size(), longest[static_cast<std::size_t>(J)]);
    x.mask.pattern->rows().for_groups([&](Range rows, std::span<const Range> runs) {
      if (!runs.empty()) found.add(blocks, rows, runs);
    });
    return found;
  }

  const Sizes& x_;
  GroupedKeyPass t_;
  const Found& found_;
};

/// f(groups): what holds the groups of the problem, a KeyGroups or a KeyGroupsOfPattern.
template <class F>
decltype(auto) with_key_groups(const Sizes& x, GroupedKeyPass t, const F& f) {
  return x.mask.pattern == nullptr ? f(KeyGroups(x, t)) : f(KeyGroupsOfPattern(x, t));
}

/// A gradient of queries that groups of keys add to, and its copies: dQ and dQg, LQ and LQg.
struct GroupSums {
  SlowMatrix sum, copies;

  /// Where group g adds what these queries get, which are its own or not.
  Block of(const Sizes& x, index_t G, index_t g, Range I, bool own) const {
    return own ? sum.rows(I) : copies.rows((G - 1) * x.row0 + (g - 1) * x.n_q + I.begin, I.size());
  }
};
/// What groups read and write there, and then the sum of copies: V - U visits of the sum and U of copies, U those of
/// queries whose first key lies in an earlier group; and r queries, from the first to the last that see two groups.
template <class Groups>
Io group_sums_io(const Sizes& x, const Groups& groups, SlowArray sum, SlowArray copies) {
  const Words visits = groups.visits().queries, copied = groups.copied_visits(), rows = groups.summed().size();
  Words hidden;
  for_rows_without_keys(x.pairs(), [&](Range I) { hidden += I.size(); });
  return Io()
      .read(sum, (visits - copied - (x.n_q - hidden) + rows) * x.d)
      .write(sum, (visits - copied + hidden + rows) * x.d)
      .write(copies, copied * x.d)
      .read(copies, copied * x.d);
}
/// The phase that adds copies to the sum, if there is one.
template <class Groups>
std::optional<Phase> add_copies_phase(const Sizes& x, GroupedKeyPass t, const Groups& groups, SlowArray sum,
                                      SlowArray copies) {
  const Words part = x.word(copies);
  const index_t rows = groups.summed().size();
  if (rows == 0) return std::nullopt;
  return Phase{x.tile(sum, std::min(t.Bc, rows), x.d) + part, part};
}
/// Copies are added in order, so that the result has the same bits for any number of workers.
template <class M, class Groups>
void add_copies(M& m, const Sizes& x, GroupedKeyPass t, const Groups& groups, const GroupSums& sums) {
  const Range all = groups.summed();
  m.each(ceil_div(all.size(), t.Bc), [&](auto& w, index_t block) {
    const index_t begin = all.begin + block * t.Bc;
    const Range I{begin, std::min(begin + t.Bc, all.end)};
    const auto sum = w.load(sums.sum.rows(I));
    for (index_t g = 1; g < t.G; ++g)
      groups.for_copied(g, I, [&](Range part) {
        w.compute(kernel::Add{}, sum.rows(part.begin - I.begin, part.size()),
                  w.stream(sums.of(x, t.G, g, part, false)));
      });
    w.store(sum, sums.sum.rows(I));
  });
}

}  // namespace redblue::schedule
