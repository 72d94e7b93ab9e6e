#pragma once
#include "redblue/kernels/materialised.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/operands/merge.hpp"
#include "redblue/schedules/parts/limits.hpp"

namespace redblue::schedule {

/// Two states of the online softmax meet, a block of rows at a time: lse <- log(exp(lse) + exp(lse_g)), O <- both in
/// these shares. The merge of Flash-decoding (Dao et al. 2023).
///   reads 2 n_q (d_v + 1)   writes n_q (d_v + 1): what every schedule moves   footprint Br (d_v + 3) + 1
struct MergeStates : Defaults {
  using Operands = MergeOperands;
  static constexpr std::string_view name = "merge";
  static constexpr std::string_view idea = "passing over the rows of both once";
  static constexpr Traits traits{.accumulates = true};
  static constexpr std::array<SlowArray, 0> workspace{};

  struct Tiling {
    index_t Br = 1;  ///< rows at a time
    void tile_sizes(const auto& tile_size) { tile_size({"Br", &Sizes::n_q}, Br); }
  };

  static Tiling smallest(const Sizes& x, const Multiples& m) { return {smallest_tile(x.n_q, m.query)}; }
  /// Any size moves the same words.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    std::optional<Tiling> t = smallest_if_it_fits<MergeStates>(x, limits);
    if (t) t->Br = doubled(t->Br, x.n_q, [&](index_t Br) { return fits<MergeStates>(x, Tiling{Br}, limits); });
    return t;
  }

  static Words footprint(const Sizes& x, Tiling t) {
    const index_t rows = std::min(t.Br, x.n_q);
    return x.tile(SlowArray::O, rows, x.d_v) + 3 * x.tile(SlowArray::lse, rows, 1) + x.word(SlowArray::Og);
  }
  static Words prefetch(const Sizes& x, Tiling) { return x.word(SlowArray::Og); }
  static Io io(const Sizes& x, Tiling) {
    const Words rows = x.n_q;
    return Io()
        .read(SlowArray::Og, rows * x.d_v)
        .read(SlowArray::lse_g, rows)
        .read(SlowArray::O, rows * x.d_v)
        .read(SlowArray::lse, rows)
        .write(SlowArray::O, rows * x.d_v)
        .write(SlowArray::lse, rows);
  }
  static Words macs(const Sizes&, Tiling) { return 0; }

  template <Machine M>
  static void run(M& m, const MergeOperands& x, Tiling t) {
    const auto O = tiled(x.O, t.Br), Og = tiled(x.Og, t.Br), lse = tiled(x.lse, t.Br), lse_g = tiled(x.lse_g, t.Br);
    m.each(O.rows(), [&](auto& w, index_t i) {
      const auto O_i = w.load(O(i)), ln = w.load(lse(i)), share = w.load(lse_g(i)), before = w.alloc(lse(i));
      w.compute(kernel::MergeGivenLse{}, ln, share, before);  // ln <- lse of both; the shares of Og and of O
      w.compute(kernel::MergeRows{}, O_i, before, share, w.stream(Og(i)));
      w.store(O_i, O(i));
      w.store(ln, lse(i));
    });
  }
};

}  // namespace redblue::schedule
