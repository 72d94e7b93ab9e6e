#pragma once
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <ostream>

#include "redblue/ranks/layout.hpp"
#include "support/many_cases.hpp"

namespace redblue::ranks {

/// For failures.
inline std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.head_groups << " x " << l.grid_rows << " x " << l.grid_cols << ' ' << name_of(l.transfer) << ' '
             << name_of(l.ownership) << ' ' << l.block;
}

namespace test {

inline index_t drawn(index_t least, index_t most) { return *rc::gen::inRange<index_t>(least, most + 1); }

struct Spread {
  Problem problem;
  Layout layout;
};

/// Heads that go in groups, ragged sizes, masks of all kinds that ranks share.
inline Problem any_shared_problem(index_t most) {
  Problem p;
  p.op = drawn(0, 1) == 0 ? Operation::forward : Operation::backward;
  p.batch = drawn(1, 2);
  p.kv_heads = index_t{1} << drawn(0, 2);
  p.heads = *p.kv_heads << drawn(0, 2);
  p.n_q = drawn(1, most);
  p.n_k = drawn(0, 1) == 0 ? p.n_q : drawn(1, most);
  p.d = drawn(1, 4);
  p.d_v = drawn(1, 4);
  p.causal = drawn(0, 2) == 0;
  if (drawn(0, 3) == 0) p.window_left = drawn(0, 9);
  if (drawn(0, 4) == 0 && !p.causal) p.window_right = drawn(0, 5);
  if ((p.causal || p.window_right) && drawn(0, 3) == 0) p.prefix = drawn(0, p.n_k);
  if (p.masked() && drawn(0, 3) == 0) p.causal_offset = drawn(-5, 5);
  if (p.n_q == p.n_k && drawn(0, 3) == 0) {
    p.cu_seqlens_q = {0};
    while (p.cu_seqlens_q.back() < p.n_q)
      p.cu_seqlens_q.push_back(std::min(p.n_q, p.cu_seqlens_q.back() + drawn(1, 15)));
    p.prefix = 0;
    p.causal_offset.reset();
  }
  p.sinks = drawn(0, 3) == 0;
  p.sinks_gradient = p.sinks && p.op == Operation::backward;
  if (drawn(0, 3) == 0) {
    const auto all_or_one = [](index_t all) { return drawn(0, 2) == 0 ? 1 : all; };
    p.bias = {all_or_one(p.batch), all_or_one(p.heads), all_or_one(p.n_q), all_or_one(p.n_k)};
    p.bias_gradient = p.op == Operation::backward && (*p.bias)[3] == p.n_k;
  }
  return p;
}

/// Sets what a layout has beside its numbers, as the problem allows.
inline void draw_rest(const Problem& p, Layout& l) {
  const bool ring = l.grid_rows == 1 || l.grid_cols == 1;
  l.transfer = static_cast<Transfer>(drawn(0, ring ? 2 : 1));
  l.ownership = static_cast<Ownership>(drawn(0, p.cu_seqlens_q.empty() ? 2 : 3));
  l.block = l.ownership == Ownership::block_cyclic ? drawn(1, 5) : 0;
}

inline Spread any_spread(index_t most) {
  Spread s{any_shared_problem(most), {}};
  Layout& l = s.layout;
  l.head_groups = 1 << drawn(0, 3);
  while (s.problem.heads % l.head_groups != 0) l.head_groups /= 2;
  l.grid_rows = static_cast<int>(drawn(1, 4));
  l.grid_cols = static_cast<int>(drawn(1, 4));
  draw_rest(s.problem, l);
  l.keeps_heads = l.head_groups > 1 && drawn(0, 1) == 0;
  return s;
}

}  // namespace test
}  // namespace redblue::ranks
