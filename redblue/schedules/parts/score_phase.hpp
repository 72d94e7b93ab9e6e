#pragma once
#include <numeric>

#include "redblue/kernels/softmax.hpp"
#include "redblue/schedules/parts/gemm.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// A phase that forms every entry of a matrix A B^T over pairs of queries and keys once and hands it on tile by tile,
/// with a statistic or two resident for each row of the tile: scores, probabilities and dS of the schedules that keep
/// them in slow memory. Tiles grow by rank-one updates; or a panel of rows of A is resident over all w columns while B
/// streams past. A(a) = SUM_I kappa_I and B(b) = SUM_J rho_J are the visits of docs/model.md; without a mask
/// ceil(n_q/a) n_k and ceil(n_k/b) n_q.
///   reads  tile w (B(b) + A(a))   panel w (n_q + A(a))
///   footprint  tile a b + min(a, b) + 1 + stats a   panel a (w + stats + b) + 1
/// A tile that holds hidden pairs is multiplied over the bounding box of the others only. Under a pattern there are
/// panels only: the keys of a tile pass run by run, each with the rows from the first to the last that see one of them.
namespace redblue::schedule {

struct ScoreTiling {
  index_t panel = 0;  ///< 1: rows of A resident over all w, rows of B stream past
  index_t a = 1;      ///< queries
  index_t b = 1;      ///< keys
};

/// The first of the blocks of b keys that these keys meet, and the one after the last.
inline Range blocks_of(Range keys, index_t b) {
  return {keys.begin / b, keys.size() > 0 ? ceil_div(keys.end, b) : keys.begin / b};
}
/// Under a pattern: f(box) for the parts of the tiles of these rows, each with keys of one run.
template <class F>
void for_pattern_boxes(const Pairs& pairs, Range I, index_t b, const F& f) {
  for (const Range& run : pairs.runs_of_keys(I))
    for (index_t j = run.begin; j < run.end;) {
      const Range J{j, std::min(run.end, (j / b + 1) * b)};
      f(Box{envelope_of(pairs.mask.pattern->keys(), J, I), J});
      j = J.end;
    }
}
/// The words of all these boxes for blocks of `a` rows, kept for the next time.
[[gnu::noinline]] inline Words pattern_box_words(const Pairs& pairs, index_t a, index_t b) {
  return pairs.mask.pattern->found("boxes", {a, b}, [&] {
    const Blocks blocks = pairs.row_blocks(a);
    Words words;
    for (index_t i = 0; i < blocks.count(); ++i)
      for_pattern_boxes(pairs, blocks(i), b,
                        [&](const Box& box) { words += Words(box.rows.size()) * box.keys.size(); });
    return Pattern::Found{words};
  })[0];
}
/// The words of the boxes of the tiles of these rows and of blocks of b keys, under an interval mask.
inline Words box_words_of_rows(const Pairs& pairs, Range I, index_t b) {
  const Blocks keys = pairs.key_blocks(b);
  const Range met = blocks_of(pairs.keys_of(I), b);
  // Between these blocks every row sees every key.
  const index_t from = ceil_div(pairs.keys_of({I.end - 1, I.end}).begin, b),
                to = std::max(from, pairs.keys_of({I.begin, I.begin + 1}).end / b);
  Words words = Words(to - from) * b * I.size();
  const auto add = [&](index_t begin, index_t end) {
    for (index_t j = begin; j < end; ++j) {
      const Box box = box_of(pairs, I, keys(j));
      words += Words(box.rows.size()) * box.keys.size();
    }
  };
  add(met.begin, std::min(from, met.end));
  add(std::max(to, met.begin), met.end);
  return words;
}
/// The blocks of `a` rows whose interval ends nowhere but at the edges of the mask; none where that is a list.
inline Range blocks_inside(const Pairs& pairs, const Blocks& blocks) {
  const Mask& mask = pairs.mask;
  if (mask.is_listed()) return {};
  const auto begins_inside = [&](index_t i) {
    const index_t position = blocks(i).begin / mask.group;
    return (mask.lo == -Mask::kFar || position + mask.lo >= 0) && position + mask.hi >= mask.prefix;
  };
  const auto ends_beyond = [&](index_t i) {
    return mask.hi != Mask::kFar && (blocks(i).end - 1) / mask.group + mask.hi > pairs.n_k;
  };
  const index_t begin = std::max<index_t>(1, redblue::detail::first_that(blocks.count(), begins_inside));
  return {begin, std::max(begin, redblue::detail::first_that(blocks.count(), ends_beyond))};
}
/// The words of the boxes of all tiles of a x b; the pairs that see each other where more than 2^16
/// blocks of rows would have to be added up. After some blocks of rows their edges cross blocks of keys as before.
inline Words box_words(const Sizes& x, index_t a, index_t b) {
  constexpr index_t kMany = 1 << 16;
  if (x.mask.pattern != nullptr) return pattern_box_words(x.pairs(), a, b);
  if (x.mask.full() || ceil_div(x.n_q, a) > kMany) return x.nnz();
  const Pairs pairs = x.pairs();
  const Blocks rows = pairs.row_blocks(a);
  const Range inside = blocks_inside(pairs, rows);
  Words words;
  for (const Range& part : {Range{0, inside.begin}, Range{inside.end, rows.count()}})
    for (index_t i = part.begin; i < part.end; ++i) words += box_words_of_rows(pairs, rows(i), b);
  const index_t keys = x.mask.group * b, period = keys / std::gcd(a, keys);
  // Meanwhile what lies between an edge and the first, or the last, key has grown, or shrunk, by that.
  const Words more = Words(a) * (Words(a) * period / x.mask.group) *
                     (index_t{x.mask.lo == -Mask::kFar} - index_t{x.mask.hi == Mask::kFar});
  for (index_t k = 0; k < std::min(inside.size(), period); ++k) {
    const Words alike = ceil_div(inside.size() - k, period);
    words += alike * box_words_of_rows(pairs, rows(inside.begin + k), b) + alike * (alike - 1) / 2 * more;
  }
  return words;
}

/// What the modifiers of the scores of all tiles of a x b read: a bias for each pair passes with the boxes.
inline Io box_modifiers_io(const Sizes& x, index_t a, index_t b) {
  const Words pairs = x.modifiers.bias == Modifiers::Bias::of_pairs ? box_words(x, a, b) : Words(0);
  return modifiers_io(x, pairs, x.pairs().visited_keys(a), x.pairs().row_blocks(a).count());
}

/// What such a phase costs: S is where its entries go, A B^T has w terms in each, and `stats` statistics of every row
/// are resident. Where it revisits S, a word of S streams past each finished tile. Where its entries are scores, the
/// problem's modifiers act on them; where they are gradients of weights, the derivative of a softcap does, and what it
/// is found from is there: lse and slopes are resident, and the bias passes beside S.
struct ScoreCost {
  SlowArray S, A, B;
  index_t w;
  index_t stats;
  SlowArray statistic;
  bool revisits = false;
  bool scores = false;

  Phase phase(const Sizes& x, ScoreTiling t) const {
    if (t.panel && x.mask.pattern != nullptr) {
      const Words word = passing(x);
      return {pattern_panel(x, t) + word, word};
    }
    return over_largest_tiles(x, t.a, t.b, [&](index_t a, index_t b) { return of_tile(x, t.panel != 0, a, b); });
  }
  /// What streams past beside a tile: words of B, and what S is revisited for.
  Words passing(const Sizes& x) const { return std::max(x.word(B), again(x)); }
  Words again(const Sizes& x) const {
    if (scores) return passing_bias(x, 0);
    if (!revisits) return 0;
    return std::max(x.word(S) + (capped(x) ? passing_bias(x, 0) : Words(0)), passing_bias_gradient(x));
  }
  bool capped(const Sizes& x) const { return revisits && x.modifiers.softcap > 0; }
  /// What is resident beside a tile of these rows.
  Words beside(const Sizes& x, index_t rows) const {
    return stats * x.tile(statistic, rows, 1) + (capped(x) ? x.statistic(SlowArray::lse, rows) : Words(0)) +
           (scores || capped(x) ? slopes_tile(x) : Words(0));
  }
  /// Beside a tile of these rows and keys.
  Phase of_tile(const Sizes& x, bool panel, index_t a, index_t b) const {
    const Words rows = beside(x, a), word = passing(x);
    if (panel) return {x.tile(A, a, w) + rows + x.tile(S, a, b) + word, word};
    const Phase tile = GemmCost{S, A, B, x.n_q, w, x.n_k}.phase(x, {a, b});
    return {rows + std::max(tile.footprint, x.tile(S, a, b) + again(x)), tile.prefetch};
  }
  /// The largest of the panels that have as many rows, beside a tile where they see a key.
  Words pattern_panel(const Sizes& x, ScoreTiling t) const {
    return query_blocks_footprint(x, t.a, [&](index_t rows, index_t kappa) {
      return x.tile(A, rows, w) + beside(x, rows) + x.tile(S, rows, kappa > 0 ? std::min(t.b, x.n_k) : 0);
    });
  }
  Io io(const Sizes& x, ScoreTiling t) const {
    const Words rows = t.panel ? Words(x.n_q) : x.pairs().visited_rows(t.b);
    const Io products = Io().read(A, rows * w).read(B, x.pairs().visited_keys(t.a) * w);
    return scores && x.modifiers.any() ? products + box_modifiers_io(x, t.a, t.b) : products;
  }
  Words macs(const Sizes& x, ScoreTiling t) const { return box_words(x, t.a, t.b) * w; }
  /// The best tile, and the cheaper of that and the best panel.
  std::optional<ScoreTiling> choose_tile(const Sizes& x, const Limits& limits) const;
  std::optional<ScoreTiling> choose(const Sizes& x, const Limits& limits) const;
};

/// The a x b tile for which rows B(b) + keys A(a) is least, a b <= M. Without a mask best_tile of limits.hpp finds it;
/// under one the best b for each a, from the continuous optimum in both directions, until no b <= M / a could win;
/// under one with a left edge for each likely a.
template <class Fits>
std::optional<std::array<index_t, 2>> best_score_tile(const Sizes& x, const Limits& limits, Words rows, Words keys,
                                                      Words M, const Fits& fits) {
  const Multiples& step = limits.multiple;
  if (x.mask.full()) return best_tile(x.n_q, x.n_k, step.query, step.key, rows * x.n_q, keys * x.n_k, M, fits);
  const Pairs pairs = x.pairs();
  const double nnz = pairs.count().to_double(), room = M.to_double(), row_price = rows.to_double(),
               key_price = keys.to_double(), n_q = static_cast<double>(x.n_q), n_k = static_cast<double>(x.n_k);
  std::optional<std::array<index_t, 2>> best;
  Words cheapest;
  /// Is it with the fewest visits of rows that a b <= M leaves?
  const auto dearer = [&](index_t a, double key_visits) {
    const double row_visits = std::max(n_q, nnz * static_cast<double>(a) / room);
    return row_price * row_visits + key_price * key_visits > cheapest.to_double() * (1 + 1e-12);
  };
  const LeastVisits least(x, LeastVisits::Of::keys, pairs.count());
  /// The fewest visits of rows that this b and smaller ones have.
  const auto fewest_visits = [&](Words b) {
    const index_t size = std::clamp<Words>(b, 1, x.n_k).to_index();
    return x.mask.from_first_key() ? pairs.visited_rows(size) : least(size);
  };
  const auto try_rows = [&](index_t a) {
    const Words key_visits = pairs.visited_keys(a);
    if (best && rows * fewest_visits(M / a) + keys * key_visits >= cheapest) return;
    const index_t b = choose_key_block(x, step.key, [&](index_t size) { return fits(a, size); });
    if (b == 0) return;
    const Words cost = rows * pairs.visited_rows(b) + keys * key_visits;
    if (best && cost >= cheapest) return;
    best = {a, b};
    cheapest = cost;
  };
  const auto cannot_win = [&](index_t a) { return best && dearer(a, std::max(n_k, nnz / static_cast<double>(a))); };
  const double optimum = std::sqrt(room * key_price / row_price);
  const index_t steps = std::clamp<index_t>(static_cast<index_t>(optimum) / step.query, 1, ceil_div(x.n_q, step.query)),
                start = std::min(x.n_q, steps * step.query);
  const bool all = x.mask.from_first_key();
  const auto above = [&](index_t a) {
    return all ? std::min(x.n_q, a + step.query) : likely_above(x.n_q, a, step.query);
  };
  const auto below = [&](index_t a) {
    return all ? (a - 1) / step.query * step.query : likely_below(x.n_q, a, step.query);
  };
  try_rows(start);
  for (index_t a = start; a < x.n_q && !cannot_win(above(a));) try_rows(a = above(a));
  for (index_t a = below(start); a > 0 && !cannot_win(a); a = below(a)) try_rows(a);
  return best;
}

inline std::optional<ScoreTiling> ScoreCost::choose_tile(const Sizes& x, const Limits& limits) const {
  const Words a_price = limits.price.reading(A) * w, b_price = limits.price.reading(B) * w;
  const auto tile = best_score_tile(x, limits, a_price, b_price, limits.M / x.word(S),
                                    [&](index_t a, index_t b) { return limits.fit(phase(x, {false, a, b})); });
  if (!tile) return std::nullopt;
  return ScoreTiling{false, (*tile)[0], (*tile)[1]};
}

/// Where they tie, the tile.
inline std::optional<ScoreTiling> ScoreCost::choose(const Sizes& x, const Limits& limits) const {
  const Multiples& s = limits.multiple;
  const auto tile = x.mask.pattern != nullptr ? std::nullopt : choose_tile(x, limits);
  const index_t b = smallest_tile(x.n_k, s.key);  // of a panel: the words do not depend on it
  const index_t panel = choose_query_block(x, s.query, [&](index_t a) { return limits.fit(phase(x, {true, a, b})); });
  const Prices& price = limits.price;
  if (panel > 0 && (!tile || price.of(io(x, {true, panel, b})) < price.of(io(x, *tile))))
    return ScoreTiling{true, panel, b};
  return tile;
}

/// finish(T, box) for every tile T = A[I,:] B[J,:]^T of the rows I that holds pairs: T is the box of them.
template <class W, class Finish>
void score_phase(W& w, const Sizes& s, SlowArray S, Range I, const SlowMatrix& A, const SlowMatrix& B, ScoreTiling t,
                 const Finish& finish) {
  const Pairs pairs = s.pairs();
  const auto for_boxes = [&](const auto& f) {
    if (s.mask.pattern != nullptr)
      return for_pattern_boxes(pairs, I, t.b, [&](const Box& box) { f(Range{0, std::min(t.b, s.n_k)}, box); });
    const Blocks blocks = pairs.key_blocks(t.b);
    const Range met = blocks_of(pairs.keys_of(I), t.b);
    for (index_t j = met.begin; j < met.end; ++j) f(blocks(j), box_of(pairs, I, blocks(j)));
  };
  const auto for_tiles = [&](const auto& form) {
    for_boxes([&](Range J, const Box& box) {
      const auto room = w.alloc(S, {I.size(), J.size()});
      const Arg T = room.part({box.rows.size(), box.keys.size()});
      w.compute(kernel::Zero{}, T);
      form(T, room.shape(), box);
      finish(T, box);
    });
  };
  if (t.panel) {
    const auto A_i = w.load(A.rows(I));
    for_tiles([&](const Arg& T, Shape, const Box& box) {
      w.compute(kernel::Gemm{false, true}, T, A_i.rows(box.rows.begin - I.begin, box.rows.size()),
                w.stream(B.rows(box.keys)));
    });
  } else {
    for_tiles([&](const Arg& T, Shape room, const Box& box) {
      const kernel::Gemm rank_one{false, true};
      for_rank_one(w, s.fast, room, {A}, box.rows, transposed(B), box.keys, {},
                   [&](Range, index_t, const auto& a, const auto& b) { w.compute(rank_one, T, a, b); });
    });
  }
}

/// The scores of hidden pairs of the box become -inf.
template <class W>
void hide(W& w, const Sizes& s, const Arg& T, const Box& box) {
  const Place place = s.place(box.rows.begin, box.keys.begin);
  if (!place.sees_all(T.shape())) w.compute(kernel::Hide{place}, T);
}
/// Hides scores where the loops go over more pairs than there are, so that hidden scores have words of their own.
template <class W>
void hide_formed(W& w, const Sizes& s, const Arg& T, const Box& box) {
  if (s.hiding != nullptr) hide(w, s, T, box);
}
/// The modifiers of scores act on those of the box.
template <class W, class Operands, class Slopes>
void modify(W& w, const Operands& x, const Arg& T, const Box& box, const Slopes& slopes) {
  modify(w, modify_scores(x.shape, x.shape.place(box.rows.begin, box.keys.begin)), T, bias_of(x, box.rows, box.keys),
         slopes);
}
/// Loads the words of pairs that see each other; the others become 0.
template <class W>
void load_visible(W& w, const Sizes& s, const Arg& T, const SlowMatrix& S, const Box& box) {
  if (!Place{s.mask, box.rows.begin, box.keys.begin}.sees_all(T.shape())) w.compute(kernel::Zero{}, T);
  for_visible(s.pairs(), box.rows, box.keys,
              [&](Range rows, Range keys) { w.load_into(part_of(T, box, rows, keys), S.block(rows, keys)); });
}
/// Stores the words of pairs that see each other.
template <class W>
void store_visible(W& w, const Sizes& s, const Arg& T, const SlowMatrix& S, const Box& box) {
  for_visible(s.pairs(), box.rows, box.keys,
              [&](Range rows, Range keys) { w.store(part_of(T, box, rows, keys), S.block(rows, keys)); });
}

}  // namespace redblue::schedule
