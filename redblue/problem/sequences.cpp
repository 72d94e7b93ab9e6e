#include "redblue/problem/sequences.hpp"

#include <utility>

namespace redblue {

std::optional<Mask> mask_of(const RunLists& rows, index_t n_k, index_t group) {
  // Edges as some rows show them; then all rows are compared.
  Mask mask{.group = group};
  bool one_run = true;
  rows.for_groups([&](Range part, std::span<const Range> runs) {
    one_run = one_run && runs.size() <= 1;
    if (runs.empty()) return;
    const index_t position = (part.end - 1) / group;
    if (runs[0].begin > 0) mask.lo = runs[0].begin - position;
    if (runs[0].end < n_k) mask.hi = runs[0].end - position;
  });
  if (!one_run || rows.size() % group != 0) return std::nullopt;
  const std::span<const Range> top = rows.of(0);
  if (mask.hi != Mask::kFar && !top.empty() && top[0].end > mask.hi) mask.prefix = top[0].end;
  bool equal = true;
  rows.for_groups([&](Range part, std::span<const Range> runs) {
    for (index_t r = part.begin; r < part.end && equal; ++r) {
      const Range seen = mask.keys(r, n_k);
      equal = runs.empty() ? seen.size() == 0 : seen == runs[0];
    }
  });
  return equal ? std::optional(mask) : std::nullopt;
}

std::vector<Sequence> sequences_of(const RunLists& rows, index_t n_k, const Sequence& all) {
  const index_t group = all.mask.group;
  // Positions that see a key, and which keys, from the first to the last.
  std::vector<std::pair<Range, Range>> envelopes;
  const Range every{0, n_k};
  for (index_t r = 0; r < rows.size(); r += group) {
    const Range position{r, r + group}, envelope = envelope_of(rows, position, every);
    if (envelope.size() > 0) envelopes.push_back({position, envelope});
  }
  std::vector<Sequence> list;
  std::vector<RunLists> parts;
  const auto add = [&](std::size_t first, std::size_t end, Range keys) {
    Sequence one = all;
    one.rows = {envelopes[first].first.begin, envelopes[end - 1].first.end};
    one.keys = keys;
    one.slope_offset += one.rows.begin / group - keys.begin;
    RunLists part;
    part.set_index(rows.index());
    rows.for_groups(one.rows, [&](Range same, std::span<const Range> runs) {
      std::vector<Range> shifted(runs.begin(), runs.end());
      for (Range& run : shifted) run = run.shifted(-keys.begin);
      part.append(same.size(), shifted);
    });
    parts.push_back(std::move(part));
    list.push_back(std::move(one));
  };
  // From the end: the first key that a position from here on sees.
  std::vector<index_t> first_key(envelopes.size() + 1, n_k);
  for (std::size_t k = envelopes.size(); k-- > 0;) first_key[k] = std::min(first_key[k + 1], envelopes[k].second.begin);
  std::size_t begin = 0;
  index_t end_key = 0;
  for (std::size_t k = 0; k < envelopes.size(); ++k) {
    end_key = std::max(end_key, envelopes[k].second.end);
    if (k + 1 < envelopes.size() && first_key[k + 1] < end_key) continue;
    add(begin, k + 1, {first_key[begin], end_key});
    begin = k + 1;
  }
  bool masks = true;
  for (std::size_t k = 0; k < list.size() && masks; ++k) {
    const auto mask = mask_of(parts[k], list[k].keys.size(), group);
    masks = mask.has_value();
    if (masks) list[k].mask = *mask;
  }
  for (std::size_t k = 0; k < list.size() && !masks; ++k) {
    list[k].mask = {.group = group};
    list[k].pattern = std::make_shared<const Pattern>(std::move(parts[k]), list[k].keys.size());
  }
  return list;
}

namespace {

/// Sequences with an interval mask lose the rows at either end that see no key, and the keys that none sees; those that
/// have nothing left go.
void narrow(std::vector<Sequence>& list) {
  for (Sequence& one : list) {
    if (one.pattern != nullptr || one.intervals != nullptr) continue;
    const Pairs pairs{one.mask, one.rows.size(), one.keys.size()};
    const Range rows = pairs.rows_of({0, one.keys.size()}), keys = pairs.keys_of(rows);
    if (rows.size() > 0) {
      one.mask = part_of(pairs, rows, keys).mask;
      one.slope_offset += rows.begin / one.mask.group - keys.begin;
    }
    one.rows = rows.shifted(one.rows.begin);
    one.keys = keys.shifted(one.keys.begin);
  }
  std::erase_if(list, [](const Sequence& one) { return one.rows.size() == 0 || one.keys.size() == 0; });
}

}  // namespace

std::shared_ptr<const Order> close_gaps(std::vector<Sequence>& list, index_t positions, index_t n_k) {
  narrow(list);
  const auto apart = [](const Sequence& a, const Sequence& b) {
    return b.rows.begin != a.rows.end || b.keys.begin != a.keys.end;
  };
  if (std::ranges::adjacent_find(list, apart) == list.end()) return nullptr;
  Order order;
  const auto take = [](std::vector<index_t>& places, Range taken) {
    for (index_t i = taken.begin; i < taken.end; ++i) places.push_back(i);
  };
  const index_t group = list.front().mask.group;
  take(order.queries, {0, list.front().rows.begin / group});  // the first stays where it is
  take(order.keys, {0, list.front().keys.begin});
  for (Sequence& one : list) {
    const Range rows = one.rows, keys = one.keys;
    one.rows = Range{0, rows.size()}.shifted(std::ssize(order.queries) * group);
    one.keys = Range{0, keys.size()}.shifted(std::ssize(order.keys));
    take(order.queries, {rows.begin / group, rows.end / group});
    take(order.keys, keys);
  }
  order.complete(positions, n_k);
  return std::make_shared<const Order>(std::move(order));
}

void make_pattern(Sequence& one, const PatternIndex& index) {
  if (one.pattern != nullptr) return;
  RunLists rows;
  rows.set_index(index);
  if (one.mask.full())
    rows.append(one.rows.size(), {{0, one.keys.size()}});
  else
    for (index_t r = 0; r < one.rows.size(); ++r) rows.append(1, {one.mask.keys(r, one.keys.size())});
  one.mask = {.group = one.mask.group};
  one.pattern = std::make_shared<const Pattern>(std::move(rows), one.keys.size());
}

std::vector<Sizes> sequences_of(const Sizes& x, std::optional<index_t> batch) {
  if (x.sequences == nullptr) return {x};
  std::vector<Sizes> parts;
  if (x.sequences->batches == 1) parts.reserve(x.sequences->list.size());
  index_t batch_now = 0, pairs = 0;
  for (const Sequence& one : x.sequences->list) {
    if (x.sequences->batches > 1 && batch && one.batch != *batch) continue;
    if (one.rows.size() == 0 || one.keys.size() == 0) continue;
    if (std::exchange(batch_now, one.batch) != one.batch) pairs = 0;
    Sizes part = x;
    part.sequences = nullptr;
    part.n_q = one.rows.size();
    part.n_k = one.keys.size();
    part.row0 += one.rows.begin;
    part.key0 += one.keys.begin;
    part.mask = one.pairs().mask;
    part.pattern = one.pattern;
    part.hiding = one.hiding;
    part.intervals = one.intervals;
    part.pair0 = pairs;
    if (one.pattern != nullptr) pairs += one.pattern->pairs();
    part.modifiers.slope_offset = one.slope_offset - one.rows.begin / one.mask.group + one.keys.begin;
    parts.push_back(std::move(part));
  }
  return parts;
}

namespace {

/// p + lo and p + hi are the ends of the keys that a row at position p sees, or beyond.
Mask envelope_of(const Pattern& pattern, index_t group) {
  Mask envelope{.lo = Mask::kFar, .hi = -Mask::kFar, .group = group};
  pattern.rows().for_groups([&](Range rows, std::span<const Range> runs) {
    if (runs.empty()) return;
    envelope.lo = std::min(envelope.lo, runs.front().begin - (rows.end - 1) / group);
    envelope.hi = std::max(envelope.hi, runs.back().end - rows.begin / group);
  });
  return envelope;
}

}  // namespace

std::shared_ptr<const Sequences> patterns_of(const Sizes& x) {
  Sequences all;
  if (x.sequences != nullptr) {
    all = *x.sequences;
  } else {
    all.list.push_back({.rows = {0, x.n_q},
                        .keys = {0, x.n_k},
                        .mask = x.mask,
                        .slope_offset = x.modifiers.slope_offset,
                        .pattern = x.pattern,
                        .intervals = x.intervals});
    all.list[0].mask.pattern = all.list[0].mask.intervals = nullptr;
  }
  narrow(all.list);
  for (Sequence& one : all.list) {
    if (one.pattern != nullptr) continue;
    if (one.intervals == nullptr) {
      make_pattern(one);
    } else {
      one.mask = {.group = one.mask.group};
      one.pattern = std::exchange(one.intervals, nullptr);
    }
  }
  return std::make_shared<const Sequences>(std::move(all));
}

std::shared_ptr<const Sequences> envelopes_of(const Sequences& sequences) {
  Sequences all = sequences;
  for (Sequence& one : all.list) {
    if (one.pattern == nullptr) continue;
    const std::shared_ptr<const Pattern> pattern = std::exchange(one.pattern, nullptr);
    if (const auto mask = mask_of(pattern->rows(), one.keys.size(), one.mask.group)) {
      one.mask = *mask;
      continue;
    }
    one.mask = envelope_of(*pattern, one.mask.group);
    if (pattern->is_intervals()) {
      if (pattern->rows().of(pattern->n_q() - 1).front().begin == 0) one.mask.lo = -Mask::kFar;
      one.intervals = pattern;
    } else {
      one.hiding = pattern;
    }
  }
  return std::make_shared<const Sequences>(std::move(all));
}

SlowMatrix matrix_of_pairs(const Sizes& x, SlowArray a, index_t instance) {
  if (x.pattern != nullptr) return {a, {x.pattern->pairs(), 1}, instance, x.pair0};
  if (!has_pattern(x)) return {a, {x.n_q, x.n_k}, instance, x.row0, x.key0};
  index_t most = 0;
  for (const Sizes& part : sequences_of(x)) most = std::max(most, part.pair0 + part.pattern->pairs());
  return {a, {most, 1}, instance};
}

namespace {

/// The most keys that a row sees. The mask has no pattern.
index_t most_keys(const Sizes& x) {
  index_t most = 0;
  for_pairs(x, [&](const Pairs& pairs) { most = std::max(most, pairs.most_keys(1)); });
  return most;
}

}  // namespace

SlowMatrix band_of_pairs(const Sizes& x, SlowArray a, index_t instance) {
  const index_t most = x.pattern == nullptr && !has_pattern(x) ? most_keys(x) : 0;
  return {a, {most, x.n_q}, instance, 0, x.row0};
}

Workspace laid_out(const Sizes& x, const SlowMatrix& m) {
  if (!is_of_pairs(m.array) || x.pattern != nullptr || has_pattern(x)) return {m, m.shape.cols};
  return {m, most_keys(x)};
}

}  // namespace redblue
