#include "redblue/ranks/count.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "ranks/worlds.hpp"
#include "redblue/masks/visible.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/ranks/loads.hpp"

namespace redblue::ranks::test {
namespace {

using Sent = std::map<std::tuple<int, int, Cargo>, std::vector<Words>>;

/// Adds the messages of a rank: by sender, receiver and cargo, in order.
void add_messages(const World& w, int rank, const Program& program, Sent& sent, Sent& received) {
  for (const Step& s : program.steps) {
    if (s.verb == Verb::send) sent[{rank, s.peer, s.cargo}].push_back(words_of(w, program, s.pieces));
    if (s.verb == Verb::receive) received[{s.peer, rank, s.cargo}].push_back(words_of(w, program, s.pieces));
  }
}

/// The steps of these ranks against the formulas of one rank and of all.
void require_formulas(const World& w, const std::vector<int>& walked) {
  const std::vector<Load> loads = loads_of(w);
  for (int r = 0; r < w.ranks(); ++r) {
    const Load& load = loads[static_cast<std::size_t>(r)];
    ASSERT_EQ(crossing_of(load), crossing_of(w, r)) << w.layout() << ", rank " << r;
    ASSERT_EQ(load.pairs, pairs_of(w, r)) << w.layout() << ", rank " << r;
  }
  for (const int r : walked) {
    const RankCount counted = count(w, program_of(w, r));
    const Crossing formula = crossing_of(w, r);
    ASSERT_EQ(counted.received, formula.received) << w.layout() << ", rank " << r;
    ASSERT_EQ(counted.sent, formula.sent) << w.layout() << ", rank " << r;
    ASSERT_EQ(counted.pairs, pairs_of(w, r)) << w.layout() << ", rank " << r;
  }
}

RC_GTEST_PROP(RankCounts, FormulasAreWhatTheStepsSay, ()) {
  const Spread s = any_spread(40);
  const World w(s.problem, s.layout);
  std::vector<int> all;
  Sent sent, received;
  Words pairs;
  for (int r = 0; r < w.ranks(); ++r) {
    all.push_back(r);
    const Program program = program_of(w, r);
    add_messages(w, r, program, sent, received);
    pairs += count(w, program).pairs;
  }
  require_formulas(w, all);
  RC_ASSERT(!::testing::Test::HasFatalFailure());
  RC_ASSERT(sent == received);
  RC_ASSERT(pairs == visible_pairs(s.problem.sizes()) * s.problem.instances());
}

/// All divisions of 1 to 64 ranks, with sizes below and above the number of ranks.
TEST(RankCounts, FormulasHoldForEveryDivisionOfUpTo64Ranks) {
  const int step = redblue::test::few_cases() ? 7 : 1;
  std::uint64_t seed = 1;
  const auto draw = [&](index_t most) {  // 0 to most
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<index_t>((seed >> 33) % static_cast<std::uint64_t>(most + 1));
  };
  for (int P = 1; P <= 64; P += step)
    for (int u = 1; u <= P; ++u)
      for (int r = 1; P % u == 0 && r <= P / u; ++r) {
        if (P / u % r != 0) continue;
        Layout l{u, r, P / u / r};
        const bool line = l.grid_rows == 1 || l.grid_cols == 1;
        l.transfer = static_cast<Transfer>(draw(line ? 2 : 1));
        l.ownership = static_cast<Ownership>(draw(2));
        l.block = l.ownership == Ownership::block_cyclic ? 1 + draw(4) : 0;
        Problem p;
        p.op = draw(1) == 0 ? Operation::forward : Operation::backward;
        p.kv_heads = draw(1) == 0 ? u : 1;
        p.heads = *p.kv_heads == 1 ? u : u * (1 + draw(2));
        p.n_q = 1 + draw(draw(1) == 0 ? 90 : 200);
        p.n_k = draw(1) == 0 ? p.n_q : 1 + draw(200);
        p.d = 1 + draw(3);
        p.d_v = 1 + draw(3);
        p.causal = draw(1) == 0;
        if (draw(2) == 0) p.window_left = draw(40);
        require_formulas(World(p, l), {0, static_cast<int>(draw(P - 1)), P - 1});
        if (HasFatalFailure()) return;
      }
}

/// A second count, from the definitions alone: which rank has a row, who sees whom, whom a rank works for.
class Definition {
 public:
  Definition(const Problem& p, const Layout& l) : p_(p), l_(l) {}

  Load load_of(int rank) const {
    Load load;
    for (const Side side : {Side::queries, Side::keys}) {
      add_heads(rank, side, load.heads);
      add_grid(rank, side, load.grid);
    }
    if (p_.sinks_gradient) add_sums(rank, p_.heads, load.sums);
    if (p_.bias && (*p_.bias)[2] == 1) {
      const auto& [batches, heads, rows, cols] = *p_.bias;
      if (p_.bias_gradient) add_sums(rank, batches * heads * cols, load.sums);
    } else if (p_.bias) {
      add_bias(rank, load.bias);
    }
    for (index_t i = 0; i < p_.n_q; ++i)
      for (index_t j = 0; j < p_.n_k; ++j)
        if (row(place(owner(i, p_.n_q))) == row(place(rank)) && col(place(owner(j, p_.n_k))) == col(place(rank)) &&
            sees(i, j))
          load.pairs += p_.batch * heads(Side::queries);
    return load;
  }

 private:
  index_t ranks() const { return l_.ranks(); }
  index_t place(index_t rank) const { return rank / l_.head_groups; }
  index_t row(index_t place) const { return place / l_.grid_cols; }
  index_t col(index_t place) const { return place % l_.grid_cols; }
  index_t rows(Side side) const { return side == Side::queries ? p_.n_q : p_.n_k; }
  index_t heads(Side side) const {
    return std::max<index_t>(1, (side == Side::queries ? p_.heads : *p_.kv_heads) / l_.head_groups);
  }
  index_t owner(index_t i, index_t n) const {
    if (l_.ownership == Ownership::block_cyclic) return i / l_.block % ranks();
    const index_t parts = l_.ownership == Ownership::zig_zag ? 2 * ranks() : ranks();
    index_t part = 0;
    while ((part + 1) * n / parts <= i) ++part;
    return std::min(part, 2 * ranks() - 1 - part);
  }
  bool sees(index_t i, index_t j) const {
    index_t first_query = 0, first_key = 0, offset = p_.causal_offset.value_or(p_.n_k - p_.n_q);
    for (const index_t begin : p_.cu_seqlens_q) {
      if ((i < begin) != (j < begin)) return false;
      if (begin <= i) first_query = first_key = begin;
    }
    const index_t query = i - first_query, key = j - first_key;
    if (p_.window_left && key < query + offset - *p_.window_left) return false;
    if (key < p_.prefix) return true;
    if (p_.causal && key > query + offset) return false;
    return !p_.window_right || key <= query + offset + *p_.window_right;
  }
  /// Rows of the home place that the user place needs.
  index_t needed(Side side, index_t home, index_t user) const {
    index_t count = 0;
    for (index_t x = 0; x < rows(side); ++x) {
      if (place(owner(x, rows(side))) != home) continue;
      bool used = false;
      for (index_t y = 0; y < rows(side == Side::queries ? Side::keys : Side::queries); ++y)
        used = used || (side == Side::queries ? sees(x, y) && col(place(owner(y, p_.n_k))) == col(user)
                                              : sees(y, x) && row(place(owner(y, p_.n_q))) == row(user));
      count += used;
    }
    return count;
  }
  index_t home_rows(Side side, index_t rank) const {
    index_t count = 0;
    for (index_t x = 0; x < rows(side); ++x) count += owner(x, rows(side)) == rank;
    return count;
  }
  /// What travels to where it is needed, and back. `kept`: q, k and v of a gradient are there.
  void add(Side side, index_t in, index_t out, Crossing& c, bool kept = false) const {
    const index_t statistics = side == Side::queries && p_.op == Operation::backward ? 2 : 0;
    const bool backward = p_.op == Operation::backward, queries = side == Side::queries;
    const bool all = !kept || !backward;
    const index_t there = queries ? (backward ? (all ? p_.d : 0) + p_.d_v + 2 : p_.d) : all ? p_.d + p_.d_v : 0;
    const index_t back = queries ? (backward ? p_.d : p_.d_v + 1) : (backward ? p_.d + p_.d_v : 0);
    const Words each = p_.batch * heads(side);
    const auto message = [](Words& words, Words& messages, Words size) {
      words += size;
      messages += size > 0 ? 1 : 0;
    };
    c.received.statistics += each * in * statistics;
    c.sent.statistics += each * out * statistics;
    message(c.received.inputs, c.received.messages, each * in * there);
    message(c.sent.partials, c.sent.messages, each * in * back);
    message(c.sent.inputs, c.sent.messages, each * out * there);
    message(c.received.partials, c.received.messages, each * out * back);
  }
  /// Words of the bias of rows that `home` has, in the heads of a group, that `user` needs: of queries that see a key
  /// of its column, and of these keys.
  index_t bias_words(index_t home, index_t user) const {
    std::set<index_t> queries, keys;
    for (index_t i = 0; i < p_.n_q; ++i)
      for (index_t j = 0; j < p_.n_k; ++j)
        if (owner(i, p_.n_q) == home && col(place(owner(j, p_.n_k))) == col(place(user)) && sees(i, j))
          queries.insert(i), keys.insert(j);
    const auto& [batches, heads_, rows, cols] = *p_.bias;
    return batches * (heads_ == 1 ? 1 : heads(Side::queries)) * std::ssize(queries) *
           (cols == 1 ? std::min<index_t>(1, std::ssize(keys)) : std::ssize(keys));
  }
  void add_bias(index_t rank, Crossing& c) const {
    for (index_t other = 0; other < ranks(); ++other) {
      if (other == rank || row(place(other)) != row(place(rank))) continue;
      const index_t come = bias_words(other, rank), go = bias_words(rank, other);
      const auto message = [](Traffic& t, Words Traffic::* cargo, index_t words) {
        t.*cargo += words;
        t.messages += words > 0 ? 1 : 0;
      };
      message(c.received, &Traffic::inputs, come);
      message(c.sent, &Traffic::inputs, go);
      if (!p_.bias_gradient) continue;
      message(c.sent, &Traffic::partials, come);
      message(c.received, &Traffic::partials, go);
    }
  }
  /// Words go from rank 0 to rank 1, and so on to the last, from there to rank 0, and so on to all.
  void add_sums(index_t rank, index_t words, Crossing& c) const {
    for (index_t hop = 0; hop < 2 * (ranks() - 1); ++hop)
      for (auto& [traffic, who] : {std::pair{&c.sent, hop % ranks()}, {&c.received, (hop + 1) % ranks()}})
        if (who == rank) {
          traffic->partials += words;
          traffic->messages += 1;
        }
  }
  void add_heads(index_t rank, Side side, Crossing& c) const {
    for (index_t other = 0; other < ranks(); ++other)
      if (other != rank && place(other) == place(rank))
        add(side, home_rows(side, other), home_rows(side, rank), c, l_.keeps_heads);
  }
  void add_grid(index_t rank, Side side, Crossing& c) const {
    const index_t own = place(rank);
    for (index_t other = 0; other < l_.grid_rows * l_.grid_cols; ++other)
      if (other != own && (side == Side::queries ? row(other) == row(own) : col(other) == col(own)))
        add(side, needed(side, other, own), needed(side, own, other), c);
  }

  const Problem& p_;
  const Layout& l_;
};

RC_GTEST_PROP(RankCounts, AreThoseOfTheDefinitions, ()) {
  Spread s = any_spread(14);
  if (s.layout.transfer == Transfer::ring) s.layout.transfer = Transfer::exchange;  // hands on what nobody needs
  if (s.layout.ownership == Ownership::documents) s.layout.ownership = Ownership::contiguous;
  const World w(s.problem, s.layout);
  const Definition definition(s.problem, s.layout);
  const std::vector<Load> loads = loads_of(w);
  for (int r = 0; r < w.ranks(); ++r) {
    const Load expected = definition.load_of(r), &load = loads[static_cast<std::size_t>(r)];
    RC_ASSERT(load.heads == expected.heads);
    RC_ASSERT(load.grid == expected.grid);
    RC_ASSERT(load.bias == expected.bias);
    RC_ASSERT(load.sums == expected.sums);
    RC_ASSERT(load.pairs == expected.pairs);
  }
}

/// A document without queries still has keys, one without keys has queries: they lie on some rank, too.
TEST(RankCounts, RowsOfDocumentsThatSeeNothingLieOnARank) {
  Problem p;
  p.n_q = 7;
  p.n_k = 9;
  p.d = p.d_v = 2;
  p.cu_seqlens_q = {0, 4, 4, 6, 7};
  p.cu_seqlens_k = {0, 3, 8, 8, 9};
  const World w(p, {.grid_rows = 3, .ownership = Ownership::documents});
  Rows queries, keys;
  Words rows, cols;
  for (int r = 0; r < 3; ++r) {
    queries = union_of(queries, w.queries_of(r));
    keys = union_of(keys, w.keys_of(r));
    rows += w.queries_of(r).count();
    cols += w.keys_of(r).count();
  }
  EXPECT_EQ(queries, Rows::of({0, 7}));
  EXPECT_EQ(keys, Rows::of({0, 9}));
  EXPECT_EQ(rows, 7);
  EXPECT_EQ(cols, 9);
}

/// A rank hands on, in a ring, all blocks but the one of its left neighbour, whoever needs them.
TEST(RankCounts, RingsHandOnAllOtherBlocks) {
  Problem p;
  p.n_q = p.n_k = 23;
  p.d = 3;
  p.d_v = 2;
  p.causal = true;
  const World w(p, {1, 5, 1, Transfer::ring});
  for (int r = 0; r < 5; ++r) {
    const Crossing c = crossing_of(w, r);
    EXPECT_EQ(c.received, (Traffic{(23 - w.keys_of(r).count()) * 5, 0, 4}));
    EXPECT_EQ(c.sent, (Traffic{(23 - w.keys_of((r + 4) % 5).count()) * 5, 0, 4}));
  }
  p.op = Operation::backward;
  const World back(p, {1, 5, 1, Transfer::ring});
  const Crossing c = crossing_of(back, 2);
  EXPECT_EQ(c.received.partials, (23 - back.keys_of(3).count()) * 5);  // dK, dV of all but what its right neighbour has
  EXPECT_EQ(c.sent.partials, (23 - back.keys_of(2).count()) * 5);
}

/// Theory: (|Q_a| - r_i) H d + (|K_b| - r_i) h (d + d_v) + r_i (p_c - 1) H (d_v + 1), and the backward line.
TEST(RankCounts, OfDenseGridsAreTheIntegersOfTheTheory) {
  for (const Operation op : {Operation::forward, Operation::backward}) {
    Problem p;
    p.op = op;
    p.heads = 6;
    p.kv_heads = 2;
    p.n_q = p.n_k = 101;
    p.d = 5;
    p.d_v = 3;
    const World w(p, {1, 3, 4, Transfer::exchange});
    for (int i = 0; i < w.ranks(); ++i) {
      const Words r = w.queries_of(i).count(), Q = w.queries_of_row(i / 4).count(), K = w.keys_of_col(i % 4).count();
      const Crossing c = crossing_of(w, i);
      if (op == Operation::forward) {
        EXPECT_EQ(c.received.inputs, (Q - r) * 6 * 5 + (K - r) * 2 * 8);
        EXPECT_EQ(c.received.partials, r * 3 * 6 * 4);
      } else {
        EXPECT_EQ(c.received.inputs, (Q - r) * 6 * (5 + 3 + 2) + (K - r) * 2 * 8);
        EXPECT_EQ(c.received.partials, r * 3 * 6 * 5 + r * 2 * 2 * 8);
      }
    }
  }
}

}  // namespace
}  // namespace redblue::ranks::test
