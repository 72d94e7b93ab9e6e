#pragma once
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "redblue/bounds/bound.hpp"
#include "redblue/problem/problem.hpp"
#include "redblue/problem/sequences.hpp"
#include "support/generators.hpp"

namespace redblue::test {

/// The keys that each row of a key-value head sees, row by row: one list, or one for each batch where they differ.
inline std::vector<std::vector<Range>> keys_of_rows(const bound::AttentionProblem& x) {
  std::vector lists(static_cast<std::size_t>(batches_of(x)), std::vector<Range>(static_cast<std::size_t>(x.n_q)));
  const std::vector<Sequence> whole{{0, {0, x.n_q}, {0, x.n_k}, x.mask}};
  for (const Sequence& one : x.sequences ? x.sequences->list : whole)
    for (index_t r = one.rows.begin; r < one.rows.end; ++r) {
      const Range keys = one.mask.keys(r - one.rows.begin, one.keys.size());
      lists[static_cast<std::size_t>(one.batch)][static_cast<std::size_t>(r)] = {one.keys.begin + keys.begin,
                                                                                 one.keys.begin + keys.end};
    }
  return lists;
}

/// How many problems each of these lists stands for.
inline index_t copies_of_lists(const bound::AttentionProblem& x) { return x.instances / batches_of(x); }

/// The pairs of rows that see two keys or more, one by one.
inline index_t pairs_one_by_one(const bound::AttentionProblem& x) {
  index_t pairs = 0;
  for (const auto& rows : keys_of_rows(x))
    for (const Range keys : rows)
      if (keys.size() > 1) pairs += keys.size();
  return copies_of_lists(x) * pairs;
}

/// Hides keys as a user may: causal, a window, a prefix, packed or padded sequences, or nothing.
inline void draw_mask(Problem& p, int most) {
  const auto below = [](index_t n) { return *rc::gen::inRange<index_t>(0, n); };
  const auto one_in = [&](index_t n) { return below(n) == 0; };
  p.causal = one_in(2);
  if (one_in(3)) p.window_left = below(one_in(2) ? 4 : most);
  if (one_in(3)) p.window_right = below(one_in(2) ? 4 : most);
  if ((p.causal || p.window_right) && one_in(3)) p.prefix = below(p.n_k + 1);
  if (one_in(4)) p.causal_offset = below(2 * most) - most;
  if (one_in(3)) {
    const index_t sequences = 1 + below(4);
    const auto lengths = [&](index_t count, index_t n) {
      std::vector<index_t> drawn;
      for (index_t s = 0; s < count; ++s) drawn.push_back(below(n + 1));
      return drawn;
    };
    if (one_in(2)) {
      p.seqused_q = lengths(p.batch, p.n_q);
      p.seqused_k = lengths(p.batch, p.n_k);
    } else {
      for (const auto& [ends, n] : {std::pair(&p.cu_seqlens_q, p.n_q), std::pair(&p.cu_seqlens_k, p.n_k)}) {
        *ends = lengths(sequences - 1, n);
        ends->push_back(0);
        ends->push_back(n);
        std::sort(ends->begin(), ends->end());
      }
    }
  }
  RC_LOG() << "causal " << p.causal << " offset " << p.causal_offset.value_or(p.n_k - p.n_q) << " window "
           << p.window_left.value_or(-1) << ' ' << p.window_right.value_or(-1) << " prefix " << p.prefix
           << " sequences " << p.several() << '\n';
}

/// A problem of this operation, of at most `most` queries and keys.
inline Problem any_problem(Operation op, int most = 400) {
  const auto size = [](int n) { return *rc::gen::inRange(1, n); };
  Problem p = problem(size(most), size(most), size(80), size(80));
  p.op = op;
  p.batch = size(4);
  p.heads = size(4);
  if (op == Operation::backward_w) p.d_in = size(60);
  if (is_projected(op))
    p.sources = *rc::gen::element(Sources::distinct, Sources::shared, Sources::self);
  else
    p.heads *= *(p.kv_heads = size(4));
  if (p.sources == Sources::self) p.n_k = p.n_q;
  draw_mask(p, most);
  if (!follows_forward(op)) p.lse_required = *rc::gen::arbitrary<bool>();
  RC_LOG() << name_of(op) << ' ' << name_of(p.sources) << " batch " << p.batch << " heads " << p.heads << " of "
           << p.kv_heads.value_or(p.heads) << " n_q " << p.n_q << " n_k " << p.n_k << " d " << p.d << " d_v " << p.d_v
           << " d_in " << p.d_in << '\n';
  return p;
}

}  // namespace redblue::test
