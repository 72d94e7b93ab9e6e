#pragma once
#include <vector>

#include "redblue/schedules/passes/key_pass.hpp"
#include "redblue/schedules/ring/pins.hpp"

/// Keys that are resident for the whole run with their gradients, and meet each query when it enters the ring.
namespace redblue::schedule {

/// Keys and values with their gradients.
inline Words key_tiles(const Sizes& x, index_t keys) {
  return x.tile(SlowArray::K, keys, x.d) + x.tile(SlowArray::V, keys, x.d_v) + x.tile(SlowArray::dK, keys, x.d) +
         x.tile(SlowArray::dV, keys, x.d_v);
}

template <class M>
class PinnedKeys {
 public:
  /// The keys in these runs, at most Bc at a time.
  PinnedKeys(M& w, const BackwardOperands& x, std::span<const Range> runs, index_t Bc)
      : runs_(runs),
        Bc_(Bc),
        K_(w.alloc(SlowArray::K, {detail::length_of(runs), x.K.shape.cols})),
        V_(w.alloc(SlowArray::V, {detail::length_of(runs), x.V.shape.cols})),
        dK_(w.alloc(SlowArray::dK, K_.shape())),
        dV_(w.alloc(SlowArray::dV, V_.shape())) {
    if (runs.empty()) return;
    w.compute(kernel::Zero{}, dK_);
    w.compute(kernel::Zero{}, dV_);
    detail::for_runs_in_tile(runs_, [&](Range J, index_t row) {
      w.load_into(K_.rows(row, J.size()), x.K.rows(J));
      w.load_into(V_.rows(row, J.size()), x.V.rows(J));
    });
  }
  /// The most that come at a time.
  index_t most() const { return std::min(Bc_, detail::longest_of(runs_)); }
  /// f(keys) for all of them, the most that come at a time.
  template <class F>
  void for_parts(const Arg& slopes, const F& f) const {
    detail::for_runs_in_tile(runs_, [&](Range run, index_t row) {
      for (index_t j = 0; j < run.size(); j += Bc_) {
        const index_t n = std::min(Bc_, run.size() - j), at = row + j;
        f(KeyArgs{{run.begin + j, run.begin + j + n},
                  K_.rows(at, n),
                  V_.rows(at, n),
                  dK_.rows(at, n),
                  dV_.rows(at, n),
                  kNoWords,
                  kNoWords,
                  slopes});
      }
    });
  }
  template <class W>
  void store(W& w, const BackwardOperands& x) const {
    detail::for_runs_in_tile(runs_, [&](Range J, index_t row) {
      w.store(dK_.rows(row, J.size()), x.dK.rows(J));
      w.store(dV_.rows(row, J.size()), x.dV.rows(J));
    });
  }

 private:
  std::span<const Range> runs_;
  index_t Bc_;
  Tile<M> K_, V_, dK_, dV_;
};

}  // namespace redblue::schedule
