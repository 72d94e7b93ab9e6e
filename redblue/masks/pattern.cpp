#include "redblue/masks/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "redblue/hardware/physical_memory.hpp"
#include "redblue/language/error.hpp"
#include "redblue/masks/visible.hpp"

namespace redblue {

namespace {

/// The first of sorted runs that ends after i.
auto first_after(std::span<const Range> runs, index_t i) {
  return std::partition_point(runs.begin(), runs.end(), [&](const Range& run) { return run.end <= i; });
}

/// Bits of a word, and those of a run inside one.
constexpr index_t kWordBits = 64;
constexpr std::uint64_t bits_of(Range run) {
  return run.size() == 0 ? 0 : ~std::uint64_t{0} >> (kWordBits - run.size()) << run.begin;
}

/// Refuses a pattern for which memory is too small: its bits, its lists by key and its lists in other orders take many
/// times the memory of its runs.
void require_memory_for(std::size_t runs) {
  static const Words most = physical_memory() / Words(16 * sizeof(Range));
  if (Words(static_cast<index_t>(runs)) > most)
    throw MemoryError(
        fmt::format("a pattern with more than {} runs of neighbouring keys takes more memory than this machine has "
                    "({} bytes); fewer queries, or keys that lie together, take less",
                    most.str(), physical_memory().str()),
        Words(static_cast<index_t>(16 * sizeof(Range) * runs)), physical_memory());
}

}  // namespace

void require_memory_for_lists(index_t n_q, index_t n_k, index_t batches) {
  constexpr index_t kBytes = 64;  // of a query or a key with one run of the others
  const Words least = (Words(n_q) + Words(n_k)) * batches * kBytes;
  if (least > physical_memory())
    throw MemoryError(
        fmt::format("n_q = {}, n_k = {}: a pattern or a dilation of that many takes {} bytes or more, and this machine "
                    "has {}; give fewer of them, or a mask without lists: causal, a window, a prefix, packed sequences",
                    n_q, n_k, least.str(), physical_memory().str()),
        least, physical_memory());
}

void sort_and_join(std::vector<Range>& runs) {
  if (!std::ranges::is_sorted(runs, {}, &Range::begin)) std::ranges::sort(runs, {}, &Range::begin);
  std::size_t kept = 0;
  for (const Range& run : runs) {
    if (run.size() <= 0) continue;
    if (kept > 0 && run.begin <= runs[kept - 1].end)
      runs[kept - 1].end = std::max(runs[kept - 1].end, run.end);
    else
      runs[kept++] = run;
  }
  runs.resize(kept);
}

PatternIndex more_explicit(const PatternIndex& a, const PatternIndex& b) {
  using enum PatternIndex::Kind;
  if (a.kind != b.kind) return a.kind > b.kind ? a : b;
  if (a.kind != blocks) return a;
  const index_t rows = std::gcd(a.rows, b.rows), cols = std::gcd(a.cols, b.cols);
  return {rows == 1 && cols == 1 ? pairs : blocks, rows, cols};
}

void RunLists::append(index_t count, std::span<const Range> runs) {
  if (count == 0) return;
  bits_.clear();
  const std::size_t first = runs_.size();
  for (const Range& run : runs) {
    if (run.size() <= 0) continue;
    if (runs_.size() > first && runs_.back().end >= run.begin)
      runs_.back().end = run.end;
    else
      runs_.push_back(run);
  }
  require_memory_for(runs_.size());
  const auto groups = static_cast<std::uint32_t>(first_.size() - 1);
  const std::span<const Range> added = std::span(runs_).subspan(first);
  if (groups > 0 && std::ranges::equal(added, of_group(groups - 1))) {
    runs_.resize(first);
    begin_.back() += count;
  } else {
    begin_.push_back(begin_.back() + count);
    first_.push_back(runs_.size());
  }
  group_of_.resize(static_cast<std::size_t>(begin_.back()), static_cast<std::uint32_t>(first_.size() - 2));
}

void RunLists::hold_bits(index_t n) {
  constexpr std::size_t kMostBits = 4 * sizeof(Range) * 8;  // for each run
  const std::size_t groups = first_.size() - 1, words = static_cast<std::size_t>(ceil_div(n, kWordBits));
  if (!bits_.empty() || groups * words > runs_.size() * (kMostBits / kWordBits)) return;
  words_ = words;
  bits_.assign(groups * words, 0);
  for (std::size_t g = 0; g < groups; ++g)
    for (const Range& run : of_group(static_cast<std::uint32_t>(g)))
      for (index_t k = run.begin; k < run.end;) {
        const index_t end = std::min(run.end, (k / kWordBits + 1) * kWordBits);
        bits_[g * words + static_cast<std::size_t>(k / kWordBits)] |= bits_of({k % kWordBits, k % kWordBits + end - k});
        k = end;
      }
}

std::uint64_t RunLists::bits_of_runs(std::uint32_t group, index_t from) const {
  std::uint64_t bits = 0;
  for_inside(of_group(group), {from, from + kWordBits}, [&](Range run) { bits |= bits_of(run); });
  return bits;
}

index_t RunLists::count(index_t i, Range window) const {
  if (i >= size()) return 0;
  const std::uint32_t group = group_of_[static_cast<std::size_t>(i)];
  index_t count = 0;
  if (bits_.empty())
    for_inside(of_group(group), window, [&](Range run) { count += run.size(); });
  else
    for (index_t from = window.begin; from < window.end; from += kWordBits)
      count += std::popcount(bits_from(group, from) & bits_of({0, std::min(kWordBits, window.end - from)}));
  return count;
}

std::uint64_t RunLists::seen_by_any(Range part, index_t from) const {
  part.end = std::min(part.end, size());
  if (part.size() <= 0) return 0;
  std::uint64_t bits = 0;
  for (std::uint32_t g = group_of_[static_cast<std::size_t>(part.begin)];
       g <= group_of_[static_cast<std::size_t>(part.end - 1)]; ++g)
    bits |= bits_from(g, from);
  return bits;
}

namespace {

/// Neighbours among n that all lists hold or lack together: cell of[k] of k, and where each begins, n last.
struct Cells {
  std::vector<index_t> of, begin;

  Cells(const RunLists& lists, index_t n) : of(static_cast<std::size_t>(n) + 1) {
    std::vector<bool> cut(of.size());
    index_t left = n + 1;  // places that are not cut yet: where runs are many, all soon are
    const auto cut_at = [&](index_t k) {
      if (cut[static_cast<std::size_t>(k)]) return;
      cut[static_cast<std::size_t>(k)] = true;
      --left;
    };
    cut_at(0);
    lists.for_groups([&](Range, std::span<const Range> runs) {
      if (left == 0) return;
      for (const Range& run : runs) cut_at(run.begin), cut_at(run.end);
    });
    cut_at(n);
    for (std::size_t k = 0; k < of.size(); ++k) {
      if (cut[k]) begin.push_back(static_cast<index_t>(k));
      of[k] = static_cast<index_t>(begin.size()) - 1;
    }
  }
};

}  // namespace

RunLists transposed(const RunLists& lists, index_t n) {
  // From one group to the next only what comes in or goes out is touched. What is in began to be at `since`.
  const Cells cells(lists, n);
  const std::size_t count = cells.begin.size() - 1;
  std::vector<index_t> since(count, -1);
  std::vector<std::vector<Range>> held(count);
  std::span<const Range> before;
  const auto change = [&](Range changed, index_t at, bool comes) {
    const index_t end = cells.of[static_cast<std::size_t>(changed.end)];
    for (index_t k = cells.of[static_cast<std::size_t>(changed.begin)]; k < end; ++k) {
      index_t& from = since[static_cast<std::size_t>(k)];
      if (!comes) held[static_cast<std::size_t>(k)].push_back({from, at});
      from = at;
    }
  };
  /// f for the parts of `runs` that `others` do not hold.
  const auto for_difference = [](std::span<const Range> runs, std::span<const Range> others, const auto& f) {
    auto other = others.begin();
    for (const Range& run : runs) {
      index_t done = run.begin;
      while (other != others.end() && other->end <= done) ++other;
      for (; other != others.end() && other->begin < run.end; ++other) {
        if (other->begin > done) f(Range{done, other->begin});
        done = std::max(done, other->end);
        if (other->end > run.end) break;  // the next run may lie in it, too
      }
      if (done < run.end) f(Range{done, run.end});
    }
  };
  lists.for_groups([&](Range part, std::span<const Range> runs) {
    for_difference(before, runs, [&](Range gone) { change(gone, part.begin, false); });
    for_difference(runs, before, [&](Range come) { change(come, part.begin, true); });
    before = runs;
  });
  for (const Range& run : before) change(run, lists.size(), false);
  RunLists result;
  for (std::size_t k = 0; k < count;) {  // neighbours together: append compares with one list only
    std::size_t end = k + 1;
    while (end < count && held[end] == held[k]) ++end;
    result.append(cells.begin[end] - cells.begin[k], held[k]);
    k = end;
  }
  return result;
}

namespace {

/// For each list: how many the lists before it hold. The last number: how many all hold.
std::vector<index_t> held_before(const RunLists& lists) {
  std::vector<index_t> before{0};
  before.reserve(static_cast<std::size_t>(lists.size()) + 1);
  lists.for_groups([&](Range part, std::span<const Range> runs) {
    index_t held = 0;
    for (const Range& run : runs) held += run.size();
    for (index_t r = part.begin; r < part.end; ++r) before.push_back(before.back() + held);
  });
  return before;
}

bool are_intervals(const RunLists& rows, index_t n_k) {
  Range last{0, 1};
  bool all = rows.size() > 0;
  rows.for_groups([&](Range, std::span<const Range> runs) {
    all = all && runs.size() == 1 && last.begin <= runs[0].begin && runs[0].begin < last.end && last.end <= runs[0].end;
    if (all) last = runs[0];
  });
  return all && rows.of(0).front().begin == 0 && last.end == n_k;
}

}  // namespace

Pattern::Pattern(RunLists rows, index_t n_k)
    : rows_(std::move(rows)), keys_(transposed(rows_, n_k)), before_(held_before(rows_)) {
  rows_.hold_bits(n_k);
  keys_.hold_bits(n_q());
  if (are_intervals(rows_, n_k)) pairs_before_key_ = held_before(keys_);
}

namespace {

/// envelope_of() for lists that hold bits.
Range envelope_of_bits(const RunLists& lists, Range part, Range window) {
  const auto last = [](Range w) { return bits_of({0, std::min(w.size(), kWordBits)}); };  // what is inside the window
  Range envelope = window;
  for (; envelope.begin < window.end; envelope.begin += kWordBits)
    if (const std::uint64_t bits = lists.seen_by_any(part, envelope.begin) & last({envelope.begin, window.end});
        bits != 0) {
      envelope.begin += std::countr_zero(bits);
      break;
    }
  if (envelope.begin >= window.end) return {window.begin, window.begin};
  for (;; envelope.end -= kWordBits) {
    const index_t from = std::max(envelope.begin, envelope.end - kWordBits);
    if (const std::uint64_t bits = lists.seen_by_any(part, from) & last({from, envelope.end}); bits != 0) {
      envelope.end = from + kWordBits - std::countl_zero(bits);
      return envelope;
    }
  }
}

}  // namespace

Range envelope_of(const RunLists& lists, Range part, Range window) {
  if (lists.holds_bits()) return envelope_of_bits(lists, part, window);
  Range envelope{window.end, window.end};
  bool any = false;
  lists.for_groups(part, [&](Range, std::span<const Range> runs) {
    const auto first = first_after(runs, window.begin);
    if (first == runs.end() || first->begin >= window.end) return;
    const auto after =
        std::partition_point(first, runs.end(), [&](const Range& run) { return run.begin < window.end; });
    const Range seen{std::max(first->begin, window.begin), std::min(std::prev(after)->end, window.end)};
    envelope = any ? Range{std::min(envelope.begin, seen.begin), std::max(envelope.end, seen.end)} : seen;
    any = true;
  });
  return any ? envelope : Range{window.begin, window.begin};
}

std::vector<Range> union_of(const RunLists& lists, Range part) {
  std::vector<Range> runs;
  if (lists.holds_bits()) {
    for (index_t from = 0; from < lists.bits_end(); from += kWordBits)
      for (std::uint64_t bits = lists.seen_by_any(part, from); bits != 0;) {
        const index_t begin = std::countr_zero(bits), end = begin + std::countr_one(bits >> begin);
        if (!runs.empty() && runs.back().end == from + begin)
          runs.back().end = from + end;
        else
          runs.push_back({from + begin, from + end});
        bits &= ~bits_of({begin, end});
      }
    return runs;
  }
  lists.for_groups(
      part, [&](Range, std::span<const Range> of_group) { runs.insert(runs.end(), of_group.begin(), of_group.end()); });
  if (runs.empty()) return runs;
  const auto [first, last] = std::ranges::minmax(runs, {}, &Range::begin);
  index_t end = last.end;
  for (const Range& run : runs) end = std::max(end, run.end);
  const auto span = static_cast<std::size_t>(end - first.begin);
  if (runs.size() < 64 || runs.size() < span / 16) {
    sort_and_join(runs);
    return runs;
  }
  // Many runs in few places: how many are open changes from place to place, and nothing is sorted.
  std::vector<std::int32_t> change(span + 1);
  for (const Range& run : runs) {
    ++change[static_cast<std::size_t>(run.begin - first.begin)];
    --change[static_cast<std::size_t>(run.end - first.begin)];
  }
  const index_t origin = first.begin;
  runs.clear();
  std::int32_t open = 0;
  for (std::size_t k = 0; k <= span; ++k) {
    const std::int32_t before = open;
    open += change[k];
    if (before == 0 && open > 0) runs.push_back({origin + static_cast<index_t>(k), end});
    if (before > 0 && open == 0) runs.back().end = origin + static_cast<index_t>(k);
  }
  return runs;
}

Words count_of(const RunLists& lists) {
  Words count;
  lists.for_groups([&](Range part, std::span<const Range> runs) {
    Words one;
    for (const Range& run : runs) one += run.size();
    count += one * part.size();
  });
  return count;
}

Words block_index_words(const RunLists& lists) {
  const auto [kind, rows, cols] = lists.index();
  const Blocks blocks{lists.size(), rows};
  Words words = blocks.count() + 1;
  for (index_t i = 0; i < blocks.count(); ++i) {
    index_t done = 0;  // blocks of keys up to the last one that is met
    for (const Range& run : union_of(lists, blocks(i))) {
      const index_t first = std::max(done, run.begin / cols);
      done = ceil_div(run.end, cols);
      words += done - first;
    }
  }
  return words;
}

Needed needed_of(const Pattern& pattern) {
  Needed need;
  std::vector<Range> scored;
  pattern.rows().for_groups([&](Range part, std::span<const Range> runs) {
    index_t seen = 0;
    for (const Range& run : runs) seen += run.size();
    if (seen > 0) need.rows.end += part.size();
    if (seen < 2) return;
    need.scored_rows.end += part.size();
    need.scored_pairs += Words(seen) * part.size();
    scored.push_back(part);
  });
  pattern.keys().for_groups([&](Range part, std::span<const Range> runs) {
    if (runs.empty()) return;
    need.keys.end += part.size();
    const bool is_scored = std::ranges::any_of(runs, [&](const Range& run) {
      const auto found = std::ranges::partition_point(scored, [&](const Range& r) { return r.end <= run.begin; });
      return found != scored.end() && found->begin < run.end;
    });
    if (is_scored) need.scored_keys.end += part.size();
  });
  return need;
}

Range Mask::listed_keys(Range rows, index_t n_k) const {
  return pattern != nullptr ? envelope_of(pattern->rows(), rows, {0, n_k}) : intervals->interval_of_keys(rows, n_k);
}
Range Mask::listed_rows(Range keys, index_t n_q) const {
  return pattern != nullptr ? envelope_of(pattern->keys(), keys, {0, n_q}) : intervals->interval_of_rows(keys, n_q);
}

}  // namespace redblue
