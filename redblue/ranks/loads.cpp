#include "redblue/ranks/loads.hpp"

#include <utility>

#include "redblue/ranks/lines.hpp"
#include "redblue/ranks/pair_sums.hpp"
#include "redblue/ranks/widths.hpp"

namespace redblue::ranks {
namespace {

void add_inputs(Traffic& t, const Messages& m, const RowWidths& widths) {
  if (widths.inputs == 0) return;
  t.inputs += m.rows * widths.inputs;
  t.statistics += m.rows * widths.statistics;
  t.messages += m.number;
}
void add_results(Traffic& t, const Messages& m, const RowWidths& widths) {
  if (widths.results == 0) return;
  t.partials += m.rows * widths.results;
  t.messages += m.number;
}

/// What the places of all rows (of queries) or columns (of keys) of the grid exchange.
std::vector<Flow> flows_of_side(const World& w, Side side) {
  const Layout& l = w.layout();
  std::vector<Flow> flows(static_cast<std::size_t>(l.grid_rows * l.grid_cols));
  const bool along_row = side == Side::queries && !w.gathers_both();
  const int lines = along_row ? l.grid_rows : l.grid_cols;
  const int length = along_row ? l.grid_cols : l.grid_rows;
  if (length == 1) return flows;
  const auto place = [&](int line, int i) { return along_row ? line * l.grid_cols + i : i * l.grid_cols + line; };
  // What the users at each place of a line need of all rows is the same for every line.
  const Rows all_queries = Rows::of({0, w.problem().n_q}), all_keys = Rows::of({0, w.problem().n_k});
  std::vector<Rows> needed;
  needed.reserve(static_cast<std::size_t>(length));
  if (l.transfer != Transfer::ring)
    for (int i = 0; i < length; ++i)
      needed.push_back(side == Side::queries ? w.sight().queries_seeing(all_queries, w.keys_for(place(0, i)))
                                             : w.sight().keys_seen(w.queries_of_row(i), all_keys));
  for (int line = 0; line < lines; ++line) {
    std::vector<const Rows*> homes;
    homes.reserve(static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i) homes.push_back(&w.rows_of_place(side, place(line, i)));
    const std::vector<Flow> of_line = l.transfer == Transfer::ring ? ring_flows(homes) : line_flows(homes, needed);
    for (int i = 0; i < length; ++i)
      flows[static_cast<std::size_t>(place(line, i))] = of_line[static_cast<std::size_t>(i)];
  }
  return flows;
}

/// Rows of all ranks of a place, to the groups of heads and back: count.cpp says it rank by rank.
void add_head_flows(const World& w, Side side, const RowWidths& widths, std::vector<Load>& loads) {
  const int groups = w.layout().head_groups;
  if (groups == 1) return;
  for (int first = 0; first < w.ranks(); first += groups) {
    index_t all = 0, some = 0;  // rows, and ranks that have some
    for (int g = 0; g < groups; ++g) {
      const index_t rows = w.rows_of(side, first + g).count();
      all += rows;
      some += rows > 0 ? 1 : 0;
    }
    for (int g = 0; g < groups; ++g) {
      const index_t own = w.rows_of(side, first + g).count();
      const Messages out{Words(own) * (groups - 1), own > 0 ? groups - 1 : 0}, in{all - own, some - (own > 0 ? 1 : 0)};
      Crossing& c = loads[static_cast<std::size_t>(first) + static_cast<std::size_t>(g)].heads;
      add_inputs(c.sent, out, widths);
      add_results(c.received, out, widths);
      add_inputs(c.received, in, widths);
      add_results(c.sent, in, widths);
    }
  }
}

void add_grid_flows(const World& w, Side side, const RowWidths& widths, std::vector<Load>& loads) {
  const std::vector<Flow> flows = flows_of_side(w, side);
  for (int rank = 0; rank < w.ranks(); ++rank) {
    const Flow& f = flows[static_cast<std::size_t>(w.place_of(rank))];
    Crossing& c = loads[static_cast<std::size_t>(rank)].grid;
    add_inputs(c.received, f.inputs_in, widths);
    add_inputs(c.sent, f.inputs_out, widths);
    add_results(c.received, f.results_in, widths);
    add_results(c.sent, f.results_out, widths);
  }
}

}  // namespace

std::vector<Load> loads_of(const World& w) {
  std::vector<Load> loads(static_cast<std::size_t>(w.ranks()));
  for (const Side side : {Side::queries, Side::keys}) {
    const index_t heads = w.heads_of(side, 0).size();  // all groups have as many
    add_head_flows(w, side, head_widths(w.problem(), w.layout(), side, heads), loads);
    RowWidths widths = row_widths(w.problem(), side, heads);
    if (w.gathers_both()) widths.results = 0;
    add_grid_flows(w, side, widths, loads);
  }
  std::vector<Words> pairs = pairs_of_places(w);
  if (w.gathers_both() && w.layout().grid_rows > 1)
    for (int v = 0; v < w.layout().grid_rows; ++v)
      pairs[static_cast<std::size_t>(v)] += w.sight().pairs(Rows::of({0, w.problem().n_q}), w.keys_for(v));
  const Words heads = w.heads_of(Side::queries, 0).size() * w.problem().batch;
  for (int rank = 0; rank < w.ranks(); ++rank) {
    Load& load = loads[static_cast<std::size_t>(rank)];
    load.pairs = pairs[static_cast<std::size_t>(w.place_of(rank))] * heads;
    load.bias = bias_of(w, rank);
    load.sums = sums_of(w, rank);
  }
  return loads;
}

Crossing crossing_of(const Load& load) {
  Crossing all;
  for (const Crossing* part : {&load.heads, &load.grid, &load.bias, &load.sums})
    for (const auto& [into, some] : {std::pair{&all.received, &part->received}, {&all.sent, &part->sent}}) {
      into->inputs += some->inputs;
      into->partials += some->partials;
      into->messages += some->messages;
      into->statistics += some->statistics;
    }
  return all;
}

}  // namespace redblue::ranks
