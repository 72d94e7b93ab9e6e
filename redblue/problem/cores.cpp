#include "redblue/problem/cores.hpp"

#include <algorithm>
#include <span>

namespace redblue {

namespace {

/// Appends the one core of a batch, which has these sequences.
void add_spanning_core(const Sizes& x, std::span<const Sizes> sequences, std::vector<Core>& list) {
  std::vector<Sizes> parts;
  parts.reserve(sequences.size());
  for (const Sizes& sequence : sequences)
    if (auto part = core_of(sequence)) parts.push_back(std::move(*part));
  if (parts.empty()) return;
  if (parts.size() == 1) return list.push_back({std::move(parts.front())});
  const Sizes &first = parts.front(), &last = parts.back();
  Sizes core = x;
  core.row0 = first.row0;
  core.key0 = first.key0;
  core.n_q = last.row0 + last.n_q - first.row0;
  core.n_k = last.key0 + last.n_k - first.key0;
  Sequences all;
  all.list.reserve(parts.size());
  for (Sizes& part : parts) {
    part.mask.pattern = part.mask.intervals = nullptr;
    const Range queries{0, part.n_q}, keys{0, part.n_k};
    all.list.push_back({0, queries.shifted(part.row0 - core.row0), keys.shifted(part.key0 - core.key0), part.mask, 0,
                        std::move(part.pattern), std::move(part.hiding), std::move(part.intervals)});
  }
  core.sequences = std::make_shared<const Sequences>(std::move(all));
  list.push_back({std::move(core)});
}

/// Appends the core of one sequence, cut where no query sees keys on both sides of the cut.
void add_cores(const Sizes& sequence, std::vector<Core>& list) {
  std::optional<Sizes> core = core_of(sequence);
  if (!core) return;
  const Mask& mask = core->mask;
  const bool whole = mask.lo == -Mask::kFar || mask.hi == Mask::kFar || mask.hi - mask.lo > 1;
  if (whole || mask.intervals != nullptr || core->hiding != nullptr) return list.push_back({std::move(*core)});
  // A query sees one key, and perhaps more of the prefix.
  const index_t group = mask.group;
  const index_t together = std::clamp<index_t>(mask.prefix - mask.hi + 1, 0, core->n_q / group);
  if (together > 0) {
    const Range queries{0, together * group};
    list.push_back({part_of(*core, queries, mask.keys(queries, core->n_k))});
  }
  if (const index_t left = core->n_q / group - together; left > 0) {
    const Range position{together * group, (together + 1) * group};
    list.push_back({part_of(*core, position, mask.keys(position, core->n_k)), left});
  }
}

/// The cores of one batch, which has these sequences.
std::vector<Core> of_one_batch(const Sizes& x, std::span<const Sizes> sequences, Cut cut) {
  std::vector<Core> list;
  if (cut == Cut::one) {
    add_spanning_core(x, sequences, list);
    return list;
  }
  for (const Sizes& sequence : sequences) add_cores(sequence, list);
  const bool several = list.size() > 1 || (list.size() == 1 && list[0].count > 1);
  for (Core& c : list) c.sizes.modifiers.slopes_kept = x.modifiers.slopes && several;
  return list;
}

/// The cores of each batch. The sequences are gone through once: there may be thousands of batches.
std::vector<std::vector<Core>> of_each_batch(const Sizes& x, Cut cut) {
  const std::vector<Sizes> sequences = sequences_of(x);
  std::vector<std::vector<Core>> lists;
  if (batches_of(x) == 1) {
    lists.push_back(of_one_batch(x, sequences, cut));
    return lists;
  }
  auto next = x.sequences->list.begin();
  std::size_t begin = 0;
  for (index_t b = 0; b < batches_of(x); ++b) {
    std::size_t end = begin;
    for (; next != x.sequences->list.end() && next->batch == b; ++next)
      if (next->rows.size() > 0 && next->keys.size() > 0) ++end;  // as sequences_of leaves others out
    lists.push_back(of_one_batch(x, std::span(sequences).subspan(begin, end - begin), cut));
    begin = end;
  }
  return lists;
}

CoreList joined(const std::vector<std::vector<Core>>& lists) {
  std::vector<Core> all;
  for (const std::vector<Core>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return CoreList(std::move(all));
}

}  // namespace

/// The lists for the last few problems.
struct CoreMemo::Lists {
  struct Remembered {
    Sizes x;
    Cut cut;
    CoreList all;
    std::vector<CoreList> of_batch;
  };
  struct Envelopes {
    std::shared_ptr<const Sequences> of, envelopes;
  };
  struct Patterns {
    Sizes of;
    std::shared_ptr<const Sequences> patterns;
  };
  static constexpr std::size_t kProblems = 6;
  std::vector<Remembered> several, single;  ///< problems that are several, whose lists take long to make, and others
  std::vector<Envelopes> envelopes;
  std::vector<Patterns> patterns;

  const Remembered& of(const Sizes& x, Cut cut) {
    std::vector<Remembered>& list = x.sequences != nullptr ? several : single;
    const auto found = std::ranges::find_if(list, [&](const Remembered& r) { return r.cut == cut && r.x == x; });
    if (found != list.end()) return *found;
    std::vector<std::vector<Core>> each = of_each_batch(x, cut);
    Remembered r{x, cut, joined(each), {}};
    if (each.size() > 1)
      for (std::vector<Core>& one : each) r.of_batch.emplace_back(std::move(one));
    return keep(list, std::move(r));
  }
  const std::shared_ptr<const Sequences>& envelopes_of(const std::shared_ptr<const Sequences>& sequences) {
    const auto found = std::ranges::find(envelopes, sequences, &Envelopes::of);
    if (found != envelopes.end()) return found->envelopes;
    return keep(envelopes, {sequences, redblue::envelopes_of(*sequences)}).envelopes;
  }
  const std::shared_ptr<const Sequences>& patterns_of(const Sizes& x) {
    const auto found = std::ranges::find(patterns, x, &Patterns::of);
    if (found != patterns.end()) return found->patterns;
    return keep(patterns, {x, redblue::patterns_of(x)}).patterns;
  }

 private:
  /// Keeps `one`, and lets go of the oldest where there are many.
  template <class T>
  static const T& keep(std::vector<T>& kept, T one) {
    if (kept.size() == kProblems) kept.erase(kept.begin());
    kept.push_back(std::move(one));
    return kept.back();
  }
};

namespace {

thread_local CoreMemo::Lists* kept_lists = nullptr;  // of the outermost CoreMemo

}  // namespace

Numbered::Numbered(CoreList list) : list_(std::move(list)) {
  before_.reserve(list_.size());
  for (const Core& c : list_) {
    before_.push_back(count_);
    count_ += c.count;
  }
}
Sizes Numbered::operator()(index_t i) const {
  const auto at = static_cast<std::size_t>(std::upper_bound(before_.begin(), before_.end(), i) - before_.begin()) - 1;
  return list_[at](i - before_[at]);
}

Sizes part_of(Sizes x, Range queries, Range keys) {
  x.mask = part_of(x.pairs(), queries, keys).mask;
  x.row0 += queries.begin;
  x.key0 += keys.begin;
  x.n_q = queries.size();
  x.n_k = keys.size();
  return x;
}

std::optional<Sizes> core_of(const Sizes& x) {
  if (x.mask.full() || x.mask.is_listed()) return x;
  const Range queries = x.pairs().rows_of({0, x.n_k});
  if (queries.size() == 0) return std::nullopt;
  return part_of(x, queries, x.pairs().keys_of(queries));
}

CoreList cores_of(const Sizes& x, std::optional<index_t> batch, Cut cut) {
  if (kept_lists == nullptr)
    return batch ? CoreList(of_one_batch(x, sequences_of(x, batch), cut)) : joined(of_each_batch(x, cut));
  const CoreMemo::Lists::Remembered& r = kept_lists->of(x, cut);
  return batch && !r.of_batch.empty() ? r.of_batch[static_cast<std::size_t>(*batch)] : r.all;
}

std::vector<CoreList> cores_of_batches(const Sizes& x, Cut cut) {
  std::vector<CoreList> lists;
  for (std::vector<Core>& one : of_each_batch(x, cut)) lists.emplace_back(std::move(one));
  return lists;
}

Sizes with_envelopes(const Sizes& x) {
  Sizes envelopes = x;
  envelopes.sequences = kept_lists == nullptr ? envelopes_of(*x.sequences) : kept_lists->envelopes_of(x.sequences);
  return envelopes;
}

Sizes with_patterns(const Sizes& x) {
  Sizes patterns = x;
  patterns.mask = {.group = x.mask.group};
  patterns.sequences = kept_lists == nullptr ? patterns_of(x) : kept_lists->patterns_of(x);
  return patterns;
}

CoreMemo::CoreMemo() {
  if (kept_lists != nullptr) return;
  own_ = std::make_unique<Lists>();
  kept_lists = own_.get();
}
CoreMemo::~CoreMemo() {
  if (own_ != nullptr) kept_lists = nullptr;
}

}  // namespace redblue
