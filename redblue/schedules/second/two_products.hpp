#pragma once
#include <array>

#include "redblue/schedules/parts/gemm.hpp"

namespace redblue::schedule {

/// C = A B + A' B' with one resident tile of C, to which both products are added one after the other as gemm adds one:
/// A and A' are matrices over the same pairs.
///   reads ceil(n/b2) 2 m k + ceil(m/b1) 2 k n   writes m n   footprint b1 b2 + min(b1, b2) + 1
struct TwoProducts {
  SlowMatrix C;
  std::array<Factor, 2> A;
  std::array<SlowMatrix, 2> B;
  Entries entries{};  ///< of A and A'

  GemmCost cost(std::size_t i) const {
    return {C.array, A[i].matrix.array, B[i].array, C.shape.rows, A[i].cols(), C.shape.cols, entries, A[i].stays};
  }
  Phase phase(const Sizes& x, GemmTiling t) const {
    const Phase p = cost(0).phase(x, t), q = cost(1).phase(x, t);
    return {std::max(p.footprint, q.footprint), std::max(p.prefetch, q.prefetch)};
  }
  /// Beside of_rows(rows) words of the rows of the tile; `passing` words pass by it when it is finished.
  template <class OfRows>
  Phase phase_beside(const Sizes& x, GemmTiling t, const OfRows& of_rows, Words passing) const {
    const index_t b1 = std::min(t.b1, C.shape.rows), b2 = std::min(t.b2, C.shape.cols);
    Phase p = phase(x, t);
    p.footprint = std::max(p.footprint, x.tile(C.array, b1, b2) + passing) + of_rows(b1);
    return p;
  }
  Io io(GemmTiling t) const {
    Io second = cost(1).io(t);
    second.writes = {};
    return cost(0).io(t) + second;
  }
  Words macs() const { return cost(0).macs() + cost(1).macs(); }
  /// The cheapest tiling: a word of A costs what it does together with one of A', and so does one of B.
  /// phase_of(tiling) is all that a phase holds.
  template <class PhaseOf>
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits, index_t step1, index_t step2,
                                   const PhaseOf& phase_of) const {
    Limits both = limits;
    both.price.read[index_of(A[0].matrix.array)] += limits.price.reading(A[1].matrix.array);
    both.price.read[index_of(B[0].array)] += limits.price.reading(B[1].array);
    return cost(0).choose(x, both, step1, step2, phase_of);
  }
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits, index_t step1, index_t step2) const {
    return choose(x, limits, step1, step2, [&](GemmTiling t) { return phase(x, t); });
  }

  /// The rows I of C, b2 columns at a time: post(w, T, J) works on each finished tile, and prepare(w, rows, t, a) on
  /// column t of A or A', where it is resident, before these rows of it are multiplied.
  template <class W, class Post, class Prepare>
  void form_rows(W& w, const Residence& fast, Range I, index_t b2, const Post& post, const Prepare& prepare) const {
    const Blocks cols{C.shape.cols, b2};
    for (index_t j = 0; j < cols.count(); ++j) {
      const Range J = cols(j);
      const auto T = w.alloc(C.block(I, J));
      w.compute(kernel::Zero{}, T);
      for (std::size_t i = 0; i < A.size(); ++i)
        for_rank_one(w, fast, T.shape(), A[i], I, {B[i]}, J, entries,
                     [&](Range rows, index_t t, const auto& a, const auto& b) {
                       if constexpr (std::same_as<std::remove_cvref_t<decltype(a)>, Arg>) prepare(w, rows, t, a);
                       w.compute(kernel::Gemm{A[i].transposed, false}, T.rows(rows.begin - I.begin, rows.size()), a, b);
                     });
      post(w, T, J);
      w.store(T, C.block(I, J));
    }
  }
  template <class M>
  void run(M& m, const Residence& fast, GemmTiling t) const {
    const Blocks rows = entries.row_blocks(C.shape.rows, t.b1);
    m.each(rows.count(), [&](auto& w, index_t i) { form_rows(w, fast, rows(i), t.b2, NothingElse{}, NothingElse{}); });
  }
};

}  // namespace redblue::schedule
