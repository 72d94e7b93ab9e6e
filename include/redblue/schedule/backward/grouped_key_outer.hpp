#pragma once
#include <span>
#include <vector>

#include "redblue/schedule/parts/cores.hpp"
#include "redblue/schedule/parts/key_pass.hpp"

namespace redblue::schedule {

/// e1 with its blocks of keys in G groups that do not wait for each other. Each group revisits its own dQ: dQ itself
/// for queries whose first key lies in it, a copy dQg in slow memory for the others. Then the copies are added to dQ,
/// in order. Thus many workers can share one head without atomics, and the result has the same bits for any number of
/// workers.
///   reads and writes: those of fused_key_outer on the blocks of all groups, plus r d reads and r d writes, where r is
///   the number of queries from the first to the last that see keys of two groups
///     dQ   reads (V - U - n_q + r) d   writes (V - U + r) d     dQg   reads and writes U d
///     V = those that all blocks see, U = those of them whose first key lies in an earlier group
///   footprint the largest of fused_key_outer on the keys of a group, and min(Bc, r) d + 1 for the sum
/// With G = 1 it is fused_key_outer.
struct GroupedKeyOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "grouped_key_outer";
  static constexpr std::string_view idea = "groups of resident keys and values, each with a dQ of its own";
  static constexpr Traits traits{
      .masks = true, .modifiers = true, .any_score = true, .rewrites_outputs = true, .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::dQg};

  struct Tiling : KeyPass {
    index_t G = 1;  ///< groups of keys
    void knobs(const auto& knob) {
      KeyPass::knobs(knob);
      knob({.name = "G", .groups = true}, G);
    }
  };
  static index_t copies(Tiling t) { return t.G - 1; }

  /// The first key of each group, and n_k. A cut lies where the visible pairs before it come nearest to g/G of all
  /// pairs: without a mask between whole blocks, under a mask at any multiple of 16 keys (of Bc, where that is less),
  /// because there blocks are few and differ in their work. So the last block of a group may be smaller, whatever the
  /// multiples. A group may be empty, but not the first.
  static std::vector<index_t> first_keys(const Sizes& x, Tiling t) {
    const index_t unit = x.mask.full() ? t.Bc : std::min<index_t>(t.Bc, 16), T = ceil_div(x.n_k, unit);
    const auto pairs_before = [&](index_t J) { return Pairs{x.mask, x.n_q, std::min(J * unit, x.n_k)}.count(); };
    const Words all = pairs_before(T);
    std::vector<index_t> first{0};
    for (index_t g = 1; g < t.G; ++g) {
      const index_t J = 1 + redblue::detail::first_that(T - 1, [&](index_t K) {
                          return (pairs_before(K + 1) + pairs_before(K + 2)) * t.G >= Words(2) * g * all;
                        });
      first.push_back(std::min(J * unit, x.n_k));
    }
    first.push_back(x.n_k);
    return first;
  }
  /// The groups that hold keys, each as a problem of its own: the queries that see one of its keys.
  static std::vector<Sizes> groups(const Sizes& x, std::span<const index_t> first) {
    std::vector<Sizes> list;
    for (std::size_t g = 0; g + 1 < first.size(); ++g)
      if (const Range keys{first[g], first[g + 1]}; keys.size() > 0) list.push_back(of_keys(x, keys));
    return list;
  }
  static Sizes of_keys(const Sizes& x, Range keys) { return part_of(x, x.pairs().rows_of(keys), keys); }
  /// The queries from the first to the last that see keys of two groups.
  static Range summed(const Sizes& x, std::span<const index_t> first) {
    Range r{x.n_q, x.n_q};
    for (std::size_t g = 1; g + 1 < first.size(); ++g)
      if (const Range both = again(x, first[g]); both.size() > 0) r = {std::min(r.begin, both.begin), both.end};
    return {r.begin, std::max(r.begin, r.end)};
  }
  /// The queries that see this key and the one before it.
  static Range again(const Sizes& x, index_t key) {
    if (key == 0 || key == x.n_k) return {0, 0};
    return intersection(x.pairs().rows_of({key - 1, key}), x.pairs().rows_of({key, key + 1}));
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {{smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)}, 1};
  }
  /// G is at most 8, so that dQ and its copies are no larger than all arrays of the problem, and each group has at
  /// least 256 keys, far more work than waking a worker. The words hardly depend on G. Blocks are those that e1 would
  /// choose for n_k / G keys. All depends on shape and M alone, so that results do not depend on the number of workers.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t G = std::clamp<index_t>(x.n_k / 256, 1, 8), step = limits.multiple.key;
    const Range of_one{0, std::min(x.n_k, ceil_div(ceil_div(x.n_k, G), step) * step)};
    const auto keys = choose_key_pass(of_keys(x, of_one), limits, revisited_queries_io(x),
                                      std::max(x.word(SlowArray::dQ), x.word(SlowArray::dQg)));
    if (!keys || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys, std::min(G, ceil_div(x.n_k, keys->Bc))};
  }

  static std::vector<Phase> phases(const Sizes& x, Tiling t) {
    std::vector<Phase> list{output_dots_phase(x)};
    const std::vector<index_t> first = first_keys(x, t);
    for (const Sizes& group : groups(x, first)) {
      const bool others = group.key0 > x.key0 && again(x, group.key0 - x.key0).size() > 0;
      const bool own = x.pairs().rows_of({group.key0 - x.key0, group.key0 - x.key0 + group.n_k}).end >
                       again(x, group.key0 - x.key0).end;
      list.push_back(key_pass_phase(
          group, t, std::max(own ? x.word(SlowArray::dQ) : Words(0), others ? x.word(SlowArray::dQg) : Words(0))));
    }
    const Words part = x.word(SlowArray::dQg);
    if (const index_t rows = summed(x, first).size(); rows > 0)
      list.push_back({x.tile(SlowArray::dQ, std::min(t.Bc, rows), x.d) + part, part});
    return list;
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const std::vector<index_t> first = first_keys(x, t);
    KeyVisits all;
    Words copied;  // visits of queries whose first key lies in an earlier group
    for (const Sizes& group : groups(x, first)) {
      all.add(group, t.Bc);
      Sizes earlier = group;
      earlier.n_q = again(x, group.key0 - x.key0).size();
      if (earlier.n_q == 0) continue;
      earlier.n_k = earlier.pairs().keys_of({0, earlier.n_q}).end;
      copied += earlier.pairs().visited_rows(t.Bc);
    }
    const Words rows = summed(x, first).size();
    return output_dots_io(x) + key_pass_io(x, all) +
           Io().read(SlowArray::dQ, (all.queries - copied - x.n_q + rows) * x.d)
               .write(SlowArray::dQ, (all.queries - copied + rows) * x.d)
               .write(SlowArray::dQg, copied * x.d)
               .read(SlowArray::dQg, copied * x.d);
  }
  static Words macs(const Sizes& x, Tiling t) {
    Words pairs = 0;
    for (const Sizes& group : groups(x, first_keys(x, t))) pairs += group.pairs().pairs_of_keys(t.Bc);
    return pairs * (Words(3) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    const Sizes& s = x.shape;
    const std::vector<index_t> first = first_keys(s, t);
    const auto group_of = [&](index_t g) {
      return Range{first[static_cast<std::size_t>(g)], first[static_cast<std::size_t>(g) + 1]};
    };
    const auto copy = [&](index_t g, Range I) {
      return x.dQg.rows((t.G - 1) * s.row0 + (g - 1) * s.n_q + I.begin, I.size());
    };
    for_blocks_of_keys(m, s, t.G, [&](auto& w, index_t g) {
      const Range keys = group_of(g), others = again(s, keys.begin);  // queries whose first keys are in other groups
      for (index_t j = keys.begin; j < keys.end; j += t.Bc) {
        const Range J{j, std::min(j + t.Bc, keys.end)};
        key_pass(w, x, J, t.br, [&](auto& v, Range I, const Arg& dS_ij, const auto& K_j) {
          const index_t own = std::clamp(others.end, I.begin, I.end);
          if (const Range r{I.begin, own}; r.size() > 0)
            add_query_gradients(v, x, {I, J}, r, j == keys.begin, copy(g, r), dS_ij, K_j);
          if (const Range r{own, I.end}; r.size() > 0)
            for_first_visits(s.pairs(), r, J, [&](Range part, bool first) {
              add_query_gradients(v, x, {I, J}, part, first, x.dQ.rows(part), dS_ij, K_j);
            });
        });
      }
    });
    const Range all = summed(s, first);
    m.each(ceil_div(all.size(), t.Bc), [&](auto& w, index_t block) {
      const index_t begin = all.begin + block * t.Bc;
      const Range I{begin, std::min(begin + t.Bc, all.end)};
      const auto dQ_i = w.load(x.dQ.rows(I));
      for (index_t g = 1; g < t.G; ++g) {
        if (group_of(g).size() == 0) continue;
        if (const Range r = intersection(I, again(s, group_of(g).begin)); r.size() > 0)
          w.compute(kernel::Add{}, dQ_i.rows(r.begin - I.begin, r.size()), w.stream(copy(g, r)));
      }
      w.store(dQ_i, x.dQ.rows(I));
    });
  }
};

}  // namespace redblue::schedule
