#include <utility>

#include "redblue/ranks/rank.hpp"

/// The schedules over ranks. Each is one text for forward and backward: what queries and keys bring, and what comes of
/// them, are bundles of tiles.
namespace redblue::ranks {
namespace {

/// Attention or its gradient on one place of the grid: what it has of queries and keys, and where results go.
struct Own {
  Bundle queries;          ///< Q, or Q, dO, lse, D
  Bundle keys;             ///< K, V
  Bundle query_results;    ///< O, lse, or dQ
  Bundle key_results;      ///< none, or dK, dV
  int o = -1;              ///< backward: an o whose products with dO are known here
  Bundle bias{}, dBias{};  ///< of these queries and keys
};

/// Blocks of one side that pass a rank, its own first, with their results.
struct Passing {
  std::vector<Bundle> inputs, results;
  std::vector<int> o;  ///< backward, queries: as Own::o
  int next_user = 1;   ///< the step of the rank to which this rank's own block goes next
};

class Text {
 public:
  Text(Rank& rank, Own own) : r_(rank), w_(rank.world), own_(std::move(own)) {}

  void run() {
    if (w_.gathers_both())
      both();
    else if (w_.layout().transfer == Transfer::ring)
      ring(w_.layout().grid_rows > 1 ? Side::keys : Side::queries);
    else if (w_.layout().transfer == Transfer::gather)
      gather();
    else
      exchange();
  }

 private:
  bool backward() const { return !own_.key_results.tiles.empty(); }
  const Bundle& inputs_of(Side side) const { return side == Side::queries ? own_.queries : own_.keys; }
  const Bundle& results_of(Side side) const { return side == Side::queries ? own_.query_results : own_.key_results; }
  /// Does this side move along rows of the grid?
  bool along_row(Side side) const { return side == Side::queries && !w_.gathers_both(); }
  int blocks_of(Side side) const { return along_row(side) ? w_.layout().grid_cols : w_.layout().grid_rows; }
  /// The rank whose block passes here at step s, and the one that has this rank's block then.
  int peer(Side side, int s) const {
    const int n = blocks_of(side);
    const auto at = [&](int i) { return ((i + s) % n + n) % n; };
    return along_row(side) ? w_.rank_at(r_.group(), r_.row(), at(r_.col()))
                           : w_.rank_at(r_.group(), at(r_.row()), r_.col());
  }
  /// The rows of the home's block that the user takes part in.
  Rows needed(Side side, int home, int user) const {
    const Rows& rows = w_.rows_of_place(side, w_.place_of(home));
    if (side == Side::queries) return w_.sight().queries_seeing(rows, w_.keys_for(w_.place_of(user)));
    return w_.sight().keys_seen(w_.queries_of_row(w_.row_of(w_.place_of(user))), rows);
  }

  void work(const Bundle& q, const Bundle& k, const Bundle& rq, const Bundle& rk, int o) {
    work(q, k, rq, rk, o, {q.rows, k.rows});
  }
  void work(const Bundle& q, const Bundle& k, const Bundle& rq, const Bundle& rk, int o, const Meeting& rows) {
    const auto result = [](const Bundle& b, std::size_t i) { return b.tiles.empty() ? -1 : b.tiles[i]; };
    std::vector<int> tiles;
    if (backward())
      tiles = {q.tiles[0], k.tiles[0],    k.tiles[1],    q.tiles[1],   o,
               q.tiles[2], result(rq, 0), result(rk, 0), result(rk, 1)};
    else
      tiles = {q.tiles[0], k.tiles[0], k.tiles[1], rq.tiles[0], rq.tiles[1]};
    for (const Bundle* b : {&own_.bias, &own_.dBias}) tiles.insert(tiles.end(), b->tiles.begin(), b->tiles.end());
    backward() ? r_.gradient(std::move(tiles), rows) : r_.attend(std::move(tiles), rows);
  }
  void work_on_own(const Meeting& rows) {
    work(own_.queries, own_.keys, own_.query_results, own_.key_results, own_.o, rows);
  }
  /// This rank's own queries and keys: what is worked on first, while blocks of others come, and what is worked on
  /// last, while results of the last of these go home. Where no results go home, all of it comes first.
  std::array<Meeting, 2> own_work() const {
    const Meeting own{own_.queries.rows, own_.keys.rows};
    for (const Side side : {Side::queries, Side::keys})
      if (last_needed(side) > 0 && !results_of(side).tiles.empty()) return halves_of(w_.sight(), own);
    return {own, {}};
  }
  /// The last block of others that this rank works on; 0: there is none.
  int last_needed(Side side) const {
    int s = blocks_of(side) - 1;
    while (s > 0 && needed(side, peer(side, s), r_.number).empty()) --s;
    return s;
  }
  Bundle held_inputs(Side side, const Rows& rows) { return r_.hold(r_.arrays_of(inputs_of(side)), rows); }
  Bundle held_results(Side side, const Rows& rows) {
    Bundle b = r_.hold(r_.arrays_of(results_of(side)), rows);
    if (!b.empty()) r_.clear(b);
    return b;
  }
  int stand_in(Side side, const Bundle& inputs) {
    if (side != Side::queries || !backward() || inputs.empty()) return -1;
    const int o = r_.hold({SlowArray::O}, inputs.rows).tiles[0];
    r_.stand_in(inputs.tiles[1], inputs.tiles[3], o);
    return o;
  }

  /// The blocks of a row and of a column meet here one by one: those of the longer side pass, those of the other stay.
  /// Results of a block go home once they are complete. They are taken in there after the work on the next block, which
  /// they travel beside, and those of the last block beside the last of the work on this rank's own rows.
  void exchange() {
    const auto [first, last] = own_work();
    const Side outer = blocks_of(Side::keys) >= blocks_of(Side::queries) ? Side::keys : Side::queries;
    const Side inner = outer == Side::keys ? Side::queries : Side::keys;
    const int last_block = last_needed(outer);
    Passing out = begin(outer), in = begin(inner);
    leave(inner, in);
    leave(outer, out);
    for (int s = 0; s < blocks_of(outer); ++s) {
      if (s > 0) bring(outer, s, out);
      for (int t = 0; t < blocks_of(inner); ++t) {
        if (s == 0 && t > 0) bring(inner, t, in);
        const Passing &q = outer == Side::queries ? out : in, &k = outer == Side::keys ? out : in;
        const auto i = static_cast<std::size_t>(outer == Side::queries ? s : t),
                   j = static_cast<std::size_t>(outer == Side::keys ? s : t);
        if (s == 0 && t == 0)
          work_on_own(first);
        else
          work(q.inputs[i], k.inputs[j], q.results[i], k.results[j], q.o[i]);
        if (s == last_block) send_home(inner, t, in);
        if (s + 1 == blocks_of(outer)) take_home(inner, t - 1);
      }
      send_home(outer, s, out);
      take_home(outer, s - 1);
      if (s == last_block) work_on_own(last);
    }
    take_home(inner, blocks_of(inner) - 1);
    take_home(outer, blocks_of(outer) - 1);
  }
  Passing begin(Side side) const { return {{inputs_of(side)}, {results_of(side)}, {own_.o}}; }
  /// This rank's own block leaves for the rank that needs it next.
  void leave(Side side, Passing& passing) {
    for (bool leaves = false; passing.next_user < blocks_of(side) && !leaves; ++passing.next_user) {
      const int user = peer(side, -passing.next_user);
      const Rows rows = needed(side, r_.number, user);
      r_.send(user, inputs_of(side), rows, Cargo::inputs);
      leaves = !rows.empty();
    }
  }
  void bring(Side side, int s, Passing& passing) {
    leave(side, passing);
    const int home = peer(side, s);
    const Rows rows = needed(side, home, r_.number);
    passing.inputs.push_back(held_inputs(side, rows));
    r_.receive(home, passing.inputs.back(), rows, Cargo::inputs);
    passing.results.push_back(held_results(side, rows));
    passing.o.push_back(stand_in(side, passing.inputs.back()));
  }
  /// The results of block s go home; those of this rank's own block come from the rank that had it s-th.
  void send_home(Side side, int s, const Passing& passing) {
    const Bundle& results = passing.results[static_cast<std::size_t>(s)];
    if (s > 0 && !results_of(side).tiles.empty()) r_.send(peer(side, s), results, results.rows, Cargo::partials);
  }
  void take_home(Side side, int s) {
    if (s <= 0 || results_of(side).tiles.empty()) return;
    const int user = peer(side, -s);
    take_in(user, results_of(side), needed(side, r_.number, user));
  }
  void take_in(int from, const Bundle& into, const Rows& rows) {
    const Bundle part = r_.hold(r_.arrays_of(into), rows);
    r_.receive(from, part, rows, Cargo::partials);
    r_.take_in(part, into, rows);
  }

  /// All blocks of a row and of a column are here before the work begins.
  void gather() {
    Passing q = gathered(Side::queries), k = gathered(Side::keys);
    work(q.inputs[0], k.inputs[0], q.results[0], k.results[0], q.o[0]);
    scatter(Side::queries, q);
    scatter(Side::keys, k);
  }
  Passing gathered(Side side) {
    const int n = blocks_of(side);
    if (n == 1) return begin(side);
    for (int s = 1; s < n; ++s) {
      const int user = peer(side, -s);
      r_.send(user, inputs_of(side), needed(side, r_.number, user), Cargo::inputs);
    }
    const Rows own = needed(side, r_.number, r_.number);
    Rows all = own;
    for (int s = 1; s < n; ++s) all = union_of(all, needed(side, peer(side, s), r_.number));
    const Bundle inputs = held_inputs(side, all);
    r_.copy(inputs_of(side), inputs, own);
    for (int s = 1; s < n; ++s)
      r_.receive(peer(side, s), inputs, needed(side, peer(side, s), r_.number), Cargo::inputs);
    return {{inputs}, {w_.gathers_both() ? Bundle{} : held_results(side, all)}, {stand_in(side, inputs)}};
  }
  /// All keys come to the queries that see them, and all queries to the keys, so that no partial result leaves a rank.
  void both() {
    const Passing q = gathered(Side::queries), k = gathered(Side::keys);
    if (blocks_of(Side::keys) == 1) return work(own_.queries, own_.keys, own_.query_results, own_.key_results, own_.o);
    work(own_.queries, k.inputs[0], own_.query_results, {}, own_.o);
    work(q.inputs[0], own_.keys, {}, own_.key_results, q.o[0]);
  }
  void scatter(Side side, const Passing& all) {
    const int n = blocks_of(side);
    if (n == 1 || results_of(side).tiles.empty()) return;
    for (int s = 1; s < n; ++s)
      r_.send(peer(side, s), all.results[0], needed(side, peer(side, s), r_.number), Cargo::partials);
    r_.take_in(all.results[0], results_of(side), needed(side, r_.number, r_.number));
    for (int s = 1; s < n; ++s) take_in(peer(side, -s), results_of(side), needed(side, r_.number, peer(side, -s)));
  }

  /// Blocks of one side go from right to left, and so do their results, to which each rank adds its own after its work,
  /// which they come beside. After n steps they are home.
  void ring(Side side) {
    const int n = blocks_of(side), right = peer(side, 1), left = peer(side, -1);
    const auto [first, last] = own_work();
    Bundle inputs = inputs_of(side);
    if (n > 1) r_.send(left, inputs, inputs.rows, Cargo::inputs);
    work_on_own(first);
    for (int s = 1; s < n; ++s) {
      const Rows& rows = w_.rows_of_place(side, w_.place_of(peer(side, s)));
      inputs = held_inputs(side, rows);
      r_.receive(right, inputs, rows, Cargo::inputs);
      if (s + 1 < n) r_.send(left, inputs, rows, Cargo::inputs);
      const int o = stand_in(side, inputs);
      const Bundle results = held_results(side, rows);
      if (side == Side::keys)
        work(own_.queries, inputs, own_.query_results, results, own_.o);
      else
        work(inputs, own_.keys, results, own_.key_results, o);
      if (s > 1) take_in(right, results, rows);
      r_.send(left, results, rows, Cargo::partials);
    }
    work_on_own(last);
    if (n > 1) take_in(right, results_of(side), results_of(side).rows);
  }

  Rank& r_;
  const World& w_;
  Own own_;
};

/// What the ranks of a place have at home, all heads, becomes what the place has, the heads of each group on its rank;
/// and results go the other way.
Bundle to_group(Rank& r, const Bundle& at_home, Side side) {
  const int groups = r.world.layout().head_groups;
  const Bundle b = r.hold(r.arrays_of(at_home), r.world.rows_of_place(side, r.place()));
  const auto rank_of = [&](int g) { return r.place() * groups + g; };
  for (int s = 1; s < groups; ++s) {
    const int g = (r.group() + groups - s) % groups;
    r.send_heads(rank_of(g), at_home, g, Cargo::inputs);
  }
  r.copy_heads(at_home, b, at_home.rows, r.group());
  for (int s = 1; s < groups; ++s) {
    const int from = rank_of((r.group() + s) % groups);
    r.receive(from, b, r.world.rows_of(side, from), Cargo::inputs);
  }
  return b;
}
/// A group has these arrays where the forward pass left them.
Bundle kept(Rank& r, const std::vector<SlowArray>& arrays, Side side) {
  const Bundle b = r.hold(arrays, r.world.rows_of_place(side, r.place()));
  r.keep(b);
  return b;
}
void from_group(Rank& r, const Bundle& results, const Bundle& at_home, Side side) {
  const int groups = r.world.layout().head_groups;
  const auto rank_of = [&](int g) { return r.place() * groups + g; };
  for (int s = 1; s < groups; ++s) {
    const int to = rank_of((r.group() + s) % groups);
    r.send(to, results, r.world.rows_of(side, to), Cargo::partials);
  }
  const bool shared = r.world.all_heads(side).size() < groups;  // several groups have results of the same head
  if (shared) {
    r.clear(at_home);
    r.take_in(results, at_home, at_home.rows);
  } else {
    r.copy_heads(results, at_home, at_home.rows, r.group());
  }
  for (int s = 1; s < groups; ++s) {
    const int g = (r.group() + groups - s) % groups;
    if (!shared) {
      r.receive_heads(rank_of(g), at_home, g, Cargo::partials);
      continue;
    }
    const Bundle part = r.hold_heads(r.arrays_of(results), at_home.rows, g);
    r.receive(rank_of(g), part, part.rows, Cargo::partials);
    r.take_in(part, at_home, part.rows);
  }
}

/// What each rank has summed over its rows becomes the sums over all rows, on every rank, added in rank order: they go
/// from rank to rank, each of which adds its own, and those of the last rank go round once more.
void sum_over_ranks(Rank& r, const Bundle& own) {
  const int ranks = r.world.ranks(), last = ranks - 1;
  if (ranks == 1) return;
  const int left = (r.number + last) % ranks, right = (r.number + 1) % ranks;
  if (r.number > 0) {
    const Bundle before = r.modifier(r.arrays_of(own)[0], false);
    r.receive(left, before, before.rows, Cargo::partials);
    r.take_in(before, own, own.rows);
  }
  r.send(right, own, own.rows, Cargo::partials);
  if (r.number < last) r.receive(left, own, own.rows, Cargo::partials);
  if (r.number < last && right < last) r.send(right, own, own.rows, Cargo::partials);
}

/// The blocks of a bias come from the ranks that have their rows at home, before the work begins.
Bundle bring_bias(Rank& r) {
  const World& w = r.world;
  Bundle at_home = r.modifier(SlowArray::bias, true);
  if (!bias_travels(w)) return at_home;
  const int ranks = ranks_of_row(w);
  for (int s = 1; s < ranks; ++s) {
    const int user = row_peer(w, r.number, -s);
    r.send(user, at_home, bias_block(w, r.number, user), Cargo::inputs);
  }
  BiasBlock all = bias_block(w, r.number, r.number);
  for (int s = 1; s < ranks; ++s) {
    const BiasBlock one = bias_block(w, row_peer(w, r.number, s), r.number);
    all.rows = union_of(all.rows, one.rows);
    all.cols = union_of(all.cols, one.cols);
  }
  if (all.empty()) return {};
  const Bundle here = r.hold(SlowArray::bias, all);
  r.copy(at_home, here, bias_block(w, r.number, r.number));
  for (int s = 1; s < ranks; ++s) {
    const int home = row_peer(w, r.number, s);
    r.receive(home, here, bias_block(w, home, r.number), Cargo::inputs);
  }
  return here;
}

/// Where the gradients of such blocks are formed: at home, or held like the bias.
Bundle begin_bias_gradient(Rank& r, const Bundle& at_home, const Bundle& bias) {
  r.clear(at_home);
  if (!bias_travels(r.world)) return at_home;
  if (bias.tiles.empty()) return {};
  const Tile like = r.program.tiles[static_cast<std::size_t>(bias.tiles[0])];
  const Bundle here = r.hold(SlowArray::dBias, BiasBlock{like.rows, like.cols, like.heads});
  r.clear(here);
  return here;
}
/// They go home, or are summed over all ranks.
void end_bias_gradient(Rank& r, const Bundle& here, const Bundle& at_home) {
  const World& w = r.world;
  if ((*w.problem().bias)[2] == 1) return sum_over_ranks(r, at_home);
  if (!bias_travels(w)) return;
  const int ranks = ranks_of_row(w);
  for (int s = 1; s < ranks; ++s) {
    const int home = row_peer(w, r.number, s);
    r.send(home, here, bias_block(w, home, r.number), Cargo::partials);
  }
  r.add(here, at_home, bias_block(w, r.number, r.number));
  for (int s = 1; s < ranks; ++s) {
    const int user = row_peer(w, r.number, -s);
    const BiasBlock block = bias_block(w, r.number, user);
    if (block.empty()) continue;
    const Bundle part = r.hold(SlowArray::dBias, block);
    r.receive(user, part, block, Cargo::partials);
    r.add(part, at_home, block);
  }
}

void forward(Rank& r) {
  using enum SlowArray;
  const Bundle queries = r.home({Q}), kv = r.home({K, V}), o = r.home({O, lse});
  const bool groups = r.world.layout().head_groups > 1;
  Own own;
  own.queries = groups ? to_group(r, queries, Side::queries) : queries;
  own.keys = groups ? to_group(r, kv, Side::keys) : kv;
  if (r.world.layout().keeps_heads)
    for (const Bundle* b : {&own.queries, &own.keys}) r.keep(*b);
  own.query_results = groups ? r.hold({O, lse}, own.queries.rows) : o;
  r.clear(own.query_results);
  if (r.world.problem().bias) own.bias = bring_bias(r);
  Text(r, own).run();
  if (groups) from_group(r, own.query_results, o, Side::queries);
  if (r.world.problem().sinks) r.sink(o);
}

void backward(Rank& r) {
  using enum SlowArray;
  const Bundle given = r.home({Q, dO, lse, O}), kv = r.home({K, V}), dq = r.home({dQ}), dkv = r.home({dK, dV});
  const Layout& layout = r.world.layout();
  const bool groups = layout.head_groups > 1;
  Bundle queries{given.rows, {given.tiles[0], given.tiles[1], given.tiles[2]}};
  Own own;
  own.o = given.tiles[3];
  const Problem& problem = r.world.problem();
  const bool sums_sinks = problem.sinks_gradient, travel = groups || layout.grid_cols > 1 || r.world.gathers_both();
  Bundle of_sinks;
  if (sums_sinks || travel) {
    const int products = r.hold_heads({D}, queries.rows, -1).tiles[0];
    r.products(queries.tiles[1], own.o, products);
    if (sums_sinks) {
      of_sinks = r.modifier(dSinks, true);
      r.clear(of_sinks);
      r.sinks(queries.tiles[2], products, of_sinks.tiles[0]);
    }
    if (travel) queries.tiles.push_back(products);
  }
  if (layout.keeps_heads) {
    own.queries = kept(r, {Q}, Side::queries);
    own.keys = kept(r, {K, V}, Side::keys);
    const Bundle rest = to_group(r, {queries.rows, {queries.tiles.begin() + 1, queries.tiles.end()}}, Side::queries);
    own.queries.tiles.insert(own.queries.tiles.end(), rest.tiles.begin(), rest.tiles.end());
  } else {
    own.queries = groups ? to_group(r, queries, Side::queries) : queries;
    own.keys = groups ? to_group(r, kv, Side::keys) : kv;
  }
  if (groups || r.world.gathers_both()) {  // where queries come to keys, their O is a stand-in: so it is everywhere
    own.o = r.hold({O}, own.queries.rows).tiles[0];
    r.stand_in(own.queries.tiles[1], own.queries.tiles[3], own.o);
  }
  own.query_results = groups ? r.hold({dQ}, own.queries.rows) : dq;
  own.key_results = groups ? r.hold({dK, dV}, own.keys.rows) : dkv;
  r.clear(own.query_results);
  r.clear(own.key_results);
  if (problem.bias) own.bias = bring_bias(r);
  Bundle of_bias;
  if (problem.bias_gradient) {
    of_bias = r.modifier(dBias, true);
    own.dBias = begin_bias_gradient(r, of_bias, own.bias);
  }
  Text(r, own).run();
  if (groups) {
    from_group(r, own.query_results, dq, Side::queries);
    from_group(r, own.key_results, dkv, Side::keys);
  }
  if (sums_sinks) sum_over_ranks(r, of_sinks);
  if (problem.bias_gradient) end_bias_gradient(r, own.dBias, of_bias);
}

}  // namespace

Program program_of(const World& world, int rank) {
  Rank r(world, rank);
  if (world.problem().op == Operation::forward)
    forward(r);
  else
    backward(r);
  return std::move(r.program);
}

}  // namespace redblue::ranks
