#pragma once
#include <vector>

#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/modifiers.hpp"
#include "redblue/schedules/ring/pins.hpp"

/// Queries that are resident for the whole run, and attend to each key when it enters the ring.
namespace redblue::schedule {

/// Queries with their outputs and statistics.
inline Words pinned_queries_tile(const Sizes& x, index_t rows) {
  return x.tile(SlowArray::Q, rows, x.d) + x.tile(SlowArray::O, rows, x.d_v) + 2 * x.statistic(SlowArray::lse, rows);
}

template <class M>
class PinnedQueries {
 public:
  /// The queries in these runs; at most Br of them and Bc keys at a time.
  PinnedQueries(M& w, const ForwardOperands& x, std::span<const Range> runs, index_t Br, index_t Bc)
      : runs_(runs),
        Br_(Br),
        Bc_(Bc),
        whole_(runs.size() == 1 && runs.front().size() <= Br),
        Q_(w.alloc(SlowArray::Q, {detail::length_of(runs), x.Q.shape.cols}, layout(kernel::OnlineAttention::Q))),
        O_(w.alloc(SlowArray::O, {detail::length_of(runs), x.O.shape.cols}, layout(kernel::OnlineAttention::O))),
        m_(w.alloc(SlowArray::lse, {detail::length_of(runs), x.lse.shape.cols})),
        l_(w.alloc(SlowArray::lse, {detail::length_of(runs), x.lse.shape.cols})) {
    if (runs.empty()) return;
    w.compute(kernel::SoftmaxInit{}, O_, m_, l_);
    detail::for_runs_in_tile(runs_, [&](Range I, index_t row) {
      w.load_into(Q_.rows(row, I.size()), x.Q.rows(I));
      begin_with_sinks(w, x, I.begin, m_.rows(row, I.size()), l_.rows(row, I.size()));
    });
  }

  template <class W>
  void attend(W& w, const ForwardOperands& x, Range J, const Arg& K_j, const Arg& V_j, const Arg& slopes) const {
    if (runs_.empty()) return;
    const auto S =
        w.alloc(SlowArray::S, {std::min(Br_, detail::longest_of(runs_)), Bc_}, layout(kernel::OnlineAttention::S));
    detail::for_runs_in_tile(runs_, [&](Range run, index_t row) {
      for (index_t i = 0; i < run.size(); i += Br_) {
        const index_t n = std::min(Br_, run.size() - i), at = row + i;
        const Range I{run.begin + i, run.begin + i + n};
        w.compute(x.attention_at(I.begin, J.begin, J.end), S.part({n, J.size()}), O_.rows(at, n), m_.rows(at, n),
                  l_.rows(at, n), Q_.rows(at, n), K_j, V_j, x.bias_of(I, J), slopes);
      }
    });
  }
  template <class W>
  void store(W& w, const ForwardOperands& x) const {
    if (runs_.empty()) return;
    w.compute(kernel::SoftmaxFinish{x.shape.score}, O_, m_, l_);
    detail::for_runs_in_tile(runs_, [&](Range I, index_t row) {
      w.store(O_.rows(row, I.size()), x.O.rows(I));
      if (x.store_lse) w.store(m_.rows(row, I.size()), x.lse.rows(I));
    });
  }

 private:
  /// Packed tiles are used whole: those of one run that comes at once.
  Layout layout(Layout packed) const { return whole_ ? packed : Layout::row_major; }

  std::span<const Range> runs_;
  index_t Br_, Bc_;
  bool whole_;
  Tile<M> Q_, O_, m_, l_;
};

}  // namespace redblue::schedule
