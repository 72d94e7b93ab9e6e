#pragma once
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/schedules/linformer.hpp"
#include "redblue/methods/schedules/parts/few_rows.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/one_pass.hpp"

namespace redblue::schedule {

/// Linformer where K' = E K and V' = E V do not fit: they are formed w columns at a time, each of which needs one
/// column of K or V and, E being made in code, nothing else; they go to slow memory, and br queries at a time attend to
/// them.
///   reads n_k (d + d_v) + n_q d + c(n_q, br) k (d + d_v)   writes n_q d_v + k (d + d_v)
///   footprint max(k w, br (d + d_v + 2 + g)) + 1
struct LinformerSpilledForward : Defaults {
  using Operands = ForwardOperands;
  static constexpr std::string_view name = "linformer_spilled";
  static constexpr std::string_view idea = "leaving keys and values projected to few rows in slow memory";
  static constexpr Traits traits{.method = methods::kLinformer};
  static constexpr std::array workspace{SlowArray::K_few, SlowArray::V_few};

  struct Tiling : FewRowsTiling {
    index_t w = 1;  ///< columns of K' and V' at a time
    void tile_sizes(const auto& tile_size) {
      FewRowsTiling::tile_sizes(tile_size);
      tile_size({"w"}, w);
    }
  };

  static index_t rank(const Sizes& x) { return std::get<Linformer>(method_of(x)).rank; }
  static Tiling smallest(const Sizes& x, const Multiples& m) { return {{smallest_tile(x.n_q, m.query), 1}, 1}; }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    const auto fits = [&](const Tiling& t) { return schedule::fits<LinformerSpilledForward>(x, t, limits); };
    const auto rows = tiling_of_streaming_rows(x, limits, rank(x), [&](FewRowsTiling t) { return fits({t, 1}); });
    if (!rows) return std::nullopt;
    return Tiling{*rows, doubled(1, std::max(x.d, x.d_v), [&](index_t w) { return fits({*rows, w}); })};
  }

  static std::array<Phase, 2> phases(const Sizes& x, const Tiling& t) {
    const Words word = std::max(x.word(SlowArray::K), x.word(SlowArray::V));
    const Words columns = std::max(x.tile(SlowArray::Z, rank(x), std::min(t.w, x.d)) + x.word(SlowArray::K),
                                   x.tile(SlowArray::Z, rank(x), std::min(t.w, x.d_v)) + x.word(SlowArray::V));
    return {Phase{columns, word}, attending_streams(x, t, rank(x), false)};
  }
  static Words footprint(const Sizes& x, const Tiling& t) { return footprint_of(phases(x, t)); }
  /// The next word that streams past.
  static Words prefetch(const Sizes& x, const Tiling& t) { return prefetch_of(phases(x, t)); }
  static Io io(const Sizes& x, const Tiling& t) { return one_pass_io(x) + io_of_streaming_rows(x, t, rank(x), false); }
  static Words macs(const Sizes& x, const Tiling&) { return LinformerForward::macs(x, {}); }

  template <Machine M>
  static void run(M& m, const ForwardOperands& x, const Tiling& t) {
    project(m, x, x.K, x.K_few, t.w);
    project(m, x, x.V, x.V_few, t.w);
    const Blocks queries = x.shape.pairs().row_blocks(t.br);
    m.each(queries.count(), [&](auto& w, index_t i) { attend_by_rows(w, x, queries(i), t.g, streaming_rows(x)); });
  }

 private:
  /// few <- E all
  template <class M>
  static void project(M& m, const ForwardOperands& x, const SlowMatrix& all, const SlowMatrix& few, index_t w) {
    const Linformer& l = std::get<Linformer>(method_of(x.shape));
    const Blocks columns{all.shape.cols, w};
    m.each(columns.count(), [&](auto& worker, index_t i) {
      const auto part = worker.alloc(SlowArray::Z, {l.rank, columns(i).size()});
      worker.compute(kernel::Zero{}, part);
      worker.compute(kernel::ProjectRows{x.shape.n_k, 0, l.random_signs, l.seed}, part,
                     worker.stream(all.block({0, x.shape.n_k}, columns(i))));
      worker.store(part, few.block({0, l.rank}, columns(i)));
    });
  }
};

}  // namespace redblue::schedule
