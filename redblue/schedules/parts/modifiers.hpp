#pragma once
#include "redblue/kernels/backward.hpp"
#include "redblue/language/cost.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/problem/sequences.hpp"
#include "redblue/problem/sizes.hpp"
#include "redblue/schedules/parts/limits.hpp"

/// What a problem does to its scores beside scaling and masking them (masks/modifiers.hpp), as every schedule does it.
/// The bias passes with the scores it belongs to: a word for each pair in the boxes that are multiplied, or for each
/// key that a block visits where all queries share a row. The slopes of ALiBi, a word for each query head of the group,
/// are resident. What a problem does not have takes no words.
///
/// Functions that few problems need are not inlined: every schedule calls them, and compilers take long enough.
namespace redblue::schedule {

/// The gradient of a bias: that of a backward pass, or of double backward, where the bias moves.
constexpr SlowArray gradient_array_of_bias(const Modifiers& m) {
  return m.bias_moves ? SlowArray::LBias : SlowArray::dBias;
}

/// The gradient of sinks, likewise.
constexpr SlowArray gradient_array_of_sinks(const Modifiers& m) {
  return m.sinks_move ? SlowArray::LSinks : SlowArray::dSinks;
}

/// The arrays of modifiers.
struct ModifierOperands {
  bool bias_of_keys = false;         ///< one row of the bias serves all queries
  bool keeps_bias_gradient = false;  ///< dBias is such a row, too: schedules with keys resident keep it with them
  SlowMatrix bias, slopes, sinks;
  Arg kept_slopes = kNoWords;  ///< where they are resident already: `slopes` has no words then
  ModifierOperands(const Sizes& s, index_t instance)
      : bias_of_keys(s.modifiers.bias == Modifiers::Bias::of_keys),
        keeps_bias_gradient(bias_of_keys && s.modifiers.bias_gradient && !s.modifiers.bias_over_keys),
        bias(like_bias(s, SlowArray::bias, s.modifiers.bias != Modifiers::Bias::none, instance)),
        slopes(of_heads(s, SlowArray::slopes, s.modifiers.loads_slopes(), instance)),
        sinks(of_heads(s, SlowArray::sinks, s.modifiers.sinks, instance)) {}

  /// A word for each query head of the group.
  static SlowMatrix of_heads(const Sizes& s, SlowArray a, bool given, index_t instance) {
    return {a, {given ? s.mask.group : 0, 1}, instance};
  }
  /// A matrix of the shape of the bias.
  static SlowMatrix like_bias(const Sizes& s, SlowArray a, bool given, index_t instance) {
    if (!given) return {a, {0, 1}, instance};
    const bool of_pairs = s.modifiers.bias == Modifiers::Bias::of_pairs;
    return {a, {of_pairs ? s.n_q : 1, s.n_k}, instance, of_pairs ? s.row0 : 0, s.key0};
  }
  /// dBias, or LBias: a column where all keys share the bias of a query.
  static SlowMatrix gradient_of_bias(const Sizes& s, index_t instance) {
    const bool given = s.modifiers.forms_bias_gradient();
    const SlowArray a = gradient_array_of_bias(s.modifiers);
    if (given && s.modifiers.bias_over_keys) return {a, {s.n_q, 1}, instance, s.row0};
    return like_bias(s, a, given, instance);
  }
  /// The direction in which the bias moves, where it does.
  static SlowMatrix direction_of_bias(const Sizes& s, SlowArray a, index_t instance) {
    return like_bias(s, a, s.modifiers.bias_moves, instance);
  }
  /// The block of the bias, or of its gradient where that is no column, that belongs to these scores.
  static Block of_scores(const SlowMatrix& bias, Range rows, Range keys) {
    if (bias.shape.rows == 0) return bias.all();
    return bias.block(bias.shape.rows == 1 ? Range{0, 1} : rows, keys);
  }
  /// It passes with the scores.
  Arg bias_of(Range rows, Range keys) const { return Arg::streaming(of_scores(bias, rows, keys)); }
  /// The row of the bias that all queries share, for a schedule that keeps it with its keys; no words where each has
  /// its own. shared_gradient is that row of dBias.
  Block shared_bias(Range keys) const { return shared_row(bias, keys); }
  Block shared_row(const SlowMatrix& like, Range keys) const {
    return bias_of_keys ? of_scores(like, {}, keys) : Block{like.array};
  }
  Block shared_gradient(const SlowMatrix& dBias, Range keys) const {
    return keeps_bias_gradient ? of_scores(dBias, {}, keys) : Block{dBias.array};
  }
};

/// The modifiers of any operands: those of the papers' parametrisation have none.
template <class Operands>
Arg bias_of(const Operands& x, Range rows, Range keys) {
  if constexpr (std::derived_from<Operands, ModifierOperands>)
    return x.bias_of(rows, keys);
  else
    return kNoWords;
}
template <class Operands>
Block slopes_of(const Operands& x) {
  if constexpr (std::derived_from<Operands, ModifierOperands>)
    return x.slopes.all();
  else
    return {SlowArray::slopes, 0, 0, 0, {0, 1}};
}

/// The slopes beside a block, if it uses them: loaded for it, unless they are resident already.
template <class W>
class Slopes {
 public:
  template <class Operands>
  Slopes(W& w, const Operands& x, bool used = true)
      : own_(w.load(used ? slopes_of(x) : Block{SlowArray::slopes})), arg_(own_.arg()) {
    if constexpr (std::derived_from<Operands, ModifierOperands>)
      if (used && x.shape.modifiers.slopes_kept) arg_ = x.kept_slopes;
  }
  const Arg& arg() const { return arg_; }

 private:
  Tile<W> own_;
  Arg arg_;
};

inline index_t bias_rows(const Sizes& x) { return x.modifiers.bias == Modifiers::Bias::of_pairs ? x.n_q : 1; }

/// The kernels for the scores at this place.
inline kernel::ModifyScores modify_scores(const Sizes& x, const Place& place) {
  return {x.modifiers.softcap, x.modifiers.slope_offset + x.row0 / x.mask.group - x.key0, place};
}
inline kernel::Drop drop(const Sizes& x, index_t instance, const Place& place) {
  const index_t group = x.mask.group;
  const Modifiers& m = x.modifiers;
  return {.share = m.dropout,
          .seed = static_cast<index_t>(m.seed),
          .head = m.dropped_head(instance, group),
          .group = group,
          .first_row = m.drop_row + x.row0 / group,
          .row = place.row,
          .col = m.drop_col + x.key0 + place.col};
}
/// Entries of dropped weights become 0. Operands of the papers' parametrisation have no dropout.
template <class W, class Operands>
void drop_weights(W& w, const Operands& x, const Place& place, const Arg& T) {
  if constexpr (std::derived_from<Operands, ModifierOperands>)
    if (x.shape.modifiers.dropout > 0) w.compute(drop(x.shape, x.instance(), place), T);
}
inline kernel::WeightsOfTile weights_of_tile(const Sizes& x, index_t instance, const Place& place) {
  return {modify_scores(x, place), drop(x, instance, place), x.score};
}

/// The modifiers of scores act on a tile of them.
template <class W, class S, class Slopes>
[[gnu::noinline]] void modify(W& w, const kernel::ModifyScores& modify, const S& T, const Arg& bias,
                              const Slopes& slopes) {
  if (!modify.idle({0, 0}, bias.shape(), slopes.shape())) w.compute(modify, T, kNoWords, bias, slopes);
}

/// What the modifiers of scores read where blocks visit these keys, these pairs lie in the boxes that are multiplied,
/// and the slopes are loaded `times` times.
inline Io modifiers_io(const Sizes& x, Words pairs, Words visits, Words times) {
  Io io;
  if (x.modifiers.bias == Modifiers::Bias::of_pairs) io.read(SlowArray::bias, pairs);
  if (x.modifiers.bias == Modifiers::Bias::of_keys) io.read(SlowArray::bias, visits);
  if (x.modifiers.loads_slopes()) io.read(SlowArray::slopes, times * x.mask.group);
  return io;
}
/// The slopes in fast memory.
inline Words slopes_tile(const Sizes& x) {
  return x.modifiers.loads_slopes() ? x.tile(SlowArray::slopes, x.mask.group, 1) : Words(0);
}
/// A word of the bias that passes, and of what passes with it.
inline Words passing_bias(const Sizes& x, Words also) {
  return x.modifiers.bias == Modifiers::Bias::none ? also : std::max(also, x.word(SlowArray::bias));
}

/// The word of the bias that passes in a schedule that keeps a row of the bias which all queries share, and that row.
inline Words passing_bias_of_pairs(const Sizes& x) {
  return x.modifiers.bias == Modifiers::Bias::of_pairs ? x.word(SlowArray::bias) : Words(0);
}
inline Words shared_row_of_bias(const Sizes& x, Words keys) {
  return x.modifiers.bias == Modifiers::Bias::of_keys ? x.tile(SlowArray::bias, 1, keys) : Words(0);
}

/// dBias += dS / scale, without the derivative of a softcap, or LBias += G: in the tile of the keys J where all queries
/// share a row, else in slow memory; summed over the keys where these share it.
template <class W, class Operands>
[[gnu::noinline]] void add_bias_gradient(W& w, const Operands& x, const SlowMatrix& gradient, Range I, Range J,
                                         const Arg& gradient_j, const Arg& scaled) {
  const kernel::AddBiasGradient add{false, 1 / x.scale};
  if (x.keeps_bias_gradient)
    w.compute(add, gradient_j, scaled);
  else
    w.update(add, x.shape.modifiers.bias_over_keys ? gradient.rows(I) : x.of_scores(gradient, I, J), scaled);
}

/// dBias is added to for each pair of the boxes; where all queries share a row, for each key that a block visits; where
/// all keys share a column, which schedules for the softmax alone never see, for each query that a block visits.
inline Io bias_gradient_io(const Sizes& x, Words pairs, Words keys, Words queries = 0) {
  const Modifiers& m = x.modifiers;
  if (!m.bias_gradient) return {};
  const Words words = m.bias_over_keys ? queries : m.bias == Modifiers::Bias::of_pairs ? pairs : keys;
  const SlowArray gradient = gradient_array_of_bias(m);
  return Io().read(gradient, words).write(gradient, words);
}
/// A word of dBias, which is added to as a tile of dS is finished.
inline Words passing_bias_gradient(const Sizes& x) {
  const bool passes = x.modifiers.bias == Modifiers::Bias::of_pairs || x.modifiers.bias_over_keys;
  return x.modifiers.bias_gradient && passes ? x.word(gradient_array_of_bias(x.modifiers)) : Words(0);
}

/// The row of dBias of some keys, where all queries share it.
inline Words bias_gradient_tile(const Sizes& x, Words keys) {
  return ModifierOperands(x, 0).keeps_bias_gradient ? x.tile(gradient_array_of_bias(x.modifiers), 1, keys) : Words(0);
}

/// The tiles of weights that a backward pass keeps where it forms dBias: P and dS; G, the weights of scores where they
/// are not those of values; F, the derivative of the softcap where dBias must do without it. F takes over from G what G
/// holds for a softcap alone.
struct TilesOfWeights {
  bool G, F;
  explicit TilesOfWeights(const Modifiers& m)
      : G(m.derivative_apart() ? m.dropout > 0 : m.two_weights()), F(m.derivative_apart()) {}
  index_t count() const { return 2 + (G ? 1 : 0) + (F ? 1 : 0); }
};

/// Rows that begin with their sinks, where there are sinks: reads group words.
template <class W, class Statistics>
[[gnu::noinline]] void begin_with_sinks(W& w, const ModifierOperands& x, index_t first_row, const Statistics& m,
                                        const Statistics& l) {
  if (x.sinks.shape.words() > 0) w.compute(kernel::BeginWithSinks{first_row}, m, l, w.stream(x.sinks.all()));
}
inline Io sinks_io(const Sizes& x, Words times) {
  return Io().read(SlowArray::sinks, x.modifiers.sinks ? times * x.mask.group : Words(0));
}
inline Words passing_sink(const Sizes& x, Words also) {
  return x.modifiers.sinks ? std::max(also, x.word(SlowArray::sinks)) : also;
}

/// Sinks that move pass with their direction.
inline Io moving_sinks_io(const Sizes& x, SlowArray direction, Words times) {
  if (!x.modifiers.sinks_move) return {};
  return sinks_io(x, times).read(direction, times * x.mask.group);
}
/// Is it an array of how lse moves, by sinks that move? Rows that see no key have their direction there.
inline bool moves_with_sinks(const Sizes& x, SlowArray a) {
  return x.modifiers.sinks_move && (a == SlowArray::tlse || a == SlowArray::Ldlse);
}
constexpr SlowArray direction_of_sinks(SlowArray of_lse) {
  return of_lse == SlowArray::tlse ? SlowArray::tSinks : SlowArray::gSinks;
}
/// They stay, with lse of a row, while the rows that see no key pass.
inline Words held_moving_sinks(const Sizes& x, SlowArray direction) {
  return x.tile(SlowArray::sinks, x.mask.group, 1) + x.tile(direction, x.mask.group, 1) + x.tile(SlowArray::lse, 1, 1);
}

/// Two statistics of rows, beside other words, while their sinks pass.
inline Phase sinks_phase(const Sizes& x, Words also, index_t rows) {
  if (!x.modifiers.sinks) return {0, 0};
  return {also + 2 * x.statistic(SlowArray::lse, std::min(rows, x.n_q)) + x.word(SlowArray::sinks), 0};
}

/// A word of either.
inline Words passing_modifiers(const Sizes& x) { return passing_sink(x, passing_bias(x, 0)); }

/// Is this instance the first of those that add to one dBias, and to one dSinks?
inline bool first_of_bias(const Modifiers& m, index_t instance) {
  return (!m.bias_over_batches || instance / m.kv_heads == 0) && (!m.bias_over_heads || instance % m.kv_heads == 0);
}
inline bool first_of_sinks(const Modifiers& m, index_t instance) { return instance / m.kv_heads == 0; }

/// Instances that add to one dBias or dSinks run one after another, in order; others are independent.
struct Sharing {
  index_t items, each;  ///< an item is that number of instances
  index_t item_stride = 1, step = 1;
  Sharing(const Modifiers& m, index_t instances) : items(instances), each(1) {
    const bool over_heads = m.forms_bias_gradient() && m.bias_over_heads;
    const bool over_batches = m.sinks_gradient || (m.forms_bias_gradient() && m.bias_over_batches);
    if (over_heads && over_batches) {
      items = 1;
      each = instances;
    } else if (over_heads) {
      each = std::min(m.kv_heads, instances);
      items = instances / each;
      item_stride = each;
    } else if (over_batches) {
      items = std::min(m.kv_heads, instances);
      each = instances / items;
      step = items;
    }
  }
  index_t instance(index_t item, index_t k) const { return item * item_stride + k * step; }
};

/// round(w, i) for blocks of keys that add to dBias: they follow each other where keys share its words.
template <class M, class Round>
void for_blocks_of_keys(M& m, const Sizes& x, index_t blocks, const Round& round) {
  if (x.modifiers.bias_gradient && x.modifiers.bias_over_keys)
    for (index_t j = 0; j < blocks; ++j) round(m, j);
  else
    m.each(blocks, round);
}

/// round(w, i) for blocks of queries: they follow each other where several add to one row of dBias.
template <class M, class Round>
void for_blocks_of_queries(M& m, const Sizes& x, index_t blocks, const Round& round) {
  const Modifiers& of = x.modifiers;
  const bool one_row = of.bias == Modifiers::Bias::of_keys || of.bias_over_positions || of.bias_over_group;
  if (of.bias_gradient && one_row)
    for (index_t i = 0; i < blocks; ++i) round(m, i);
  else
    m.each(blocks, round);
}

/// f(rows of dBias): together they hold each word that lies apart once.
template <class F>
void for_words_of_bias_gradient(const Sizes& x, const SlowMatrix& dBias, const F& f) {
  const index_t group = x.mask.group, positions = x.modifiers.bias_over_positions ? 1 : x.n_q / group;
  if (dBias.shape.rows <= 1 || !x.modifiers.bias_over_group)
    return f(Range{0, std::min(dBias.shape.rows, positions * group)});
  for (index_t p = 0; p < positions; ++p) f(Range{p * group, p * group + 1});
}
inline Words words_of_bias_gradient(const Sizes& x) {
  return x.modifiers.forms_bias_gradient() ? Words(bias_rows(x)) * x.n_k / x.modifiers.bias_copies : Words(0);
}
/// Is anything added to dBias beside dS? Without sinks nothing is left of D for a bias that all keys share.
inline bool adds_sinks_to_bias(const Modifiers& m) { return m.bias_gradient_of_rows && m.sinks; }
/// The gradient of lse is left for such a bias, whatever the sinks are.
inline bool adds_lse_to_bias(const Sizes& x) { return x.modifiers.bias_gradient_of_rows && x.lse_gradient; }

/// D <- D - dlse, where lse has a gradient: every schedule that forms D takes it off there.
template <class W, class Operands, class Sums>
void subtract_lse_gradient(W& w, const Operands& x, const Sums& D, Range rows) {
  if constexpr (requires { x.dlse; })
    if (x.dlse.shape.words() > 0) w.compute(kernel::Subtract{}, D, w.stream(x.dlse.rows(rows)));
}
inline Io lse_gradient_io(const Sizes& x, Words rows) {
  return Io().read(SlowArray::dlse, x.lse_gradient ? rows : Words(0));
}
inline Words passing_lse_gradient(const Sizes& x) { return x.lse_gradient ? x.word(SlowArray::dlse) : Words(0); }

/// dBias and LBias begin as 0; tiles of dS, and of G, are added to them (docs/semantics.md). (Formulas are of the first
/// instance.)
template <class M, class Operands>
[[gnu::noinline]] void begin_gradients_of_modifiers(M& m, const Operands& x, index_t instance) {
  const auto begin = [&](const SlowMatrix& gradient) {
    if (gradient.shape.words() > 0 && first_of_bias(x.shape.modifiers, instance))
      for_words_of_bias_gradient(x.shape, gradient,
                                 [&](Range rows) { m.update(kernel::ZeroOver{}, gradient.rows(rows)); });
  };
  if constexpr (requires { x.dBias; }) begin(x.dBias);
  if constexpr (requires { x.LBias; }) begin(x.LBias);
}
/// dSinks = -SUM_i exp(sink - lse_i) D_i, row by row: reads n_q (2 d_v + 1) and the sinks, writes group words. A dBias
/// that all keys share has the terms themselves: the same reads, one of dBias and one write for each row. Where lse has
/// a gradient, D is less by it, and it is added to such a dBias, too.
template <class M, class Operands>
[[gnu::noinline]] void end_gradients_of_modifiers(M& m, const Operands& x, index_t instance) {
  if constexpr (requires { x.dSinks; }) {
    const bool of_sinks = x.dSinks.shape.words() > 0, of_bias = adds_sinks_to_bias(x.shape.modifiers);
    for (index_t i = 0; adds_lse_to_bias(x.shape) && i < x.shape.n_q; ++i) {
      const Range row{i, i + 1};
      m.update(kernel::AddLseBiasGradient{}, x.dBias.rows(row), m.stream(x.lse.rows(row)), m.stream(x.dlse.rows(row)));
    }
    if (!of_sinks && !of_bias) return;
    const auto sinks = m.load(x.sinks.all()), dSinks = m.alloc(x.dSinks.all());
    if (of_sinks && first_of_sinks(x.shape.modifiers, instance))
      m.compute(kernel::Zero{}, dSinks);
    else if (of_sinks)
      m.load_into(dSinks, x.dSinks.all());
    for (index_t i = 0; i < x.shape.n_q; ++i) {
      const Range row{i, i + 1};
      const auto D_i = m.alloc(SlowArray::D, {1, 1});
      m.compute(kernel::RowDots{}, D_i, m.stream(x.dO.rows(row)), m.stream(x.O.rows(row)));
      subtract_lse_gradient(m, x, D_i, row);
      if (of_sinks) m.compute(kernel::AddSinkGradients{i}, dSinks, sinks, m.stream(x.lse.rows(row)), D_i);
      if (of_bias)
        m.update(kernel::AddSinkBiasGradient{false, i}, x.dBias.rows(row), sinks, m.stream(x.lse.rows(row)), D_i);
    }
    if (of_sinks) m.store(dSinks, x.dSinks.all());
  }
}
/// LSinks = -SUM_i exp(sink - lse_i) (D_i (g - w_i) + x_i), row by row. for_rows(f) calls f(rows) of which the sweeps
/// have left D, w and x. Rows that no sweep holds see no key: their terms are 0.
template <class M, class Operands, class ForRows>
[[gnu::noinline]] void end_gradient_of_moving_sinks(M& m, const Operands& x, index_t instance,
                                                    const ForRows& for_rows) {
  if constexpr (requires { x.LSinks; }) {
    if (x.LSinks.shape.words() == 0) return;
    const auto sinks = m.load(x.sinks.all()), gSinks = m.load(x.gSinks.all()), LSinks = m.alloc(x.LSinks.all());
    if (first_of_sinks(x.shape.modifiers, instance))
      m.compute(kernel::Zero{}, LSinks);
    else
      m.load_into(LSinks, x.LSinks.all());
    for_rows([&](Range rows) {
      for (index_t i = rows.begin; i < rows.end; ++i) {
        const Range row{i, i + 1};
        const auto D = m.load(x.D.rows(row)), w = m.load(x.Hm.rows(row)), x_i = m.load(x.Xm.rows(row));
        m.compute(kernel::AddMovingSinkGradients{i}, LSinks, sinks, gSinks, m.stream(x.lse.rows(row)), D, w, x_i);
      }
    });
    m.store(LSinks, x.LSinks.all());
  }
}
/// What that reads of a number of rows.
inline Io rows_of_moving_sinks_io(const Sizes& x, Words rows) {
  const bool forms = x.modifiers.sinks_move && x.modifiers.sinks_gradient;
  Io io;
  for (const SlowArray a : {SlowArray::lse, SlowArray::D, SlowArray::Hm, SlowArray::Xm}) io.read(a, forms ? rows : 0);
  return io;
}
/// What instances move of which the first (where batches differ, the first key-value head of all) moves `one`: only the
/// first of those that share a dBias writes it as 0, and only the first of those that share a dSinks does not read it.
inline Io of_instances(const Sizes& x, const Io& one, index_t instances) {
  Io io = Words(instances / batches_of(x)) * one;
  const Modifiers& m = x.modifiers;
  const index_t heads = std::min(m.kv_heads, instances), batches = instances / heads;
  if (m.forms_bias_gradient()) {
    const index_t first = (m.bias_over_batches ? 1 : batches) * (m.bias_over_heads ? 1 : heads);
    io.writes[index_of(gradient_array_of_bias(m))] -= Words(instances - first) * words_of_bias_gradient(x);
  }
  if (m.sinks_gradient) io.read(gradient_array_of_sinks(m), Words(instances - heads) * x.mask.group);
  return io;
}
/// What gradients of modifiers move in one instance, the first.
inline Io gradients_of_modifiers_io(const Sizes& x) {
  const Modifiers& m = x.modifiers;
  Io io;
  io.write(gradient_array_of_bias(m), words_of_bias_gradient(x));
  const bool of_bias = adds_sinks_to_bias(m), of_sinks = m.sinks_gradient && !m.sinks_move;
  if (m.sinks_gradient && m.sinks_move)
    io = (io + moving_sinks_io(x, SlowArray::gSinks, 1)).write(SlowArray::LSinks, x.mask.group);
  if (of_sinks || of_bias)
    io = io +
         Io().read(SlowArray::dO, Words(x.n_q) * x.d_v)
             .read(SlowArray::O, Words(x.n_q) * x.d_v)
             .read(SlowArray::sinks, x.mask.group) +
         lse_gradient_io(x, x.n_q);
  if (adds_lse_to_bias(x))
    io = io + lse_gradient_io(x, x.n_q)
                  .read(SlowArray::lse, x.n_q)
                  .read(SlowArray::dBias, x.n_q)
                  .write(SlowArray::dBias, x.n_q);
  if (of_sinks) io.read(SlowArray::lse, x.n_q).write(SlowArray::dSinks, x.mask.group);
  if (of_bias) io.read(SlowArray::lse, x.n_q).read(SlowArray::dBias, x.n_q).write(SlowArray::dBias, x.n_q);
  return io;
}
/// `swept`: does a sweep hold a query?
inline Words gradients_of_modifiers_footprint(const Sizes& x, bool swept) {
  const Modifiers& m = x.modifiers;
  Words most;
  if (m.forms_bias_gradient()) most = x.word(gradient_array_of_bias(m));
  if (adds_lse_to_bias(x)) most = x.word(SlowArray::dBias) + x.word(SlowArray::lse) + x.word(SlowArray::dlse);
  const bool of_bias = adds_sinks_to_bias(m), of_sinks = m.sinks_gradient && !m.sinks_move;
  if (m.sinks_gradient && m.sinks_move) {
    Words words;
    for (const SlowArray a : {SlowArray::sinks, SlowArray::gSinks, SlowArray::LSinks})
      words += x.tile(a, x.mask.group, 1);
    if (swept)
      words += x.word(SlowArray::lse) + x.tile(SlowArray::D, 1, 1) + x.tile(SlowArray::Hm, 1, 1) +
               x.tile(SlowArray::Xm, 1, 1);
    most = std::max(most, words);
  }
  if (of_sinks || of_bias)
    most = std::max(most, x.tile(SlowArray::sinks, x.mask.group, 1) +
                              (of_sinks ? x.tile(SlowArray::dSinks, x.mask.group, 1) : Words(0)) +
                              x.tile(SlowArray::D, 1, 1) +
                              std::max({x.word(SlowArray::dO) + x.word(SlowArray::O), passing_lse_gradient(x),
                                        x.word(SlowArray::lse) + (of_bias ? x.word(SlowArray::dBias) : Words(0))}));
  return most;
}

}  // namespace redblue::schedule
