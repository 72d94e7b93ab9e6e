#pragma once
#include <vector>

#include "redblue/schedules/backward/key_groups.hpp"

namespace redblue::schedule {

/// e1 with its blocks of keys in G groups that do not wait for each other. Each group revisits its own dQ: dQ itself
/// for queries whose first key lies in it, a copy dQg in slow memory for the others. Then the copies are added to dQ,
/// in order. Thus many workers can share one head without atomics, and the result has the same bits for any number of
/// workers.
///   reads and writes: those of fused_key_outer on the blocks of all groups, plus r d reads and r d writes, where r is
///   the number of queries from the first to the last that see keys of two groups
///     dQ   reads (V - U - n_q + r) d   writes (V - U + r) d     dQg   reads and writes U d
///     V = those that all blocks see, U = those of them whose first key lies in an earlier group
///   (under a pattern n_q counts the queries that see a key; dQ of the others is written once, as 0)
///   footprint the largest of fused_key_outer on the keys of a group, and min(Bc, r) d + 1 for the sum
/// With G = 1 it is fused_key_outer.
struct GroupedKeyOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "grouped_key_outer";
  static constexpr std::string_view idea = "groups of resident keys and values, each with a dQ of its own";
  static constexpr Traits traits{.masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .any_score = true,
                                 .rewrites_outputs = true,
                                 .lse_gradient = true,
                                 .products = 5};
  static constexpr std::array workspace{SlowArray::D, SlowArray::dQg};

  using Tiling = GroupedKeyPass;
  static index_t copies(Tiling t) { return t.G - 1; }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {{smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)}, 1};
  }
  /// Blocks are those that e1 would choose for n_k / G keys. All depends on shape and M alone, so that results do not
  /// depend on the number of workers.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t G = number_of_key_groups(x);
    const auto keys = choose_key_pass(KeyGroups::typical(x, G, limits.multiple.key), limits, revisited_queries_io(x),
                                      std::max(x.word(SlowArray::dQ), x.word(SlowArray::dQg)));
    if (!keys || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys, std::min(G, ceil_div(x.n_k, keys->Bc))};
  }

  static std::vector<Phase> phases(const Sizes& x, Tiling t) {
    std::vector<Phase> list{output_dots_phase(x)};
    const auto words_of = [&](const Sizes& group, bool own, bool copies) {  // a word of dQ, of a copy, or of either
      return KeyPassWords(group, t,
                          std::max(own ? x.word(SlowArray::dQ) : Words(0), copies ? x.word(SlowArray::dQg) : Words(0)));
    };
    with_key_groups(x, t, [&](const auto& groups) {
      const std::vector<Phase> passes = groups.phases(words_of);
      list.insert(list.end(), passes.begin(), passes.end());
      if (const auto sum = add_copies_phase(x, t, groups, SlowArray::dQ, SlowArray::dQg)) list.push_back(*sum);
    });
    return list;
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    return with_key_groups(x, t, [&](const auto& groups) {
      return output_dots_io(x) + key_pass_io(x, groups.visits()) +
             group_sums_io(x, groups, SlowArray::dQ, SlowArray::dQg);
    });
  }
  static Words macs(const Sizes& x, Tiling t) {
    const Words pairs = with_key_groups(x, t, [](const auto& groups) { return groups.visits().pairs; });
    return pairs * (Words(3) * x.d + Words(2) * x.d_v);
  }
  static IndexWords index(const Sizes& x, Tiling t) {
    return index_of_phases({key_pass_index(x, t.Bc).words(), KeyGroupsOfPattern(x, t).index()});
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    for_rows_without_keys(x.shape.pairs(), [&](Range I) { m.update(kernel::ZeroOver{}, x.dQ.rows(I)); });
    with_key_groups(x.shape, t, [&](const auto& groups) { run_groups(m, x, t, groups); });
  }

 private:
  template <class M, class Groups>
  static void run_groups(M& m, const BackwardOperands& x, Tiling t, const Groups& groups) {
    const Sizes& s = x.shape;
    const GroupSums sums{x.dQ, x.dQg};
    for_blocks_of_keys(m, s, t.G, [&](auto& w, index_t g) {
      const Range keys = groups(g);
      groups.for_blocks(g, [&](Range J) {
        key_pass(w, x, J, t.br, [&](auto& v, Range I, const Arg& dS_ij, const auto& K_j) {
          for_first_visits(s.pairs(), I, J, keys.begin, [&](Range rows, bool first) {
            groups.for_owners(g, rows, [&](Range part, bool own) {
              add_query_gradients(v, x, {I, J}, part, first, sums.of(s, t.G, g, part, own), dS_ij, K_j);
            });
          });
        });
      });
    });
    add_copies(m, s, t, groups, sums);
  }
};

}  // namespace redblue::schedule
