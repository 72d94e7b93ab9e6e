#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/schedules/forward/flash.hpp"

namespace redblue::schedule {

/// Flash once per group of keys, then one merge: so few queries keep many workers busy if there are many keys. This is
/// Flash-decoding (Dao et al. 2023). Each group writes its normalised outputs Og and their lse_g to slow memory; then
/// O = SUM_g exp(lse_g - lse) Og.
///   reads G n_q (d + d_v + 1) + (d + d_v) A(Br)   writes (G + 1) n_q (d_v + 1)
///   footprint that of flash, Br (d + d_v + 2 + Bc) + 1; the merge holds Br (d_v + 4) + 1, which is never more
/// With G = 1 it is flash. Score functions without statistics: the merge is a sum, and lse, lse_g have no words.
struct SplitKeysForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "split_keys";
  static constexpr std::string_view idea = "splitting the keys into groups and merging what they give";
  static constexpr Traits traits{.masks = true, .modifiers = true, .any_score = true, .accumulates = true};
  static constexpr std::array workspace{SlowArray::Og, SlowArray::lse_g};

  struct Tiling {
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< keys per step
    index_t G = 1;   ///< groups of keys
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({.name = "G", .groups = true}, G);
    }
    FlashForward::Tiling flash() const { return {Br, Bc}; }
  };
  static std::string_view caveat(const Sizes&, Tiling t) {
    return t.G > 1 ? "its groups hand on lse in one word, so outputs err by about eps |lse|" : "";
  }
  static index_t copies(Tiling t) { return t.G > 1 ? t.G : 0; }

  /// Keys per group: whole steps, so that only the very last step is ragged. The last groups may be smaller, or empty.
  static index_t keys_per_group(const Sizes& x, Tiling t) { return ceil_div(ceil_div(x.n_k, t.Bc), t.G) * t.Bc; }
  /// A group has at least 128 keys per query: the words that it adds, n_q (d + 2 d_v + 2), are then a few hundredths of
  /// the words of its keys and values. It also has at least 2048 keys, hundreds of kilobytes: far more work than waking
  /// a worker. G depends on the shape alone, so that results do not depend on the number of workers.
  static index_t groups(const Sizes& x, index_t Bc) {
    const index_t G = std::max<index_t>(1, x.n_k / (128 * std::max<index_t>(x.n_q, 16)));
    return ceil_div(x.n_k, keys_per_group(x, {1, Bc, G}));  // no empty ones
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const auto [Br, Bc] = FlashForward::smallest(x, m);
    return {Br, Bc, groups(x, Bc)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto t = FlashForward::choose_tiling(x, limits);  // the words of groups do not depend on Br and Bc
    if (!t) return std::nullopt;
    const Tiling parts{t->Br, t->Bc, groups(x, t->Bc)}, whole{t->Br, t->Bc, 1};
    return limits.fit(footprint(x, parts), prefetch(x, parts)) ? parts : whole;  // wide statistics may not leave room
  }

  /// A group's part is flash; merging the parts holds O_i and four statistics while a part of O streams past.
  static std::vector<Phase> phases(const Sizes& x, Tiling t) {
    std::vector<Phase> list{{FlashForward::footprint(x, t.flash()), FlashForward::prefetch(x, t.flash())}};
    const index_t rows = std::min(t.Br, x.n_q);
    const Words word = x.word(SlowArray::Og);
    if (t.G > 1)
      list.push_back({x.tile(SlowArray::O, rows, x.d_v) + 4 * x.statistic(SlowArray::lse, rows) + word, word});
    return list;
  }
  static Words footprint(const Sizes& x, Tiling t) { return footprint_of(phases(x, t)); }
  static Words prefetch(const Sizes& x, Tiling t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, Tiling t) {
    const Words rows = Words(copies(t)) * x.n_q, outputs = rows * x.d_v, statistics = rows * x.statistics();
    const Words again = Words(t.G - 1) * ceil_div(x.n_q, t.Br);  // slopes of further groups
    return FlashForward::io(x, t.flash()) + modifiers_io(x, 0, 0, again) +
           Io().read(SlowArray::Q, Words(t.G - 1) * x.n_q * x.d)
               .write(SlowArray::Og, outputs)
               .write(SlowArray::lse_g, statistics)
               .read(SlowArray::Og, outputs)
               .read(SlowArray::lse_g, statistics);
  }
  static Words macs(const Sizes& x, Tiling t) { return FlashForward::macs(x, t.flash()); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, Tiling t) {
    const Pairs pairs = x.shape.pairs();
    const Blocks blocks = pairs.row_blocks(t.Br);
    const index_t keys = keys_per_group(x.shape, t);
    const auto of_group = [&](index_t g, const SlowMatrix& parts, Range rows) {
      return parts.rows(t.G * x.shape.row0 + g * x.shape.n_q + rows.begin, rows.size());
    };
    m.each(t.G * blocks.count(), [&](auto& w, index_t item) {
      const index_t g = item / blocks.count();
      const Range I = blocks(item % blocks.count()), group = intersection({g * keys, (g + 1) * keys}, pairs.keys_of(I));
      const Block O_g = t.G == 1 ? x.O.rows(I) : of_group(g, x.Og, I);
      const Block lse_g = t.G == 1 ? x.lse.rows(I) : of_group(g, x.lse_g, I);
      FlashForward::attend(w, x, {I, O_g, lse_g, g == 0}, group, t.Bc,
                           [](auto& v, const Block& b) { return v.stream(b); });
    });
    if (t.G == 1) return;
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i);
      const Block rows = x.lse.rows(I);
      const auto O_i = w.alloc(x.O.rows(I)), m_i = w.alloc(rows), l_i = w.alloc(rows);  // of the groups so far
      const auto share = w.alloc(rows), before = w.alloc(rows);
      w.compute(kernel::SoftmaxInit{}, O_i, m_i, l_i);
      for (index_t g = 0; g < t.G; ++g) {
        const auto O_g = w.stream(of_group(g, x.Og, I));
        if (x.shape.statistics() == 0) {
          w.compute(kernel::Add{}, O_i, O_g);
          continue;
        }
        w.load_into(share, of_group(g, x.lse_g, I));
        w.compute(kernel::JoinLse{}, share, m_i, l_i, before);
        w.compute(kernel::MergeRows{}, O_i, before, share, O_g);
      }
      w.compute(kernel::SoftmaxFinish{x.shape.score}, O_i, m_i, l_i);
      w.store(O_i, x.O.rows(I));
      w.store(m_i, rows);
    });
  }
};

}  // namespace redblue::schedule
