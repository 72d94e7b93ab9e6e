#include "redblue/schedules/parts/core_sums.hpp"

#include <algorithm>
#include <set>
#include <span>

namespace redblue::schedule {

namespace {

/// f(queries or keys that no core holds), in order; `first` says where the problem begins.
void for_gaps(index_t n, index_t first, const CoreList& cores, index_t Sizes::* begin, index_t Sizes::* size,
              FunctionRef<void(Range)> f) {
  index_t done = 0;
  for (const Core& c : cores) {
    if (const index_t at = c.sizes.*begin - first; at > done) f({done, at});
    done = c.sizes.*begin - first + c.count * c.sizes.*size;
  }
  if (done < n) f({done, n});
}

/// for_hidden() of each batch, for its first instance.
void for_hidden_of_all(const Sizes& x, const CoreRules& rules, FunctionRef<void(const SlowMatrix&, Range)> f) {
  if (is_plain(x)) return;
  for (index_t batch = 0; batch < batches_of(x); ++batch) for_hidden(x, rules, cores_of(x, batch, rules.cut), 0, f);
}

/// The hidden pairs of one instance, or of one key-value head of all batches where these differ.
Words hidden_pairs(const Sizes& x, const CoreList& cores) {
  Words pairs = Words(batches_of(x)) * x.n_q * x.n_k;
  for (const Core& c : cores) pairs -= c.count * c.sizes.nnz();
  return pairs;
}

}  // namespace

bool is_plain(const Sizes& x) { return x.mask.full() && x.sequences == nullptr; }

Sizes without_mask(Sizes x) {
  x.mask = Mask{.group = x.mask.group};
  x.sequences = nullptr;
  return x;
}

index_t batch_of(const Sizes& x, index_t instance) {
  return x.sequences == nullptr ? 0 : x.sequences->batch_of(instance, x.modifiers.kv_heads);
}

Words kept_slopes(const Sizes& core) {
  return core.modifiers.slopes_kept ? core.tile(SlowArray::slopes, core.mask.group, 1) : Words(0);
}

Shape slopes_of_all(const Sizes& x, const CoreList& batch) {
  return {!batch.empty() && batch[0].sizes.modifiers.slopes_kept ? x.mask.group : 0, 1};
}

Sizes core_with_most(const Sizes& x, const CoreList& cores, OfCore size) {
  const Sizes* best = nullptr;
  Words most = -1;
  for (const Core& c : cores)
    if (const Words s = size(c.sizes); s > most) {
      most = s;
      best = &c.sizes;
    }
  return best != nullptr ? *best : without_mask(x);
}

Sizes largest_of(const Sizes& x, const CoreList& cores) {
  return core_with_most(x, cores, [](const Sizes& core) { return Words(core.n_q) * core.n_k; });
}

bool all_of(const CoreList& cores, FunctionRef<bool(const Sizes&)> f) {
  return std::ranges::all_of(cores, [&](const Core& c) { return f(c.sizes); });
}

std::vector<Sizes> other_shapes(const CoreList& cores, const Sizes& largest) {
  std::set<CoreShape> seen{CoreShape(largest)};
  std::vector<Sizes> list;
  for (const Core& c : cores)
    if (seen.insert(CoreShape(c.sizes)).second) list.push_back(c.sizes);
  return list;
}

void for_candidates(const Sizes& x, const CoreList& cores, bool lists_pairs,
                    FunctionRef<void(const Sizes& largest)> of_each, FunctionRef<void(const Sizes& sizes)> of_all) {
  const Sizes largest = largest_of(x, cores);
  if (has_pattern(x))
    of_all(largest);
  else
    of_each(largest);
  if (is_plain(x)) return;
  if (x.sequences != nullptr) {
    const Sizes rows = core_with_most(x, cores, [](const Sizes& core) { return Words(core.n_q); }),
                keys = core_with_most(x, cores, [](const Sizes& core) { return Words(core.n_k); });
    if (has_pattern(x)) of_all(rows), of_all(keys);
    if (largest.mask.pattern == nullptr) {  // as many rows as the one and as many keys as the other, without a mask
      Sizes both = without_mask(largest);
      both.n_q = rows.n_q;
      both.n_k = keys.n_k;
      of_all(both);
    }
  }
  if (!lists_pairs && (x.sequences != nullptr || x.modifiers.any())) of_all(without_mask(x));
}

void span_dimensions(const Variables& tiling, const Sizes& x, const CoreList& cores) {
  for (const Variable& v : tiling) {
    const auto along = v.range.along;
    if (along != nullptr && all_of(cores, [&](const Sizes& core) { return *v.value >= core.*along; }))
      *v.value = std::max(*v.value, x.*along);
  }
}

Words best_amount(Words M, FunctionRef<std::optional<Words>(Words)> cost) {
  Words best = M;
  std::optional<Words> least = cost(M);
  if (!least) return M;
  const auto consider = [&](Words part) {
    const std::optional<Words> found = cost(part);
    if (!found || *found >= *least) return;
    least = found;
    best = part;
  };
  for (Words part = 1; part < M; part = part + std::max(Words(1), part / 4)) consider(part);
  for (Words step = best / 16; step > 0 && step * 1024 > M; step = step / 2)
    for (const Words part : {best - step, best + step})
      if (part > 0 && part <= M) consider(part);
  return best;
}

Words footprint_of_cores(const Sizes& x, const CoreRules& rules, OfCore footprint) {
  const CoreList cores = cores_of(x, {}, rules.cut);
  Words most;
  for (const Core& c : cores) most = std::max(most, kept_slopes(c.sizes) + footprint(c.sizes));
  for_hidden_of_all(x, rules, [&](const SlowMatrix& m, Range) {
    if (moves_with_sinks(x, m.array)) {
      most = std::max(most, held_moving_sinks(x, direction_of_sinks(m.array)) + x.tile(m.array, 1, 1));
    } else {
      const Words beside = m.array == SlowArray::lse ? passing_sink(x, 0) : Words(0);
      most = std::max(most, x.word(m.array) + beside);
    }
  });
  if (rules.of_pairs && hidden_pairs(x, cores) > 0) most = std::max(most, x.word(*rules.of_pairs));
  return std::max(most, gradients_of_modifiers_footprint(x, !cores.empty()));
}

Words prefetch_of_cores(const CoreList& cores, OfCore footprint, OfCore prefetch) {
  Words most, with;
  for (const Core& c : cores) {
    const Words words = kept_slopes(c.sizes) + footprint(c.sizes);
    most = std::max(most, words);
    with = std::max(with, words + prefetch(c.sizes));
  }
  return with - most;
}

Io io_of_cores(const Sizes& x, const CoreRules& rules, FunctionRef<Io(const Sizes&)> io_of_core) {
  const CoreList cores = cores_of(x, {}, rules.cut);
  Io io;
  Words rows;
  for (const Core& c : cores) {
    io = io + (c.count == 1 ? io_of_core(c.sizes) : Words(c.count) * io_of_core(c.sizes));
    rows += Words(c.count) * c.sizes.n_q;
  }
  if (x.modifiers.slopes)
    for (index_t batch = 0; batch < batches_of(x); ++batch)
      io.read(SlowArray::slopes, slopes_of_all(x, cores_of(x, batch, rules.cut)).words());
  for_hidden_of_all(x, rules, [&](const SlowMatrix& m, Range rows) {
    io.write(m.array, Words(rows.size()) * m.shape.cols);
    if (m.array == SlowArray::lse) io = io + sinks_io(x, 1);
    if (moves_with_sinks(x, m.array))
      io = (io + moving_sinks_io(x, direction_of_sinks(m.array), 1)).read(SlowArray::lse, rows.size());
  });
  if (rules.of_pairs) io.write(*rules.of_pairs, hidden_pairs(x, cores));
  if (!x.modifiers.any()) return io;
  return io + rows_of_moving_sinks_io(x, rows) + Words(batches_of(x)) * gradients_of_modifiers_io(x);
}

Words macs_of_cores(const CoreList& cores, OfCore macs_of_core) {
  Words macs;
  for (const Core& c : cores) macs += c.count * macs_of_core(c.sizes);
  return macs;
}

IndexWords index_of_cores(const Sizes& x, bool hides, FunctionRef<IndexWords(const Sizes&)> index) {
  IndexWords words;
  if (!has_pattern(x)) return words;
  for (const Sizes& part : sequences_of(x))
    if (part.pattern->rows().index().kind == PatternIndex::Kind::pairs)
      words = words.then(hides ? IndexWords{Words(2) * part.nnz(), 2} : index(part));
  for (const Words& blocks : x.sequences->block_index) words = words.then({blocks, blocks});
  return words;
}

void for_hidden(const Sizes& x, const CoreRules& rules, const CoreList& cores, index_t instance,
                FunctionRef<void(const SlowMatrix&, Range)> f) {
  if (is_plain(x) || x.accumulate) return;  // given outputs stay as they are
  for (const SlowMatrix& m : rules.outputs(x, instance)) {
    if (!rules.writes(x, m.array)) continue;
    const auto fill = [&](Range rows) { f(m, rows); };
    switch (side_of(m.array)) {
      case Side::queries:
        for_gaps(x.n_q, x.row0, cores, &Sizes::row0, &Sizes::n_q, fill);
        break;
      case Side::keys:
        for_gaps(x.n_k, x.key0, cores, &Sizes::key0, &Sizes::n_k, fill);
        break;
      case Side::neither:
        if (cores.empty()) fill({0, m.shape.rows});
        break;
    }
  }
}

void for_hidden_pairs(const Sizes& x, const Numbered& list, FunctionRef<void(index_t, Range)> f) {
  constexpr index_t kMost = 64;
  const auto some = [&](index_t row, Range keys) {
    for (index_t j = keys.begin; j < keys.end; j += kMost) f(row, {j, std::min(j + kMost, keys.end)});
  };
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
  for_gaps(x.n_q, x.row0, list.cores(), &Sizes::row0, &Sizes::n_q, [&](Range rows) {
    for (index_t row = rows.begin; row < rows.end; ++row) some(row, {0, x.n_k});
  });
}

}  // namespace redblue::schedule
