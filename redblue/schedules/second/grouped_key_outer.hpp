#pragma once
#include <vector>

#include "redblue/schedules/backward/key_groups.hpp"
#include "redblue/schedules/second/score_sweeps.hpp"

namespace redblue::schedule {

/// Gradients of gradients in the two sweeps of fused_key_outer, with the blocks of keys of the second in G groups that
/// do not wait for each other, as grouped_key_outer of the backward pass has them: each group revisits an LQ of its
/// own, LQ itself for queries whose first key lies in it, a copy LQg in slow memory for the others. Then the copies are
/// added to LQ, in order. Thus many workers can share one head, and the result has the same bits for any number.
///   1  as in fused_key_outer
///   2  reads and writes those of fused_key_outer on the blocks of all groups
///   3  r d reads and r d writes more, r the number of queries from the first to the last that see keys of two groups
/// With G = 1 it is fused_key_outer.
struct SecondGroupedKeyOuter : Defaults {
  using Operands = SecondOperands;
  static constexpr std::string_view name = "grouped_key_outer";
  static constexpr std::string_view idea = "a sweep for LdO, and groups of resident keys, each with an LQ of its own";
  static constexpr Traits traits{.masks = true,
                                 .patterns = true,
                                 .modifiers = true,
                                 .rewrites_outputs = true,
                                 .lse_gradient = true,
                                 .products = 15};
  static constexpr std::array workspace{SlowArray::D, SlowArray::Hm, SlowArray::Xm, SlowArray::LQg};

  struct Tiling {
    QueryPass outputs;
    GroupedKeyPass keys;
    void tile_sizes(const auto& tile_size) {
      outputs.tile_sizes(tile_size);
      keys.tile_sizes(tile_size);
    }
  };
  static index_t copies(const Tiling& t) { return t.keys.G - 1; }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query), k = smallest_tile(x.n_k, m.key);
    return {{q, k}, {{k, q}, 1}};
  }
  /// All depends on shape and M alone, so that results do not depend on the number of workers.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t G = number_of_key_groups(x);
    const auto outputs = choose_query_pass(
        x, limits, [&](QueryPass t) { return output_sweep_phase(x, t); },
        prices_with_moving_sinks(x, kSecondMoving, limits));
    const Sizes group = KeyGroups::typical(x, G, limits.multiple.key);
    const auto keys = choose_second_keys(
        group, limits, [&](KeyPass t) { return key_sweep_phase(group, t, room_for_lq(group)); },
        second_queries_and_lq_io(x));
    if (!outputs || !keys) return std::nullopt;
    return Tiling{evenly(x, *outputs, limits.multiple.query, std::min<index_t>(G, 4)),
                  {*keys, std::min(G, ceil_div(x.n_k, keys->Bc))}};
  }
  /// Smaller blocks of queries, whose number is such a multiple, so that two or four workers have equally many.
  static QueryPass evenly(const Sizes& x, QueryPass t, index_t step, index_t multiple) {
    if (multiple == 1) return t;
    const index_t blocks = ceil_div(ceil_div(x.n_q, t.Br), multiple) * multiple;
    return {std::min(t.Br, ceil_div(ceil_div(x.n_q, blocks), step) * step), t.bc};
  }

  static std::vector<Phase> phases(const Sizes& x, const Tiling& t) {
    std::vector<Phase> list{output_sweep_phase(x, t.outputs)};
    const auto words_of = [&](const Sizes& group, bool, bool) {
      return KeySweepWords(group, t.keys, room_for_lq(group));
    };
    with_key_groups(x, t.keys, [&](const auto& groups) {
      const std::vector<Phase> sweeps = groups.phases(words_of);
      list.insert(list.end(), sweeps.begin(), sweeps.end());
      if (const auto sum = add_copies_phase(x, t.keys, groups, SlowArray::LQ, SlowArray::LQg)) list.push_back(*sum);
    });
    return list;
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) {
    return with_key_groups(x, t.keys, [&](const auto& groups) {
      return output_sweep_io(x, t.outputs.Br) + key_sweep_io(x, groups.visits()) +
             group_sums_io(x, groups, SlowArray::LQ, SlowArray::LQg);
    });
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    const Words pairs = with_key_groups(x, t.keys, [](const auto& groups) { return groups.visits().pairs; });
    return x.pairs().pairs_of_rows(t.outputs.Br) * (Words(3) * x.d + Words(2) * x.d_v) +
           pairs * (Words(7) * x.d + Words(3) * x.d_v);
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_phases({row_pass_index(x, t.outputs.Br).words(), key_pass_index(x, t.keys.Bc).words(),
                            KeyGroupsOfPattern(x, t.keys).index()});
  }

  template <Machine M>
  static void run(M& m, const SecondOperands& x, const Tiling& t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks rows = pairs.row_blocks(t.outputs.Br);
    m.each(rows.count(), [&](auto& w, index_t i) { output_sweep(w, x, rows(i), t.outputs.bc); });
    for_rows_without_keys(pairs, [&](Range I) { m.update(kernel::ZeroOver{}, x.LQ.rows(I)); });
    with_key_groups(x.shape, t.keys, [&](const auto& groups) { run_groups(m, x, t.keys, groups); });
  }

 private:
  template <class M, class Groups>
  static void run_groups(M& m, const SecondOperands& x, GroupedKeyPass t, const Groups& groups) {
    const Sizes& s = x.shape;
    const GroupSums sums{x.LQ, x.LQg};
    for_blocks_of_keys(m, s, t.G, [&](auto& w, index_t g) {
      const Range keys = groups(g);
      groups.for_blocks(g, [&](Range J) {
        key_sweep(w, x, J, t.br, [&](auto& v, Range I, const Arg& G, const Arg& dS, const auto& K_j, const auto& gK_j) {
          add_to_lq(v, x, I, G, dS, K_j, gK_j, [&](const auto& f) {
            for_first_visits(s.pairs(), I, J, keys.begin, [&](Range rows, bool first) {
              groups.for_owners(g, rows, [&](Range part, bool own) { f(part, first, sums.of(s, t.G, g, part, own)); });
            });
          });
        });
      });
    });
    add_copies(m, s, t, groups, sums);
  }
};

}  // namespace redblue::schedule
