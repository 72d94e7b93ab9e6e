#pragma once
#include <vector>

#include "redblue/schedule/parts/key_pass.hpp"

namespace redblue::schedule {

/// e1 with its blocks of keys in G groups that do not wait for each other. Each group revisits its own dQ: the first
/// one dQ itself, the others a copy dQg in slow memory. Then the copies are added to dQ, in order. Thus many workers
/// can share one head without atomics, and the result has the same bits for any number of workers.
///   reads and writes: those of fused_key_outer on the blocks of all groups, plus r d reads and r d writes, where
///   r queries see a key of a later group
///     dQ   reads (v - s + r) d   writes (n_q - s + v + r) d     dQg   reads and writes (V - v) d
///     s queries see a key, v = those that the blocks of the first group see, V = those that all blocks see
///   footprint the largest of fused_key_outer on the keys of a group, and min(Bc, r) d + 1 for the sum
/// With G = 1 it is fused_key_outer.
struct GroupedKeyOuterBackward : Defaults {
  using Operands = BackwardOperands;
  static constexpr std::string_view name = "grouped_key_outer";
  static constexpr std::string_view idea = "groups of resident keys and values, each with a dQ of its own";
  static constexpr Traits traits{.masks = true, .any_score = true, .rewrites_outputs = true, .products = 5};
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
    const index_t unit = x.mask.causal ? std::min<index_t>(t.Bc, 16) : t.Bc, T = ceil_div(x.n_k, unit);
    const auto pairs_before = [&](index_t J) { return visible_pairs(x.mask, x.n_q, std::min(J * unit, x.n_k)); };
    const Words all = pairs_before(T);
    std::vector<index_t> first{0};
    for (index_t g = 1; g < t.G; ++g) {
      const index_t J = 1 + detail::first_that(T - 1, [&](index_t K) {
                          return (pairs_before(K + 1) + pairs_before(K + 2)) * t.G >= Words(2) * g * all;
                        });
      first.push_back(std::min(J * unit, x.n_k));
    }
    first.push_back(x.n_k);
    return first;
  }
  /// The groups that hold keys, each as a problem of its own.
  static std::vector<Sizes> groups(const Sizes& x, Tiling t) {
    const std::vector<index_t> first = first_keys(x, t);
    std::vector<Sizes> list;
    for (std::size_t g = 0; g + 1 < first.size(); ++g) {
      Sizes group = x;
      group.n_k = first[g + 1] - first[g];
      group.mask.offset -= first[g];
      if (group.n_k > 0) list.push_back(group);
    }
    return list;
  }
  static Sizes leading_keys(Sizes x, index_t keys) {
    x.n_k = std::min(keys, x.n_k);
    return x;
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return {{smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)}, 1};
  }
  /// G is at most 8, so that dQ and its copies are no larger than all arrays of the problem, and each group has at
  /// least 256 keys, far more work than waking a worker. The words hardly depend on G. Blocks are those that e1 would
  /// choose for n_k / G keys. All depends on shape and M alone, so that results do not depend on the number of workers.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const index_t G = std::clamp<index_t>(x.n_k / 256, 1, 8), step = limits.multiple.key;
    const auto keys = choose_key_pass(leading_keys(x, ceil_div(ceil_div(x.n_k, G), step) * step), limits,
                                      std::max(x.word(SlowArray::dQ), x.word(SlowArray::dQg)));
    if (!keys || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys, std::min(G, ceil_div(x.n_k, keys->Bc))};
  }

  static std::vector<Phase> phases(const Sizes& x, Tiling t) {
    const std::vector<Sizes> all = groups(x, t);
    std::vector<Phase> list{output_dots_phase(x), zero_unseeing_phase(x)};
    for (const Sizes& group : all)  // the first group adds to dQ itself, the others to parts of it
      list.push_back(key_pass_phase(group, t, x.word(list.size() == 2 ? SlowArray::dQ : SlowArray::dQg)));
    const Words part = x.word(SlowArray::dQg);
    if (const index_t summed = queries_seeing(x, all.front().n_k); summed > 0)
      list.push_back({x.tile(SlowArray::dQ, std::min(t.Bc, summed), x.d) + part, part});
    return list;
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const std::vector<Sizes> all = groups(x, t);
    Words visits = 0;
    for (const Sizes& group : all) visits += visited_queries(group, t.Bc);
    const Words of_first = visited_queries(all.front(), t.Bc);
    const Words seeing = queries_seeing(x, 0), summed = queries_seeing(x, all.front().n_k);
    return output_dots_io(x) + key_pass_io(x, visits) +
           Io().read(SlowArray::dQ, (of_first - seeing + summed) * x.d)
               .write(SlowArray::dQ, (x.n_q - seeing + of_first + summed) * x.d)
               .write(SlowArray::dQg, (visits - of_first) * x.d)
               .read(SlowArray::dQg, (visits - of_first) * x.d);
  }
  static Words macs(const Sizes& x, Tiling t) {
    Words pairs = 0;
    for (const Sizes& group : groups(x, t)) pairs += visited_query_pairs(group, t.Bc);
    return pairs * (Words(3) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const BackwardOperands& x, Tiling t) {
    output_dots(m, x, [&](const Sizes& s) { return footprint(s, t); });
    zero_unseeing(m, x);
    const auto first = first_keys(x.shape, t);
    const auto key_of = [&](index_t g) { return first[static_cast<std::size_t>(g)]; };
    const auto dQ_of = [&](index_t g, index_t i, index_t rows) {
      return g == 0 ? x.dQ.rows(i, rows) : x.dQg.rows((g - 1) * x.shape.n_q + i, rows);
    };
    m.each(t.G, [&](auto& w, index_t g) {
      for (index_t j = key_of(g); j < key_of(g + 1); j += t.Bc)
        key_pass(w, x, j, std::min(t.Bc, key_of(g + 1) - j), t.br,
                 [&](auto& v, index_t i, index_t rows, auto& dS_ij, auto& K_j) {
                   v.update(kernel::GemmOver{false, false, j == key_of(g), x.shape.mask, i, j}, dQ_of(g, i, rows),
                            dS_ij, K_j);
                 });
    });
    const index_t summed = queries_seeing(x.shape, key_of(1)), start = x.shape.n_q - summed;
    m.each(ceil_div(summed, t.Bc), [&](auto& w, index_t block) {
      const index_t i = start + block * t.Bc, end = std::min(i + t.Bc, x.shape.n_q);
      const auto dQ_i = w.load(dQ_of(0, i, end - i));
      for (index_t g = 1; g < t.G; ++g) {
        const index_t row = std::max(i, x.shape.n_q - queries_seeing(x.shape, key_of(g)));
        if (key_of(g) < key_of(g + 1) && row < end)
          w.compute(kernel::Add{}, dQ_i.rows(row - i, end - row), w.stream(dQ_of(g, row, end - row)));
      }
      w.store(dQ_i, dQ_of(0, i, end - i));
    });
  }
};

}  // namespace redblue::schedule
