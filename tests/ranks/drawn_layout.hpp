#pragma once
#include <random>

#include "redblue/ranks/layout.hpp"

namespace redblue::test {

/// Problems and layouts at random, of which some do not go together.
class DrawnRanks {
 public:
  explicit DrawnRanks(std::uint64_t seed) : random_(seed) {}

  index_t number(index_t least, index_t most) {
    return least + static_cast<index_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(index_t n) { return number(1, n) == 1; }

  Problem problem(Operation op, index_t most_rows) {
    Problem p;
    p.op = op;
    p.batch = number(1, 2);
    p.kv_heads = index_t{1} << number(0, 2);
    p.heads = *p.kv_heads << number(0, 2);
    p.n_q = number(1, most_rows);
    p.n_k = one_in(2) ? p.n_q : number(1, most_rows);
    p.d = number(1, 5);
    p.d_v = number(1, 5);
    p.causal = one_in(2);
    if (one_in(4)) p.window_left = number(0, most_rows / 3);
    if (!p.causal && one_in(4)) p.window_right = number(0, most_rows / 3);
    if (p.n_q == p.n_k && one_in(3)) {
      p.cu_seqlens_q = {0};
      while (p.cu_seqlens_q.back() < p.n_q)
        p.cu_seqlens_q.push_back(std::min(p.n_q, p.cu_seqlens_q.back() + number(1, most_rows / 2)));
    } else if ((p.causal || p.window_right) && one_in(4)) {
      p.prefix = number(0, p.n_k);
    }
    if (p.cu_seqlens_q.empty() && one_in(5)) p.causal_offset = number(-3, 3);
    p.alibi = one_in(5);
    if (one_in(5)) p.softcap = 3;
    p.sinks = one_in(4);
    p.sinks_gradient = p.sinks && op == Operation::backward && one_in(2);
    if (one_in(4)) {
      p.dropout = 0.3;
      p.seed = number(0, 1000);
    }
    if (one_in(5)) p.bias = {1, one_in(2) ? p.heads : 1, one_in(3) ? 1 : p.n_q, one_in(3) ? 1 : p.n_k};
    if (p.bias && op == Operation::backward && ((*p.bias)[3] == p.n_k)) p.bias_gradient = one_in(2);
    return p;
  }
  ranks::Layout layout(int most) {
    ranks::Layout l;
    l.head_groups = 1 << number(0, 2);
    l.grid_rows = static_cast<int>(number(1, most));
    l.grid_cols = static_cast<int>(number(1, most));
    l.transfer = static_cast<ranks::Transfer>(number(0, 2));
    if (l.transfer == ranks::Transfer::ring) (one_in(2) ? l.grid_rows : l.grid_cols) = 1;
    l.ownership = static_cast<ranks::Ownership>(number(0, 3));
    if (l.ownership == ranks::Ownership::block_cyclic) l.block = number(1, 5);
    return l;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace redblue::test
