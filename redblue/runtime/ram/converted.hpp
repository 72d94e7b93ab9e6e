#pragma once
#include <algorithm>
#include <vector>

#include "redblue/kernels/implementations.hpp"
#include "redblue/machines/ram/storage.hpp"
#include "redblue/runtime/run.hpp"
#include "redblue/runtime/storage_of.hpp"

namespace redblue {

/// Outputs that live in the compute type while the schedule revisits them, and are converted once at the end: rounding
/// to a narrower type at each visit would add an error per visit.
class Converted {
 public:
  void add(const Tensor& from, const Tensor& to) {
    list_.push_back({from, to});
    words_ += Words(to.shape[0]) * to.shape[1] * to.shape[2] * to.shape[3];
  }
  struct Pair {
    Tensor from, to;
  };
  const std::vector<Pair>& pairs() const { return list_; }
  Words words() const { return words_; }
  template <class T>
  void finish(ThreadPool& pool, int workers) const {
    constexpr index_t kRows = 256;  // of a piece: pieces are what workers share
    const kernel::RowConversion<T> row_conversion = kernel::implementations<T>(best_isa()).row_conversion;
    for (const Pair& pair : list_) {
      const index_t heads = pair.to.shape[1], rows = pair.to.shape[2], cols = pair.to.shape[3];
      const index_t of_instance = ceil_div(rows, kRows), pieces = pair.to.shape[0] * heads * of_instance;
      const machine::Storage target = storage_of(pair.to, heads, 1, true);
      const T* const words = static_cast<const T*>(pair.from.data);
      pool.run(workers, [&](int worker) {
        for (index_t i = worker; i < pieces; i += workers) {
          const index_t instance = i / of_instance, row = i % of_instance * kRows;
          machine::scatter<T>(target, {SlowArray::O, instance, row, 0, {std::min(kRows, rows - row), cols}},
                              words + (instance * rows + row) * cols, cols, 1, row_conversion);
        }
      });
    }
  }

 private:
  std::vector<Pair> list_;
  Words words_;
};

}  // namespace redblue
