#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "redblue/problem/sequences.hpp"
#include "redblue/verify/claims.hpp"

namespace redblue::claims {

Residence any_residence(const Draw& draw) {
  Residence fast;
  for (std::uint8_t& width : fast.width) width = static_cast<std::uint8_t>(draw(1, 8));
  fast.alike();
  if (draw(0, 1) == 1) {
    fast.row_multiple = static_cast<std::uint32_t>(draw(1, 20));
    fast.row_extra = static_cast<std::uint32_t>(draw(0, 5));
  }
  return fast;
}

namespace {

Modifiers any_modifiers(const Sizes& x, const Draw& draw) {
  Modifiers m;
  const auto often = [&] { return draw(0, 2) == 0; };
  const index_t positions = x.n_q / x.mask.group;
  m.bias = static_cast<Modifiers::Bias>(draw(0, 2));
  if (m.bias == Modifiers::Bias::of_pairs && x.n_q == 1) m.bias = Modifiers::Bias::of_keys;
  m.bias_gradient = m.bias != Modifiers::Bias::none && often();
  m.bias_over_keys = m.bias == Modifiers::Bias::of_pairs && x.n_k > 1 && often();
  if (m.bias_over_keys) m.bias_copies = x.n_k;
  m.slopes = often();
  m.slope_offset = x.mask.hi != Mask::kFar ? x.mask.hi - 1 : x.mask.lo != -Mask::kFar ? x.mask.lo : x.n_k - positions;
  if (x.score != Score::softmax) return m;
  if (often()) m.softcap = 1.5;
  m.sinks = often();
  m.sinks_gradient = m.sinks && often();
  if (often()) m.dropout = 0.25;
  m.seed = static_cast<std::uint64_t>(draw(0, 1000));
  if (m.dropout > 0 && often()) {  // a part of a whole
    m.drop_head = draw(0, 2);
    m.drop_other_heads = m.drop_head + draw(0, 2);
    m.drop_row = draw(0, 9);
    m.drop_col = draw(0, 9);
  }
  return m;
}

/// Packed sequences, some perhaps used in part, or one that leaves padding; each has the mask of x.
std::shared_ptr<const Sequences> any_sequences(const Sizes& x, const Draw& draw) {
  const index_t group = x.mask.group, positions = x.n_q / group;
  Sequences all;
  const auto add = [&](Range queries, Range keys) {
    const index_t offset = x.mask.hi != Mask::kFar    ? x.mask.hi - 1
                           : x.mask.lo != -Mask::kFar ? x.mask.lo
                                                      : keys.size() - queries.size();
    Mask mask = x.mask;
    mask.prefix = std::min(mask.prefix, keys.size());
    all.list.push_back({0, {queries.begin * group, queries.end * group}, keys, mask, offset});
  };
  if (draw(0, 2) == 0) {
    add({0, draw(0, positions)}, {0, draw(0, x.n_k)});
  } else {
    const bool in_part = draw(0, 2) == 0;
    const auto used = [&](index_t begin, index_t length) {
      return Range{begin, begin + (in_part ? draw(0, length) : length)};
    };
    for (index_t i = 0, j = 0; i < positions || j < x.n_k;) {
      const bool last = all.list.size() == 3;
      const index_t queries = last ? positions - i : draw(0, positions - i),
                    keys = last ? x.n_k - j : draw(0, x.n_k - j);
      const Range of_queries = used(i, queries);
      add(of_queries, used(j, keys));
      i += queries;
      j += keys;
    }
  }
  return std::make_shared<const Sequences>(std::move(all));
}

std::shared_ptr<const Sequences> sequences_of_rows(const Sizes& x, const RunLists& rows) {
  Sequence like;
  like.mask.group = x.mask.group;
  like.slope_offset = x.n_k - x.n_q / x.mask.group;
  Sequences all;
  all.list = sequences_of(rows, x.n_k, like);
  return std::make_shared<const Sequences>(std::move(all));
}

/// Blocks, single pairs, or runs; some queries see none, some keys nobody sees.
std::shared_ptr<const Sequences> any_runs(const Sizes& x, const Draw& draw) {
  const index_t group = x.mask.group, block = draw(1, 4), share = draw(1, 9);
  const bool alike = draw(0, 1) == 1;  // in a group
  RunLists rows;
  std::vector<Range> runs;
  for (index_t r = 0; r < x.n_q; ++r) {
    if (r / group % block == 0 && (r % group == 0 || !alike)) {
      runs.clear();
      for (index_t j = 0; j < x.n_k; j += block)
        if (draw(0, 9) < share) runs.push_back({j, std::min(j + block, x.n_k)});
    }
    rows.append(1, runs);
  }
  return sequences_of_rows(x, rows);
}

}  // namespace

std::shared_ptr<const Sequences> uneven_intervals(const Sizes& x, const Draw& draw) {
  const index_t widest = draw(1, 8);
  const bool alike = draw(0, 1) == 1;  // in a group
  RunLists rows;
  Range seen;
  for (index_t r = 0; r < x.n_q; ++r) {
    if (r % x.mask.group == 0 || !alike) {
      seen.end = std::min(x.n_k, seen.end + draw(0, widest));
      seen.begin = std::clamp<index_t>(seen.begin + draw(0, widest), seen.begin, std::max(seen.begin, seen.end - 1));
    }
    rows.append(1, {seen});
  }
  return sequences_of_rows(x, rows);
}

Case any_case(const Draw& draw) {
  Case c;
  Sizes& x = c.sizes;
  const auto coin = [&] { return draw(0, 1) == 1; };
  x.mask.group = draw(1, 3);
  const index_t offset = draw(-6, 8), width = draw(1, 9);
  if (coin()) x.mask.hi = offset + 1;
  if (draw(0, 2) == 0) x.mask.lo = offset + 1 - width;
  const index_t prefix = draw(0, 14);
  x.n_q = draw(1, 14) * x.mask.group;
  x.n_k = draw(1, 14);
  if (x.mask.hi != Mask::kFar && draw(0, 3) == 0) x.mask.prefix = std::min(prefix, x.n_k);
  x.d = draw(1, 9);
  x.d_v = draw(1, 9);
  x.d_in = draw(1, 7);
  if (draw(0, 2) == 0) {  // square and of equal widths, which some schedules ask for
    x.n_k = x.n_q;
    x.d_v = x.d;
  }
  if (draw(0, 4) > 1) x.score = static_cast<Score>(draw(0, 3));
  x.lse_required = x.statistics() > 0;
  const index_t kind = draw(0, 7);
  if (kind < 3) {
    if (kind == 0)
      x.sequences = any_runs(x, draw);
    else
      x.sequences = kind == 1 && coin() ? uneven_intervals(x, draw) : any_sequences(x, draw);
    x.mask = {.group = x.mask.group};
  }
  if (draw(0, 2) == 0) x.modifiers = any_modifiers(x, draw);
  if (coin()) x.fast = any_residence(draw);
  c.limits.M = draw(10, 600);
  c.limits.multiple = {draw(1, 4), draw(1, 4), draw(1, 4)};
  c.limits.double_buffer = coin();
  x.lse_gradient = x.statistics() > 0 && c.limits.M.to_index() % 3 == 0;
  return c;
}

std::optional<plan::Tiling> any_tiling(const plan::Schedule& s, const Sizes& sizes, const Draw& draw) {
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    plan::Tiling t;
    for (const schedule::TileSizeRange& k : s.tile_sizes) {
      // Sizes beyond a dimension count as the dimension; any number will do where there is none.
      const index_t most = k.most > 0           ? k.most
                           : k.along != nullptr ? std::max(k.least, sizes.*k.along)
                                                : std::max<index_t>(k.least, 8);
      t.push_back({k.name, k.along != nullptr ? std::min(draw(k.least, std::max<index_t>(k.least, 8)), most)
                                              : draw(k.least, most)});
    }
    if (s.allows(sizes, t)) return t;
  }
  return std::nullopt;
}

void ask_for(const plan::Schedule& s, Sizes& x, const Draw& draw) {
  if (s.traits.method.ask == nullptr) return;
  x.score = Score::softmax;
  s.traits.method.ask(x, draw, s.traits.by_rows, [&](const Sizes& sizes) { return can_solve(s, sizes); });
}

bool can_solve(const plan::Schedule& s, const Sizes& x) {
  Problem p;
  p.sources = Sources::shared;
  return !s.obstacle(p, x);
}

}  // namespace redblue::claims
