#pragma once
#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "redblue/core/cores.hpp"
#include "redblue/core/machine.hpp"
#include "redblue/kernel/backward.hpp"
#include "redblue/schedule/parts/knobs.hpp"
#include "redblue/schedule/parts/limits.hpp"
#include "redblue/schedule/parts/modifiers.hpp"

/// A schedule under any mask: its text runs on the cores of the problem and reads nothing else; what the others have of
/// the outputs is written directly.
namespace redblue::schedule {

/// f(array, queries or keys that no core holds), in order; `first` says where the problem begins.
template <class F>
void for_gaps(index_t n, index_t origin, std::span<const Core> cores, index_t Sizes::* begin, index_t Sizes::* size,
              const F& f) {
  index_t done = 0;
  for (const Core& c : cores) {
    if (const index_t at = c.sizes.*begin - origin; at > done) f(Range{done, at});
    done = c.sizes.*begin - origin + c.count * c.sizes.*size;
  }
  if (done < n) f(Range{done, n});
}

/// f(row, keys that it does not see) for every row of a matrix over all pairs, `cores` of which see each other; not
/// many keys at a time, for a machine may hold them.
template <class F>
void for_hidden_pairs(const Sizes& x, const CoreList& cores, const F& f) {
  constexpr index_t kMost = 64;
  const auto some = [&](index_t row, Range keys) {
    for (index_t j = keys.begin; j < keys.end; j += kMost) f(row, Range{j, std::min(j + kMost, keys.end)});
  };
  const Numbered list(cores);
  for (index_t i = 0; i < list.count(); ++i) {
    const Sizes core = list(i);
    const index_t key0 = core.key0 - x.key0;
    for (index_t r = 0, row = core.row0 - x.row0; r < core.n_q; ++r, ++row) {
      index_t done = 0;
      for (const Range& run : core.pairs().runs_of_keys({r, r + 1})) {
        if (run.size() == 0) continue;
        some(row, {done, key0 + run.begin});
        done = key0 + run.end;
      }
      some(row, {done, x.n_k});
    }
  }
  for_gaps(x.n_q, x.row0, cores, &Sizes::row0, &Sizes::n_q, [&](Range rows) {
    for (index_t row = rows.begin; row < rows.end; ++row) some(row, {0, x.n_k});
  });
}
/// Of one instance, or of one key-value head of all batches where these differ.
inline Words hidden_pairs(const Sizes& x, const CoreList& cores) {
  Words pairs = Words(batches_of(x)) * x.n_q * x.n_k;
  for (const Core& c : cores) pairs -= c.count * c.sizes.nnz();
  return pairs;
}
/// Do the operands have an output with a word for each pair?
template <class Operands>
concept WritesPairs = requires { typename Operands::Hidden; };

/// A schedule S under any mask, from its text for cores.
template <class S>
struct Masked : S {
  using Operands = typename S::Operands;
  using One = typename S::Tiling;
  using Tiling = Tilings<One>;

  /// The tiling of a core; all of them for a text that passes them on to parts of its own.
  static const auto& of(const Tiling& t, const Sizes& core) {
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
  static Sizes taken(const Sizes& x, bool hides) { return hides && has_pattern(x) ? with_hulls(x) : x; }
  static Sizes taken(const Sizes& x, const Tiling& t) { return taken(x, hides(t)); }

  /// Of one batch, or of all. Gradients with respect to shared factors are sums over all cores: one core then spans
  /// them.
  static CoreList cores(const Sizes& x, std::optional<index_t> batch = {}) {
    return cores_of(x, batch, S::one_core ? Cut::one : Cut::each);
  }
  /// Where there are several cores, slopes are loaded once, and stay.
  static Words kept_slopes(const Sizes& core) {
    return core.modifiers.slopes_kept ? core.tile(SlowArray::slopes, core.mask.group, 1) : Words(0);
  }
  /// The sizes of the core with the largest size(core); those of the problem where no query sees a key.
  template <class Size>
  static Sizes core_with_most(const Sizes& x, const Size& size) {
    Sizes best = x;
    Words most = -1;
    for (const Core& c : cores(x))
      if (const Words s = size(c.sizes); s > most) {
        most = s;
        best = c.sizes;
      }
    if (most < 0) {
      best.mask = Mask{.group = x.mask.group};
      best.documents = nullptr;
    }
    return best;
  }
  static Sizes largest_of(const Sizes& x) {
    return core_with_most(x, [](const Sizes& core) { return Words(core.n_q) * core.n_k; });
  }
  template <class F>
  static bool all_of(const Sizes& x, const F& f) {
    for (const Core& c : cores(x))
      if (!f(c.sizes)) return false;
    return true;
  }

  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (S::one_core && !S::knows_parts && x.documents != nullptr) return "knows no packed or padded sequences";
    for (const Core& c : cores(taken(x, S::traits.hides && !S::traits.patterns)))
      if (const auto why = S::unsupported(c.sizes)) return why;
    return std::nullopt;
  }
  static std::string_view caveat(const Sizes& x, const Tiling& t) { return S::caveat(largest_of(taken(x, t)), t.all); }
  static bool allows(const Sizes& x, const Tiling& t) {
    return all_of(taken(x, t), [&](const Sizes& core) { return S::allows(core, of(t, core)); });
  }
  static Tiling smallest(const Sizes& x, const Multiples& m) {
    return S::smallest(largest_of(taken(x, S::traits.hides)), m);
  }
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    if (is_plain(x) && !x.modifiers.any()) return S::choose_tiling(x, limits);
    if (!S::traits.hides || !has_pattern(x)) return choose_tiling_for(x, x, limits);
    std::optional<Tiling> hiding = choose_tiling_for(x, with_hulls(x), limits);
    if (!S::traits.patterns) return hiding;
    return cheaper(x, limits, choose_tiling_for(x, x, limits), hiding);
  }
  static std::optional<Tiling> cheaper(const Sizes& x, const Limits& limits, const std::optional<Tiling>& a,
                                       const std::optional<Tiling>& b) {
    if (!a || !b) return a ? a : b;
    return limits.price.of(io(x, *a)) <= limits.price.of(io(x, *b)) ? a : b;
  }
  /// Of a problem x whose loops take it as `parts`.
  static std::optional<Tiling> choose_tiling_for(const Sizes& x, const Sizes& parts, const Limits& limits) {
    // Where no query sees a key nothing runs, and any tiling will do.
    const CoreList list = cores(parts);
    if (list.empty()) return fitting(x, limits, smallest(x, limits.multiple));
    Limits left = limits;
    left.M -= kept_slopes(core_with_most(parts, kept_slopes));
    std::optional<Tiling> best;
    Words least;
    const auto consider = [&](std::optional<Tiling> found) {
      const auto t = fitting(x, limits, std::move(found));
      if (!t) return;
      if (const Words cost = limits.price.of(io(x, *t)); !best || cost < least) {
        best = t;
        least = cost;
      }
    };
    const auto for_all = [&](const Sizes& core) { consider(best_of(core, left)); };
    const Sizes largest = largest_of(parts);
    if (has_pattern(x))
      for_all(largest);
    else if constexpr (S::takes_tilings)
      consider(S::choose_tilings(x, largest, list, left));
    else
      consider(of_each_shape(largest, list, left));
    if (is_plain(x)) return best;
    if (x.documents != nullptr) {
      const Sizes rows = core_with_most(parts, [](const Sizes& c) { return Words(c.n_q); }),
                  keys = core_with_most(parts, [](const Sizes& c) { return Words(c.n_k); });
      if (has_pattern(x)) for_all(rows), for_all(keys);
      Sizes both = largest;  // as many rows as the one and as many keys as the other, without a mask
      if (both.mask.pattern == nullptr) {
        both.n_q = rows.n_q;
        both.n_k = keys.n_k;
        both.mask = Mask{.group = both.mask.group};
        both.documents = nullptr;
        for_all(both);
      }
    }
    if (!S::traits.only_patterns && (x.documents != nullptr || x.modifiers.any())) for_all(without_mask(x));
    return best ? best : fitting(x, limits, smallest(x, limits.multiple));
  }
  /// Most tilings are chosen for what moves without a bias. Where a mask hides pairs, larger blocks read more of a bias
  /// that nobody uses: the best of the tilings for this M and for less memory, the same amounts whatever M is, then
  /// around the best amount.
  static std::optional<One> best_of(const Sizes& core, const Limits& limits) {
    std::optional<One> best = S::choose_tiling(core, limits);
    if (!best || S::counts_bias || core.modifiers.bias == Modifiers::Bias::none || core.mask.full()) return best;
    Words least = limits.price.of(S::io(core, *best)), room = limits.M;
    const auto consider = [&](Words M) {
      Limits part = limits;
      part.M = M;
      const std::optional<One> t = S::choose_tiling(core, part);
      if (!t) return;
      if (const Words cost = limits.price.of(S::io(core, *t)); cost < least) {
        best = t;
        least = cost;
        room = M;
      }
    };
    for (Words M = 1; M < limits.M; M = M + std::max(Words(1), M / 4)) consider(M);
    for (Words step = room / 16; step > 0 && step * 1024 > limits.M; step = step / 2)
      for (const Words M : {room - step, room + step})
        if (M > 0 && M <= limits.M) consider(M);
    return best;
  }
  /// The best tiling of the largest core, and those of cores of other shapes where theirs costs less.
  static std::optional<Tiling> of_each_shape(const Sizes& largest, const CoreList& list, const Limits& limits) {
    const std::optional<One> all = best_of(largest, limits);
    if (!all) return std::nullopt;
    Tiling t(*all);
    std::set<CoreShape> seen{CoreShape(largest)};
    for (const Core& core : list) {
      const Sizes& one = core.sizes;
      if (!seen.insert(CoreShape(one)).second) continue;
      const std::optional<One> own = best_of(one, limits);
      if (!own || S::copies(*own) != S::copies(*all)) continue;  // copies of all cores lie in one array
      const bool does = is_legal(one, limits.multiple, *all) && S::allows(one, *all) && fits<S>(one, *all, limits);
      if (!does || limits.price.of(S::io(one, *own)) < limits.price.of(S::io(one, *all)))
        t.own.emplace(CoreShape(one), *own);
    }
    return t;
  }

  /// The whole problem with nothing hidden: no tiling that is chosen for a masked one moves more words than its tiling.
  static Sizes without_mask(Sizes x) {
    x.mask = Mask{.group = x.mask.group};
    x.documents = nullptr;
    return x;
  }
  /// The tiling, with tiles that span the cores spanning the whole dimension, so that they keep to any multiples;
  /// nothing if it does not run in all cores within these limits.
  static std::optional<Tiling> fitting(const Sizes& x, const Limits& limits, std::optional<Tiling> t) {
    if (!t || !allows(x, *t) || !fits<Masked>(x, *t, limits)) return std::nullopt;
    const Sizes parts = taken(x, *t);
    t->knobs([&](const KnobRange& range, index_t& value, bool = true) {
      const auto along = range.along;
      if (along != nullptr && all_of(parts, [&](const Sizes& core) { return value >= core.*along; }))
        value = std::max(value, x.*along);
    });
    return t;
  }

  /// The larger of the cores, and the word that is written where a query sees no key, or no query a key.
  static Words footprint(const Sizes& problem, const Tiling& t) {
    const Sizes x = taken(problem, t);
    Words most;
    for (const Core& c : cores(x)) most = std::max(most, kept_slopes(c.sizes) + S::footprint(c.sizes, of(t, c.sizes)));
    for_hidden(x, [&](const SlowMatrix& m, Range) {
      most = std::max(most, x.word(m.array) + (m.array == SlowArray::lse ? passing_sink(x, 0) : Words(0)));
    });
    if constexpr (WritesPairs<Operands>)
      if (hidden_pairs(x, cores(x)) > 0) most = std::max(most, x.word(Operands::outputs[0]));
    return std::max(most, gradients_of_modifiers_footprint(x));
  }
  static Words prefetch(const Sizes& x, const Tiling& t) {
    Words most, with;
    for (const Core& c : cores(taken(x, t))) {
      const Words footprint = kept_slopes(c.sizes) + S::footprint(c.sizes, of(t, c.sizes));
      most = std::max(most, footprint);
      with = std::max(with, footprint + S::prefetch(c.sizes, of(t, c.sizes)));
    }
    return with - most;
  }
  /// Of one instance; where batches differ, of one key-value head of all batches.
  static Io io(const Sizes& problem, const Tiling& t) {
    const Sizes x = taken(problem, t);
    Io io;
    for (const Core& c : cores(x)) io = io + Words(c.count) * S::io(c.sizes, of(t, c.sizes));
    if (x.modifiers.slopes)
      for (index_t batch = 0; batch < batches_of(x); ++batch)
        io.read(SlowArray::slopes, slopes_of_all(x, batch).words());
    for_hidden(x, [&](const SlowMatrix& m, Range rows) {
      io.write(m.array, Words(rows.size()) * m.shape.cols);
      if (m.array == SlowArray::lse) io = io + sinks_io(x, 1);
    });
    if constexpr (WritesPairs<Operands>) io.write(Operands::outputs[0], hidden_pairs(x, cores(x)));
    return io + Words(batches_of(x)) * gradients_of_modifiers_io(x);
  }
  static Words macs(const Sizes& x, const Tiling& t) {
    Words macs;
    for (const Core& c : cores(taken(x, t))) macs += c.count * S::macs(c.sizes, of(t, c.sizes));
    return macs;
  }

  /// Index words: a list of pairs is that of each core, where hidden pairs are formed the row and the key of each; an
  /// index of blocks is read once, and stays.
  static IndexWords index(const Sizes& x, const Tiling& t) {
    IndexWords words;
    if (!has_pattern(x)) return words;
    for (const Sizes& part : documents_of(x))
      if (part.pattern->rows().index().kind == PatternIndex::Kind::pairs)
        words = words.then(hides(t) ? IndexWords{Words(2) * part.nnz(), 2} : S::index(part, t.all));
    for (const Words& blocks : x.documents->block_index) words = words.then({blocks, blocks});
    return words;
  }

  template <Machine M>
  static void run(M& m, const Operands& problem, const Tiling& t) {
    const Operands x(taken(problem.shape, t), problem.scale, problem.instance());
    const index_t instance = x.instance(), batch = batch_of(x.shape, instance);
    begin_gradients_of_modifiers(m, x, instance);
    run_cores(m, x, batch, t);
    for_hidden(x.shape, instance, batch, [&](const SlowMatrix& matrix, Range rows) {
      if (matrix.array == SlowArray::lse)
        no_keys(m, x, matrix, rows);
      else
        m.update(kernel::ZeroOver{}, matrix.rows(rows));
    });
    if constexpr (WritesPairs<Operands>)
      if (!is_plain(x.shape))
        for_hidden_pairs(x.shape, cores(x.shape, batch), [&](index_t row, Range keys) {
          m.update(typename Operands::Hidden{}, x.pairs().block({row, row + 1}, keys));
        });
    end_gradients_of_modifiers(m, x, instance);
  }

 private:
  template <Machine M>
  static void run_cores(M& m, const Operands& x, index_t batch, const Tiling& t) {
    const Numbered list(cores(x.shape, batch));
    const auto slopes =
        m.load(Block{.array = SlowArray::slopes, .instance = x.instance(), .shape = slopes_of_all(x.shape, batch)});
    const auto run_core = [&](auto& w, index_t i) {
      Operands core(list(i), x.scale, x.instance());
      if constexpr (std::derived_from<Operands, ModifierOperands>) core.kept_slopes = slopes.arg();
      S::run(w, core, of(t, core.shape));
    };
    if (list.count() > 1 && cores_are_independent(x.shape.modifiers))
      m.each(list.count(), run_core);
    else
      for (index_t i = 0; i < list.count(); ++i) run_core(m, i);
  }
  /// The slopes that are loaded for all cores of a batch.
  static Shape slopes_of_all(const Sizes& x, index_t batch) {
    const auto list = cores(x, batch);
    return {!list.empty() && list[0].sizes.modifiers.slopes_kept ? x.mask.group : 0, 1};
  }
  /// lse of rows that see no key: that of their sinks.
  template <Machine M>
  [[gnu::noinline]] static void no_keys(M& m, const Operands& x, const SlowMatrix& lse, Range rows) {
    if constexpr (std::derived_from<Operands, ModifierOperands>)
      if (x.sinks.shape.words() > 0)
        return m.update(kernel::SinksOver{true, rows.begin}, lse.rows(rows), m.stream(x.sinks.all()));
    m.update(kernel::NoKeysOver{}, lse.rows(rows));
  }
  /// Without a mask, and a single problem?
  static bool is_plain(const Sizes& x) { return x.mask.full() && x.documents == nullptr; }
  static index_t batch_of(const Sizes& x, index_t instance) {
    return x.documents == nullptr ? 0 : x.documents->batch_of(instance, x.modifiers.kv_heads);
  }
  /// Does each core have rows of its own in all workspace, and words of its own in dBias?
  static bool cores_are_independent(const Modifiers& m) {
    if (m.bias_gradient && m.bias_over_keys && (m.bias_over_positions || m.bias_over_group)) return false;
    return std::ranges::none_of(S::workspace, [](SlowArray a) { return side_of(a) == Side::neither; });
  }
  /// f(output, its rows) for what no core writes, of one instance.
  template <class F>
  [[gnu::noinline]] static void for_hidden(const Sizes& x, index_t instance, index_t batch, const F& f) {
    if (is_plain(x)) return;
    const CoreList list = cores(x, batch);
    const Operands all(x, 1, instance);
    for (const SlowMatrix& m : all.all()) {
      if (std::find(Operands::outputs.begin(), Operands::outputs.end(), m.array) == Operands::outputs.end()) continue;
      if (m.shape.words() == 0 || !S::writes(x, m.array)) continue;
      if (is_of_modifiers(m.array)) continue;  // parts/modifiers.hpp
      if (is_of_pairs(m.array)) continue;      // for_hidden_pairs
      const auto fill = [&](Range rows) { f(m, rows); };
      switch (side_of(m.array)) {
        case Side::queries:
          for_gaps(x.n_q, x.row0, list, &Sizes::row0, &Sizes::n_q, fill);
          break;
        case Side::keys:
          for_gaps(x.n_k, x.key0, list, &Sizes::key0, &Sizes::n_k, fill);
          break;
        case Side::neither:
          if (list.empty()) fill({0, m.shape.rows});
          break;
      }
    }
  }
  /// The same of all batches.
  template <class F>
  static void for_hidden(const Sizes& x, const F& f) {
    for (index_t batch = 0; batch < batches_of(x); ++batch) for_hidden(x, 0, batch, f);
  }
};

}  // namespace redblue::schedule
