#pragma once
#include "redblue/schedule/key_pass.hpp"

namespace redblue::schedule {

/// e1 with its blocks of keys in G groups that do not wait for each other: each revisits a dQ of its own, the first dQ
/// itself, the others a copy dQg in slow memory; then the copies are added to dQ, in order. Many workers on one head,
/// without atomics, and the same bits for any number of them.
///   reads and writes those of fused_key_outer, and r d more of each: r queries see a key of a later group
///     dQ   reads (v - s + r) d   writes (n_q - s + v + r) d     dQg   reads and writes (T n_q - v) d
///     s queries see a key, v = those that the blocks of the first group see, T n_q = those that all blocks see
///   footprint of fused_key_outer; the sum holds min(Bc, n_q) d + 1, which is never more
/// With G = 1 it is fused_key_outer.
struct GroupedKeyOuterBackward {
  using Operands = Backward;
  static constexpr std::string_view name = "grouped_key_outer";
  static constexpr std::string_view idea = "groups of resident keys and values, each with a dQ of its own";
  static constexpr bool small_cache = false;
  static constexpr int products = 5;
  static constexpr bool stable = true;
  static constexpr bool masks = true;
  static constexpr bool any_score = true;
  static constexpr bool rewrites_outputs = true;
  static constexpr std::array workspace{SlowArray::D, SlowArray::dQg};

  struct Tiling : KeyPass {
    index_t G = 1;  ///< groups of keys
    std::vector<Knob> knobs() const { return {{"Bc", Bc}, {"br", br}, {"G", G}}; }
  };
  static index_t copies(Tiling t) { return t.G - 1; }

  /// The first key of each group, and n_k: blocks are cut where the pairs before the middle of a block pass g/G of all,
  /// so that groups have much the same work under a mask too. A group may be empty, the first never is.
  static std::vector<index_t> first_keys(const AttentionShape& x, Tiling t) {
    const index_t T = ceil_div(x.n_k, t.Bc);
    const auto pairs_before = [&](index_t J) { return visited_query_pairs(leading_keys(x, J * t.Bc), t.Bc); };
    const Words all = pairs_before(T);
    std::vector<index_t> first{0};
    for (index_t g = 1; g < t.G; ++g) {
      const index_t J = 1 + detail::first_that(T - 1, [&](index_t K) {
                          return (pairs_before(K + 1) + pairs_before(K + 2)) * t.G >= Words(2) * g * all;
                        });
      first.push_back(std::min(J * t.Bc, x.n_k));
    }
    first.push_back(x.n_k);
    return first;
  }
  static AttentionShape leading_keys(AttentionShape x, index_t keys) {
    x.n_k = std::min(keys, x.n_k);
    return x;
  }

  static Tiling smallest(const AttentionShape& x, const Multiples& m) {
    return {{smallest_tile(x.n_k, m.key), smallest_tile(x.n_q, m.query)}, 1};
  }
  /// Groups of at least 256 keys, which is far more work than waking a worker, and 8 at most: dQ and its copies then
  /// are no larger than all arrays of the problem. The words hardly depend on their number. Blocks are what e1 would
  /// choose within a group, or within a quarter of it where a mask makes their work differ. A function of shape and M
  /// alone, so that results do not depend on the number of workers.
  static std::optional<Tiling> choose_tiling(const AttentionShape& x, const Limits& limits) {
    const index_t G = std::clamp<index_t>(x.n_k / 256, 1, 8), step = limits.multiple.key;
    const index_t parts = G == 1 ? 1 : x.mask.causal ? 4 * G : G;
    const auto keys = choose_key_pass(leading_keys(x, ceil_div(ceil_div(x.n_k, parts), step) * step), limits);
    if (!keys || !limits.fit(output_dots_phase(x))) return std::nullopt;
    return Tiling{*keys, std::min(G, ceil_div(x.n_k, keys->Bc))};
  }

  static Phase pass(const AttentionShape& x, Tiling t) { return {key_pass_footprint(x, t), key_pass_prefetch(x, t)}; }
  static Words footprint(const AttentionShape& x, Tiling t) { return footprint_of({output_dots_phase(x), pass(x, t)}); }
  static Words prefetch(const AttentionShape& x, Tiling t) { return prefetch_of({output_dots_phase(x), pass(x, t)}); }
  static Io io(const AttentionShape& x, Tiling t) {
    const index_t second = first_keys(x, t)[1];
    const Words visits = visited_queries(x, t.Bc), of_first = visited_queries(leading_keys(x, second), t.Bc);
    const Words seeing = queries_seeing(x, 0), summed = queries_seeing(x, second);
    return output_dots_io(x) + key_pass_io(x, visits) +
           Io().read(SlowArray::dQ, (of_first - seeing + summed) * x.d)
               .write(SlowArray::dQ, (x.n_q - seeing + of_first + summed) * x.d)
               .write(SlowArray::dQg, (visits - of_first) * x.d)
               .read(SlowArray::dQg, (visits - of_first) * x.d);
  }
  static Words macs(const AttentionShape& x, Tiling t) {
    return visited_query_pairs(x, t.Bc) * (Words(3) * x.d + Words(2) * x.d_v);
  }

  template <Machine M>
  static void run(M& m, const Backward& x, Tiling t) {
    output_dots(m, x, footprint(x.shape, t));
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
