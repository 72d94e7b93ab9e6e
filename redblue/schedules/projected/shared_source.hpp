#pragma once
#include "redblue/kernels/attention.hpp"
#include "redblue/problem/operation.hpp"
#include "redblue/schedules/operands/gradient.hpp"
#include "redblue/schedules/operands/projected.hpp"
#include "redblue/schedules/parts/sequences.hpp"

namespace redblue::schedule {

/// Shared source, A2 = A3 = A: Y is applied after attention, so a row of A serves as key and as value and is read once
/// for both. U = softmax(scale S A^T) A with queries resident, then O = U Y. Half the words of FlashAttention-2.
/// A3 is never read: it must hold the same numbers as A2.
///   reads R_mm(n_q, d, d) + n_q d + A(Br) d + R_mm(n_q, d, d_v)   writes n_q (2 d + 1) + n_q d_v
///   footprint max(F_mm, Br (2 d + 2 + Bc) + Bc d, F_mm)
/// A(Br) = SUM_I kappa_I: keys that the blocks see; without a mask ceil(n_q/Br) n_k. Leading 2 n^2 d^2/M.
struct SharedSourceForward : Defaults {
  using Operands = ForwardXOperands;
  static constexpr std::string_view name = "shared_source";
  static constexpr std::string_view idea = "keeping queries resident, one row serving as key and value";
  static constexpr Traits traits{.masks = true, .hides = true, .any_score = true, .shared_source = true};
  static constexpr bool one_core = true;
  static constexpr bool knows_parts = true;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::U};
  static constexpr std::string_view restricted_bound(const Sizes&) { return "shared"; }

  struct Tiling {
    GemmTiling S;
    index_t Br = 1;  ///< queries resident at a time
    index_t Bc = 1;  ///< rows of A per step
    GemmTiling O;
    void tile_sizes(const auto& tile_size) {
      tile_size({"Br", &Sizes::n_q}, Br);
      tile_size({"Bc", &Sizes::n_k}, Bc);
      tile_size({"S.b1", &Sizes::n_q}, S.b1);
      tile_size({"S.b2", &Sizes::d}, S.b2);
      tile_size({"O.b1", &Sizes::n_q}, O.b1);
      tile_size({"O.b2", &Sizes::d_v}, O.b2);
    }
  };

  /// O = U Y.
  static Product output_product(const ForwardXOperands& x) {
    return {x.O, {x.U}, {x.Y}, &Multiples::query, &Multiples::feature};
  }

  static Tiling smallest(const Sizes& s, const Multiples& m) {
    const ForwardXOperands x(s, 1);
    return {query_projection(x).smallest(m), smallest_tile(s.n_q, m.query), smallest_tile(s.n_k, m.key),
            output_product(x).smallest(m)};
  }
  static std::optional<Tiling> choose_tiling(const Sizes& s, const Limits& limits) {
    const ForwardXOperands x(s, 1);
    const index_t Bc = smallest_tile(s.n_k, limits.multiple.key), step = limits.multiple.query;
    const index_t Br = choose_query_block(s, step, [&](index_t size) { return limits.fit(pass(s, size, Bc)); });
    const auto S = query_projection(x).choose(s, limits), O = output_product(x).choose(s, limits);
    if (Br == 0 || !S || !O) return std::nullopt;
    return Tiling{*S, Br, Bc, *O};
  }

  /// S, U, m, l and a tile of scores of these queries.
  static Words row_tiles(const Sizes& s, index_t rows, index_t Bc) {
    return s.tile(SlowArray::A1X, rows, s.d) + s.tile(SlowArray::U, rows, s.d) + 2 * s.statistic(SlowArray::lse, rows) +
           s.tile(SlowArray::S, rows, std::min(Bc, s.n_k));
  }
  /// Second buffers: the next rows of A.
  static Phase pass(const Sizes& s, index_t Br, index_t Bc) {
    const Words blocks = most_of_parts(s, [&](const Sizes& part) {
      return query_blocks_footprint(part, Br, [&](index_t rows, index_t kappa) {
        return row_tiles(part, rows, Bc) + s.tile(SlowArray::A2, std::min(Bc, kappa), s.d);
      });
    });
    return {blocks, s.tile(SlowArray::A2, std::min(Bc, s.n_k), s.d)};
  }
  static std::array<Phase, 3> phases(const Sizes& s, const Tiling& t) {
    const ForwardXOperands x(s, 1);
    return {query_projection(x).phase(s, t.S), pass(s, t.Br, t.Bc), output_product(x).phase(s, t.O)};
  }
  static Words footprint(const Sizes& s, const Tiling& t) { return footprint_of(phases(s, t)); }
  static Words prefetch(const Sizes& s, const Tiling& t) { return prefetch_of(phases(s, t)); }
  static Io io(const Sizes& s, const Tiling& t) {
    const ForwardXOperands x(s, 1);
    return query_projection(x).io(t.S) + output_product(x).io(t.O) +
           Io().read(SlowArray::A1X, Words(s.n_q) * s.d)
               .read(SlowArray::A2, visited_keys(s, t.Br) * s.d)
               .write(SlowArray::U, Words(s.n_q) * s.d)
               .write(SlowArray::lse, s.row_statistics());
  }
  static Words macs(const Sizes& s, const Tiling& t) {
    const ForwardXOperands x(s, 1);
    return query_projection(x).macs() + pairs_of_rows(s, t.Br) * s.d * 2 + output_product(x).macs();
  }

  template <Machine M>
  static void run(M& m, const ForwardXOperands& x, const Tiling& t) {
    query_projection(x).run(m, x.shape.fast, t.S);  // S = A1 X
    for_each_part(m, x, [&](auto& w, const ForwardXOperands& part) { attend(w, part, t); });
    output_product(x).run(m, x.shape.fast, t.O);  // O = U Y
  }

  /// U = softmax(scale S A^T) A of a part, and lse.
  template <class M>
  static void attend(M& m, const ForwardXOperands& x, const Tiling& t) {
    using Step = kernel::OnlineAttention;  // scores; the online softmax; U += scores A
    const Blocks blocks = x.shape.pairs().row_blocks(t.Br);
    m.each(blocks.count(), [&](auto& w, index_t i) {
      const Range I = blocks(i), seen = x.shape.pairs().keys_of(I);
      const auto S_i = w.load(x.S.rows(I), Step::Q);
      const auto U_i = w.alloc(x.U.rows(I), Step::O);
      const auto m_i = w.alloc(x.lse.rows(I)), l_i = w.alloc(x.lse.rows(I));
      const auto P = w.alloc(SlowArray::S, {I.size(), std::min(t.Bc, x.shape.n_k)}, Step::S);
      w.compute(kernel::SoftmaxInit{}, U_i, m_i, l_i);
      for (index_t j = seen.begin; j < seen.end; j += t.Bc) {
        const Range J{j, std::min(j + t.Bc, seen.end)};
        const auto A_j = w.load(x.A2.rows(J));
        const Step step{{x.scale, x.shape.place(I.begin, j)}, x.shape.score};
        w.compute(step, P.cols(J.size()), U_i, m_i, l_i, S_i, A_j, A_j, kNoWords, kNoWords);
      }
      w.compute(kernel::SoftmaxFinish{x.shape.score}, U_i, m_i, l_i);  // U <- U / l, m <- lse
      w.store(U_i, x.U.rows(I));
      w.store(m_i, x.lse.rows(I));
    });
  }
};

}  // namespace redblue::schedule
