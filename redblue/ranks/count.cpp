#include "redblue/ranks/count.hpp"

#include "redblue/ranks/bias_blocks.hpp"
#include "redblue/ranks/widths.hpp"

namespace redblue::ranks {
namespace {

/// A tile is held from the first step that names it to the last.
Words most_held(const World& world, const Program& program) {
  const std::vector<Lifetime> lives = lifetimes_of(program);
  std::vector<Words> comes(program.steps.size()), goes(program.steps.size());
  for (std::size_t t = 0; t < program.tiles.size(); ++t) {
    const Tile& tile = program.tiles[t];
    const bool given = tile.home || (tile.kept && world.problem().op == Operation::backward);
    if (given || lives[t].first == Lifetime::kNever) continue;
    const Words words = words_of(world.problem(), tile.array, tile.rows, tile.heads, tile.cols);
    comes[lives[t].first] += words;
    goes[lives[t].last] += words;
  }
  Words held, most;
  for (std::size_t k = 0; k < program.steps.size(); ++k) {
    held += comes[k];
    most = std::max(most, held);
    held -= goes[k];
  }
  return most;
}

void note_inputs(Traffic& t, Words rows, const RowWidths& widths) {
  t.inputs += rows * widths.inputs;
  t.statistics += rows * widths.statistics;
  t.messages += 1;
}
void note_results(Traffic& t, Words rows, const RowWidths& widths) {
  t.partials += rows * widths.results;
  t.messages += 1;
}

/// Rows that come here as inputs, and rows that go elsewhere, each as wide there; their results go the other way.
void note_both(Crossing& c, Words come, const RowWidths& here, Words go, const RowWidths& there) {
  if (come > 0 && here.inputs > 0) note_inputs(c.received, come, here);
  if (come > 0 && here.results > 0) note_results(c.sent, come, here);
  if (go > 0 && there.inputs > 0) note_inputs(c.sent, go, there);
  if (go > 0 && there.results > 0) note_results(c.received, go, there);
}

/// It adds what heads cost that change ranks at a place, to the groups and back.
void add_groups(const World& w, int rank, Crossing& c) {
  const Layout& l = w.layout();
  if (l.head_groups == 1) return;
  for (const Side side : {Side::queries, Side::keys})
    for (int g = 0; g < l.head_groups; ++g) {
      const int other = w.place_of(rank) * l.head_groups + g;
      if (other == rank) continue;
      const Words own = w.rows_of(side, rank).count(), its = w.rows_of(side, other).count();
      const RowWidths mine = head_widths(w.problem(), l, side, w.heads_of(side, w.group_of(rank)).size()),
                      theirs = head_widths(w.problem(), l, side, w.heads_of(side, g).size());
      note_both(c, its, mine, own, theirs);
    }
}

/// The rows of the home's block that the user needs.
Words rows_needed(const World& w, Side side, int home, int user) {
  const Rows& rows = w.rows_of_place(side, home);
  if (w.layout().transfer == Transfer::ring || w.sight().sees_all()) {
    const bool none = w.layout().transfer != Transfer::ring &&
                      (side == Side::queries ? w.keys_for(user) : w.queries_of_row(w.row_of(user))).empty();
    return none ? 0 : rows.count();
  }
  if (side == Side::queries) return w.sight().queries_seeing(rows, w.keys_for(user)).count();
  return w.sight().keys_seen(w.queries_of_row(w.row_of(user)), rows).count();
}

/// A ring hands on all blocks of a side but the one that the receiver has at home, and with them the results of all but
/// that of the sender's own.
void add_ring(const World& w, Side side, int v, const RowWidths& widths, Crossing& c) {
  const int n = side == Side::queries ? w.layout().grid_cols : w.layout().grid_rows;
  const int right = (v + 1) % n;  // who sends to v
  const int left = (v + n - 1) % n;
  for (int u = 0; u < n; ++u) {
    const Words rows = w.rows_of_place(side, u).count();
    if (rows == 0) continue;
    if (u != v) note_inputs(c.received, rows, widths);
    if (u != left) note_inputs(c.sent, rows, widths);
    if (widths.results == 0) continue;
    if (u != right) note_results(c.received, rows, widths);
    if (u != v) note_results(c.sent, rows, widths);
  }
}

void add_grid(const World& w, Side side, int v, const RowWidths& widths, Crossing& c) {
  const Layout& l = w.layout();
  const bool along_row = side == Side::queries && !w.gathers_both();
  const int n = along_row ? l.grid_cols : l.grid_rows;
  for (int i = 0; i < n; ++i) {
    const int other = along_row ? w.row_of(v) * l.grid_cols + i : i * l.grid_cols + w.col_of(v);
    if (other == v) continue;
    const Words come = rows_needed(w, side, other, v), go = rows_needed(w, side, v, other);
    note_both(c, come, widths, go, widths);
  }
}

void add_bias(const World& w, int rank, Crossing& c) {
  if (!bias_travels(w)) return;
  const RowWidths word{1, w.problem().bias_gradient ? 1 : 0, 0};
  for (int s = 1; s < ranks_of_row(w); ++s) {
    const int other = row_peer(w, rank, s);
    note_both(c, words_of(w.problem(), bias_block(w, other, rank)), word,
              words_of(w.problem(), bias_block(w, rank, other)), word);
  }
}

}  // namespace

void note(Traffic& traffic, const World& world, const Program& program, const Step& step) {
  traffic.messages += 1;
  for (const Piece& p : step.pieces) {
    const SlowArray array = program.tiles[static_cast<std::size_t>(p.tile)].array;
    const Words words = words_of(world.problem(), array, p.rows, p.heads, p.cols);
    (step.cargo == Cargo::inputs ? traffic.inputs : traffic.partials) += words;
    if (step.cargo == Cargo::inputs && (array == SlowArray::lse || array == SlowArray::D)) traffic.statistics += words;
  }
}

Crossing bias_of(const World& w, int rank) {
  Crossing c;
  add_bias(w, rank, c);
  return c;
}

RankCount count(const World& world, const Program& program) {
  RankCount c;
  for (const Step& s : program.steps) {
    if (s.verb == Verb::send) note(c.sent, world, program, s);
    if (s.verb == Verb::receive) note(c.received, world, program, s);
    if (s.verb == Verb::attend || s.verb == Verb::gradient) {
      const Tile& q = program.tiles[static_cast<std::size_t>(s.tiles[0])];
      c.pairs += world.sight().pairs(s.queries, s.keys) * q.heads.size() * world.problem().batch;
    }
  }
  c.held = most_held(world, program);
  return c;
}

std::vector<Words> words_of_sums(const Problem& p) {
  std::vector<Words> sums;
  if (p.sinks_gradient) sums.emplace_back(p.heads);
  if (p.bias_gradient && (*p.bias)[2] == 1) sums.push_back(Words((*p.bias)[0]) * (*p.bias)[1] * (*p.bias)[3]);
  return sums;
}

Crossing sums_of(const World& w, int rank) {
  Crossing c;
  const int last = w.ranks() - 1;
  if (last == 0) return c;
  const int come = (rank > 0 ? 1 : 0) + (rank < last ? 1 : 0), go = 1 + (rank + 1 < last ? 1 : 0);
  for (const Words& words : words_of_sums(w.problem())) {
    c.received.partials += words * come;
    c.received.messages += come;
    c.sent.partials += words * go;
    c.sent.messages += go;
  }
  return c;
}

Crossing crossing_of(const World& w, int rank) {
  Crossing c = sums_of(w, rank);
  add_bias(w, rank, c);
  add_groups(w, rank, c);
  for (const Side side : {Side::queries, Side::keys}) {
    const int n = side == Side::queries && !w.gathers_both() ? w.layout().grid_cols : w.layout().grid_rows;
    if (n == 1) continue;
    RowWidths widths = row_widths(w.problem(), side, w.heads_of(side, w.group_of(rank)).size());
    if (w.gathers_both()) widths.results = 0;
    if (w.layout().transfer == Transfer::ring)
      add_ring(w, side, w.place_of(rank), widths, c);
    else
      add_grid(w, side, w.place_of(rank), widths, c);
  }
  return c;
}

Words pairs_of(const World& w, int rank) {
  const int v = w.place_of(rank);
  Words pairs = w.sight().pairs(w.queries_of_row(w.row_of(v)), w.keys_of_col(w.col_of(v)));
  if (w.gathers_both() && w.layout().grid_rows > 1)
    pairs += w.sight().pairs(Rows::of({0, w.problem().n_q}), w.keys_for(v));
  return pairs * w.heads_of(Side::queries, w.group_of(rank)).size() * w.problem().batch;
}

}  // namespace redblue::ranks
