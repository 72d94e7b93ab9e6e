#include "redblue/ranks/candidates.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "redblue/ranks/widths.hpp"

namespace redblue::ranks {

bool groups_divide(const Problem& p, int head_groups) {
  const index_t kv_heads = p.kv_heads.value_or(p.heads);
  return p.heads % head_groups == 0 && (kv_heads % head_groups == 0 || head_groups % kv_heads == 0);
}

std::vector<Ownership> ownerships(const Problem& p, const Wanted& wanted) {
  if (wanted.ownership) return {*wanted.ownership};
  std::vector<Ownership> list{Ownership::contiguous};
  if (p.causal || p.window_right) list.push_back(Ownership::zig_zag);
  if (!p.cu_seqlens_q.empty() || !p.cu_seqlens_k.empty()) list.push_back(Ownership::documents);
  return list;
}

std::vector<Layout> candidates(const Problem& p, const Wanted& wanted, bool fewer) {
  std::set<std::array<int, 3>> shapes;
  if (wanted.grid) {
    shapes.insert({wanted.grid->head_groups, wanted.grid->grid_rows, wanted.grid->grid_cols});
  } else {
    for (int u = 1; u <= wanted.ranks; ++u) {
      if (!groups_divide(p, u) || (!fewer && wanted.ranks % u != 0)) continue;
      const int places = wanted.ranks / u;
      for (int r = 1; r <= places / r; ++r) {
        if (!fewer && places % r != 0) continue;
        shapes.insert({u, r, places / r});
        shapes.insert({u, places / r, r});
      }
    }
  }
  std::vector<Layout> list;
  for (const auto& [u, r, c] : shapes)
    for (const Ownership o : ownerships(p, wanted)) {
      const bool same = wanted.reproducible != 0;
      const Transfer t = wanted.transfer.value_or(same ? Transfer::gather : Transfer::exchange);
      if (t == Transfer::ring && r > 1 && c > 1 && !wanted.grid) continue;
      if (same && !wanted.grid && (c > 1 || u > p.kv_heads.value_or(p.heads))) continue;
      list.push_back({u, r, c, t, o, o == Ownership::block_cyclic ? wanted.block : 0, wanted.reproducible,
                      wanted.keeps_heads && u > 1});
    }
  return list;
}

double least_value(const Problem& p, const Wanted& wanted, const Layout& l, bool sees_all, Words all_pairs) {
  const double P = l.ranks();
  double words = 0, bytes = 0;
  const index_t whole = std::max<index_t>(1, l.reproducible);
  if (sees_all && std::min(p.n_q, p.n_k) / whole >= l.ranks())  // no block is empty
    for (const Side side : {Side::queries, Side::keys}) {
      const index_t kv_heads = p.kv_heads.value_or(p.heads), heads = side == Side::queries ? p.heads : kv_heads;
      const index_t of_group = std::max<index_t>(1, heads / l.head_groups);
      RowWidths w = row_widths(p, side, of_group);
      const double kept = (w.inputs - head_widths(p, l, side, of_group).inputs).to_double();
      if (l.reproducible > 0 && p.op == Operation::backward) w.results = 0;
      const double rows = side == Side::queries ? static_cast<double>(p.n_q) * (1.0 / l.grid_rows - 1 / P)
                                                : static_cast<double>(p.n_k) * (1.0 / l.grid_cols - 1 / P);
      const double kept_rows = static_cast<double>(side == Side::queries ? p.n_q : p.n_k) * (l.head_groups / P - 1 / P);
      words += rows * (w.inputs + w.results).to_double() - kept_rows * kept;
      Traffic row;
      row.inputs = w.inputs;
      row.statistics = w.statistics;
      bytes += rows * wire_bytes(row, wanted.widths).to_double() -
               kept_rows * kept * static_cast<double>(wanted.widths.inputs);
    }
  if (!wanted.least_time) return words;
  const Network& network = *wanted.network;
  const double work =
      network.arithmetic > 0 ? (all_pairs * operations_of_pair(p)).to_double() / P / network.arithmetic : 0;
  return std::max(work, bytes / network.bandwidth);
}

}  // namespace redblue::ranks
