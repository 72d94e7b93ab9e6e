#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "redblue/kernels/backward.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/language/slow_matrix.hpp"
#include "redblue/problem/cores.hpp"
#include "redblue/schedules/parts/core_sums.hpp"
#include "redblue/schedules/parts/limits.hpp"
#include "redblue/schedules/parts/modifiers.hpp"
#include "redblue/schedules/parts/tile_sizes.hpp"

/// A schedule under any mask: its text runs on the cores of the problem and reads nothing else; it writes the outputs
/// of queries and keys outside the cores directly.
namespace redblue::schedule {

/// Do the operands have an output with a word for each pair?
template <class Operands>
concept WritesPairs = requires { typename Operands::Hidden; };

/// CoreRules::outputs. Gradients of modifiers have functions of their own (parts/modifiers.hpp), and so have pairs.
template <class Operands>
std::vector<SlowMatrix> outputs_by_rows(const Sizes& x, index_t instance) {
  std::vector<SlowMatrix> list;
  list.reserve(Operands::outputs.size());
  for (const SlowMatrix& m : Operands(x, 1, instance).all()) {
    if (std::find(Operands::outputs.begin(), Operands::outputs.end(), m.array) == Operands::outputs.end()) continue;
    if (m.shape.words() > 0 && !is_of_modifiers(m.array) && !is_of_pairs(m.array)) list.push_back(m);
  }
  return list;
}
template <class Operands>
constexpr std::optional<SlowArray> output_of_pairs() {
  if constexpr (WritesPairs<Operands>) return Operands::outputs[0];
  return std::nullopt;
}

/// A schedule S under any mask, from its text for cores.
template <class S>
struct Masked : S {
  using Operands = typename S::Operands;
  using One = typename S::Tiling;
  using Tiling = Tilings<One>;

  /// Gradients with respect to shared factors are sums over all cores: one core then spans them.
  static constexpr CoreRules rules{S::one_core ? Cut::one : Cut::each, outputs_by_rows<Operands>, S::writes,
                                   output_of_pairs<Operands>()};

  /// The tiling of a core; all of them for a text that passes them on to parts of its own.
  static std::conditional_t<S::takes_tilings, const Tiling&, One> of(const Tiling& t, const Sizes& core) {
    if constexpr (S::takes_tilings)
      return t;
    else
      return t.of(core);
  }

  /// Does it form hidden pairs of a pattern? A schedule that can do either says so of each tiling.
  static bool hides(const Tiling& t) {
    if constexpr (S::traits.hides && S::traits.patterns)
      return S::hides(t.all);
    else
      return S::traits.hides;
  }
  /// The problem as its loops take it.
  static Sizes taken(const Sizes& x, bool hides) {
    if (S::traits.lists_pairs && !has_pattern(x)) return with_patterns(x);
    if (!has_pattern(x) || !(hides || S::traits.intervals)) return x;
    Sizes envelopes = with_envelopes(x);
    return hides || !hides_pairs(envelopes) ? envelopes : x;
  }
  static Sizes taken(const Sizes& x, const Tiling& t) { return taken(x, hides(t)); }

  /// The cores of one batch, or of all.
  static CoreList cores(const Sizes& x, std::optional<index_t> batch = {}) { return cores_of(x, batch, rules.cut); }
  static Sizes largest_of(const Sizes& x) { return schedule::largest_of(x, cores(x)); }

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (S::one_core && !S::knows_parts && x.sequences != nullptr) return "knows no packed or padded sequences";
    for (const Core& c : cores(taken(x, S::traits.hides && !S::traits.patterns)))
      if (const auto why = S::unsupported(c.sizes)) return why;
    return std::nullopt;
  }
  static std::string_view caveat(const Sizes& x, const Tiling& t) { return S::caveat(largest_of(taken(x, t)), t.all); }
  static bool allows(const Sizes& x, const Tiling& t) {
    return all_of(cores(taken(x, t)), [&](const Sizes& core) { return S::allows(core, of(t, core)); });
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return S::smallest(largest_of(taken(x, S::traits.hides)), m);
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    if (!S::traits.lists_pairs && is_plain(x) && !x.modifiers.any()) return S::choose_tiling(x, limits);
    if (!S::traits.hides || !has_pattern(x)) return choose_tiling_for(x, taken(x, false), limits);
    std::optional<Tiling> hiding = choose_tiling_for(x, with_envelopes(x), limits);
    if (!S::traits.patterns) return hiding;
    return cheaper(x, limits, choose_tiling_for(x, x, limits), hiding);
  }
  static std::optional<Tiling> cheaper(const Sizes& x, const Limits& limits, const std::optional<Tiling>& a,
                                       const std::optional<Tiling>& b) {
    if (!a || !b) return a ? a : b;
    return limits.price.of(io(x, *a)) <= limits.price.of(io(x, *b)) ? a : b;
  }
  /// The cheapest tiling of a problem x whose loops take it as `parts`.
  static std::optional<Tiling> choose_tiling_for(const Sizes& x, const Sizes& parts, const Limits& limits) {
    // Where no query sees a key nothing runs, and any tiling will do.
    const CoreList list = cores(parts);
    if (list.empty()) return fitting(x, limits, smallest(x, limits.multiple));
    Limits left = limits;
    left.M -= kept_slopes(core_with_most(parts, list, [](const Sizes& core) { return kept_slopes(core); }));
    std::optional<Tiling> best;
    std::optional<Words> least;  // once there is a second one
    const auto cost = [&](const Tiling& t) { return limits.price.of(io(x, t)); };
    const auto consider = [&](std::optional<Tiling> found) {
      auto t = fitting(x, limits, std::move(found));
      if (!t) return;
      if (best) {
        if (!least) least = cost(*best);
        const Words other = cost(*t);
        if (other >= *least) return;
        least = other;
      }
      best = std::move(t);
    };
    for_candidates(
        parts, list, S::traits.lists_pairs,
        [&](const Sizes& largest) {
          if constexpr (S::takes_tilings)
            consider(S::choose_tilings(x, largest, list, left));
          else
            consider(of_each_shape(largest, list, left));
        },
        [&](const Sizes& sizes) { consider(best_of(sizes, left)); });
    if (best || is_plain(x)) return best;
    return fitting(x, limits, smallest(x, limits.multiple));
  }
  /// Most tilings are chosen for what moves without a bias. Where a mask hides pairs, larger blocks read more of a bias
  /// that nobody uses: the best of the tilings for this M and for less memory.
  static std::optional<One> best_of(const Sizes& core, const Limits& limits) {
    const Modifiers::Bias bias = core.modifiers.bias;
    // A schedule that lists pairs forms no hidden one: it reads the same words of a bias for pairs with any tiling.
    const bool same = bias == Modifiers::Bias::none || (S::traits.lists_pairs && bias == Modifiers::Bias::of_pairs);
    if (S::counts_bias || same || core.mask.full()) return S::choose_tiling(core, limits);
    const auto with = [&](Words M) -> std::optional<One> {
      Limits part = limits;
      part.M = M;
      return S::choose_tiling(core, part);
    };
    return with(best_amount(limits.M, [&](Words M) -> std::optional<Words> {
      const std::optional<One> t = with(M);
      if (!t) return std::nullopt;
      return limits.price.of(S::io(core, *t));
    }));
  }
  /// The best tiling of the largest core, and those of cores of other shapes where theirs costs less.
  static std::optional<Tiling> of_each_shape(const Sizes& largest, const CoreList& list, const Limits& limits) {
    const std::optional<One> all = best_of(largest, limits);
    if (!all) return std::nullopt;
    Tiling t(*all);
    for (const Sizes& one : other_shapes(list, largest)) {
      const std::optional<One> own = best_of(one, limits);
      if (!own || S::copies(*own) != S::copies(*all)) continue;  // copies of all cores lie in one array
      const bool does = is_legal(one, limits.multiple, *all) && S::allows(one, *all) && fits<S>(one, *all, limits);
      if (!does || limits.price.of(S::io(one, *own)) < limits.price.of(S::io(one, *all)))
        t.set_own(CoreShape(one), *own);
    }
    return t;
  }
  /// The tiling, with tiles that span the cores spanning the whole dimension, so that they keep to any multiples;
  /// nothing if it does not run in all cores within these limits.
  static std::optional<Tiling> fitting(const Sizes& x, const Limits& limits, std::optional<Tiling> t) {
    if (!t || !allows(x, *t) || !fits<Masked>(x, *t, limits)) return std::nullopt;
    span_dimensions(variables_of(*t), x, cores(taken(x, *t)));
    return t;
  }

  static Words footprint(const Sizes& x, const Tiling& t) {
    return footprint_of_cores(taken(x, t), rules,
                              [&](const Sizes& core) { return Words(S::footprint(core, of(t, core))); });
  }
  static Words prefetch(const Sizes& x, const Tiling& t) {
    return prefetch_of_cores(
        cores(taken(x, t)), [&](const Sizes& core) { return Words(S::footprint(core, of(t, core))); },
        [&](const Sizes& core) { return Words(S::prefetch(core, of(t, core))); });
  }
  static Io io(const Sizes& x, const Tiling& t) {
    return io_of_cores(taken(x, t), rules, [&](const Sizes& core) { return S::io(core, of(t, core)); });
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    return macs_of_cores(cores(taken(x, t)), [&](const Sizes& core) { return Words(S::macs(core, of(t, core))); });
  }
  /// The costs of a schedule that asks for decisions are those of its one core.
  static Costs decided(const Sizes& x, const Tiling& t, const Decisions& decisions)
    requires requires { &S::decided; }
  {
    static_assert(S::one_core || !S::traits.masks);
    const auto of_core = [&](const Sizes& core) { return S::decided(core, of(t, core), decisions); };
    return {io_of_cores(x, rules, [&](const Sizes& core) { return of_core(core).io; }),
            footprint_of_cores(x, rules, [&](const Sizes& core) { return of_core(core).footprint; }),
            macs_of_cores(cores(x), [&](const Sizes& core) { return of_core(core).macs; })};
  }
  static IndexWords index(const Sizes& x, const Tiling& t) {
    return index_of_cores(x, hides(t), [&](const Sizes& part) {
      if constexpr (requires { S::index_of_intervals(part, t.all); })
        if (!has_pattern(taken(x, t))) return S::index_of_intervals(part, t.all);
      return S::index(part, t.all);
    });
  }

  /// What the loops go over: the same for all instances of a batch.
  struct Loops {
    Sizes shape;                     ///< the problem as they take it
    bool plain;                      ///< is it its own one core?
    std::vector<Numbered> of_batch;  ///< the cores of each batch

    Loops(const Sizes& x, const Tiling& t) : shape(taken(x, t)), plain(is_plain(shape)) {
      for (CoreList& one : cores_of_batches(shape, rules.cut)) of_batch.emplace_back(std::move(one));
    }
    const Numbered& cores(index_t instance) const {
      return of_batch[static_cast<std::size_t>(batch_of(shape, instance))];
    }
  };

  template <Machine M>
  static void run(M& m, const Loops& loops, double scale, index_t instance, const Tiling& t) {
    const Operands x(loops.shape, scale, instance);
    begin_gradients_of_modifiers(m, x, instance);
    if (loops.plain) {
      run_core(m, x, t);
    } else {
      run_cores(m, x, loops.cores(instance), t);
      write_hidden(m, x, loops.cores(instance));
    }
    end_gradients_of_modifiers(m, x, instance);
    end_gradient_of_moving_sinks(m, x, instance, [&](const auto& f) { for_rows_of_cores(loops, instance, f); });
  }
  /// One instance alone.
  template <Machine M>
  static void run(M& m, const Operands& x, const Tiling& t) {
    run(m, Loops(x.shape, t), x.scale, x.instance(), t);
  }

 private:
  /// f(queries that cores hold), of which these are neighbours.
  template <class F>
  static void for_rows_of_cores(const Loops& loops, index_t instance, const F& f) {
    if (loops.plain) return f(Range{0, loops.shape.n_q});
    for (const Core& c : loops.cores(instance).cores())
      f(Range{0, c.count * c.sizes.n_q}.shifted(c.sizes.row0 - loops.shape.row0));
  }
  template <Machine M>
  [[gnu::noinline]] static void run_core(M& m, const Operands& core, const Tiling& t) {
    S::run(m, core, of(t, core.shape));
  }
  template <Machine M>
  static void run_cores(M& m, const Operands& x, const Numbered& list, const Tiling& t) {
    const auto slopes = m.load(
        Block{.array = SlowArray::slopes, .instance = x.instance(), .shape = slopes_of_all(x.shape, list.cores())});
    const auto run_one = [&](auto& w, index_t i) {
      Operands core(list(i), x.scale, x.instance());
      if constexpr (std::derived_from<Operands, ModifierOperands>) core.kept_slopes = slopes.arg();
      run_core(w, core, t);
    };
    if (list.count() > 1 && cores_are_independent(x.shape.modifiers))
      m.each(list.count(), run_one);
    else
      for (index_t i = 0; i < list.count(); ++i) run_one(m, i);
  }
  /// What no core writes.
  template <Machine M>
  static void write_hidden(M& m, const Operands& x, const Numbered& list) {
    for_hidden(x.shape, rules, list.cores(), x.instance(), [&](const SlowMatrix& matrix, Range rows) {
      if (matrix.array == SlowArray::lse)
        no_keys(m, x, matrix, rows);
      else if (moves_with_sinks(x.shape, matrix.array))
        sinks_alone_move(m, x, matrix, rows);
      else
        m.update(kernel::ZeroOver{}, matrix.rows(rows));
    });
    if constexpr (WritesPairs<Operands>)
      for_hidden_pairs(x.shape, list, [&](index_t row, Range keys) {
        m.update(typename Operands::Hidden{}, x.pairs().block({row, row + 1}, keys));
      });
  }
  /// lse of rows that see no key: that of their sinks.
  template <Machine M>
  [[gnu::noinline]] static void no_keys(M& m, const Operands& x, const SlowMatrix& lse, Range rows) {
    if constexpr (std::derived_from<Operands, ModifierOperands>)
      if (x.sinks.shape.words() > 0)
        return m.update(kernel::SinksOver{true, rows.begin}, lse.rows(rows), m.stream(x.sinks.all()));
    m.update(kernel::NoKeysOver{}, lse.rows(rows));
  }
  /// How lse of rows that see no key moves: as their sinks do.
  template <Machine M>
  [[gnu::noinline]] static void sinks_alone_move(M& m, const Operands& x, const SlowMatrix& of_lse, Range rows) {
    if constexpr (requires { x.tSinks; } || requires { x.gSinks; }) {
      const auto move = [&](const SlowMatrix& direction) {
        const auto sinks = m.load(x.sinks.all()), along = m.load(direction.all());
        for (index_t i = rows.begin; i < rows.end; ++i) {
          const Range row{i, i + 1};
          const auto lse = m.load(x.lse.rows(row)), moves = m.alloc(of_lse.rows(row));
          m.compute(kernel::BeginWithMovingSinks{i}, moves, lse, sinks, along);
          m.store(moves, of_lse.rows(row));
        }
      };
      if constexpr (requires { x.tSinks; }) move(x.tSinks);
      if constexpr (requires { x.gSinks; }) move(x.gSinks);
    }
  }
  /// Does each core have rows of its own in all workspace, and words of its own in dBias?
  static bool cores_are_independent(const Modifiers& m) {
    if (m.bias_gradient && m.bias_over_keys && (m.bias_over_positions || m.bias_over_group)) return false;
    return std::ranges::none_of(S::workspace, [](SlowArray a) { return side_of(a) == Side::neither; });
  }
};

}  // namespace redblue::schedule
