// A schedule of your own: log of the row sums of exp(scale Q K^T). Its loops are written once, in the words of a
// machine; its costs stand beside them as formulas; machines hold the two together.
#include <cmath>
#include <iostream>
#include <vector>

#include "redblue/kernel/softmax.hpp"
#include "redblue/machine/checked.hpp"
#include "redblue/machine/counting.hpp"
#include "redblue/machine/ram.hpp"
#include "redblue/schedule/forward/operands.hpp"

using namespace redblue;
/// A block of Br queries stays in fast memory while the keys stream past, one after another.
struct RowSums {
  static Io io(const Sizes& x, index_t Br) {
    const Words K_words = Words(x.n_k) * x.d, blocks = ceil_div(x.n_q, Br);
    return Io().read(SlowArray::Q, Words(x.n_q) * x.d).read(SlowArray::K, blocks * K_words) +
           Io().write(SlowArray::lse, x.n_q);
  }
  /// Q_i, m_i, l_i, one column of scores, and the word of K that is passing.
  static Words footprint(const Sizes& x, index_t Br) { return Words(Br) * (x.d + 3) + 1; }
  template <Machine M>
  static void run(M& m, const schedule::ForwardOperands& x, index_t Br) {
    const auto Q = tiled(x.Q, Br), lse = tiled(x.lse, Br), K = tiled(x.K, 1);
    m.each(Q.rows(), [&](auto& w, index_t i) {  // blocks of queries are independent
      const auto Q_i = w.load(Q(i));            // resident until the closing brace
      const auto m_i = w.alloc(lse(i).shape), l_i = w.alloc(lse(i).shape), s = w.alloc(lse(i).shape);
      w.compute(kernel::StatisticsInit{}, m_i, l_i);
      for (index_t j = 0; j < K.rows(); ++j) {
        w.compute(kernel::Scores{x.scale}, s, Q_i, w.stream(K(j)));  // s <- scale Q_i k_j
        w.compute(kernel::StatisticsAdd{}, m_i, l_i, s);             // m <- max(m, s), l <- sum of exp(s - m)
      }
      w.compute(kernel::LogSum{}, m_i, l_i);  // m <- m + log l
      w.store(m_i, lse(i));
    });
  }
};

int main() {
  const schedule::ForwardOperands x({1000, 300, 8, 1}, 0.5);  // n_q, n_k, d, d_v; scale
  const index_t Br = 64;                                      // does not divide 1000: the last block is smaller
  machine::Counting counting;
  RowSums::run(counting, x, Br);  // 1. count, without data
  std::vector<double> q(1000 * 8, 0.125), k(300 * 8, 0.25), sums(1000);
  const Words footprint = RowSums::footprint(x.shape, Br);
  machine::SlowMemory slow;
  slow[index_of(SlowArray::Q)] = machine::Storage::matrix(q.data(), x.Q.shape);
  slow[index_of(SlowArray::K)] = machine::Storage::matrix(k.data(), x.K.shape);
  slow[index_of(SlowArray::lse)] = machine::Storage::matrix(sums.data(), x.lse.shape);
  machine::Ram<double> ram(footprint.to_index(), slow);  // 2. run, in exactly that many words
  machine::Referee referee(footprint);                   // 3. and by the rules: throws where one is broken
  referee.input(x.Q), referee.input(x.K), referee.output(x.lse);
  machine::Checked checked(ram, referee);
  RowSums::run(checked, x, Br);
  referee.finish();
  std::cout << counting.io().total().str() << " words; row 999: " << sums[999] << '\n';
  if (counting.io() != RowSums::io(x.shape, Br) || footprint != counting.peak()) return 1;
  return std::abs(sums[999] - (0.125 + std::log(300.0))) < 1e-12 ? 0 : 1;  // 300 equal scores of 0.5 q k = 0.125
}
