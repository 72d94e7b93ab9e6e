#include "intervals.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace redblue::python {

namespace {

/// What the words of a type say of a pair: 0 where it is hidden from any query, from a query that sees another key,
/// where it is seen.
struct Bool {
  using Bits = std::uint8_t;
  static Bits hidden(Bits x) { return x; }
  static Bits hidden_beside_seen(Bits x) { return x; }
  static Bits seen(Bits x) { return x == 0 ? 1 : 0; }
};
/// kLowest: a key with the lowest number of the type in place of -inf has weight 0 beside a key that is seen.
template <class B, B infinity, bool kLowest = true>
struct Float {
  using Bits = B;
  static Bits hidden(Bits x) { return x ^ infinity; }  // -inf
  static Bits hidden_beside_seen(Bits x) {             // the bits of the lowest number are one less
    return static_cast<Bits>(static_cast<Bits>(infinity - x) >> (kLowest ? 1U : 0U));
  }
  static Bits seen(Bits x) { return static_cast<Bits>(x << 1U); }  // 0 and -0
};

/// The first place from `begin` on, in steps of kBlock, whose block `what` does not say 0 of throughout.
template <index_t kBlock, class Bits, class What>
index_t first_block(const Bits* row, index_t begin, index_t end, const What& what) {
  for (; begin + kBlock <= end; begin += kBlock) {
    Bits other = 0;  // no branch for each word
    for (index_t j = begin; j < begin + kBlock; ++j) other |= what(row[j]);
    if (other != 0) break;
  }
  return begin;
}

/// The first word from `begin` on of which `what` does not say 0, or `end`.
template <class Bits, class What>
index_t first_other(const Bits* row, index_t begin, index_t end, const What& what) {
  begin = first_block<256>(row, begin, end, what);
  begin = first_block<32>(row, begin, end, what);
  while (begin < end && what(row[begin]) == 0) ++begin;
  return begin;
}

template <class Type>
std::optional<Range> interval_in(const typename Type::Bits* row, index_t n_k) {
  Range keys;
  keys.begin = first_other(row, 0, n_k, Type::hidden_beside_seen);
  keys.end = first_other(row, keys.begin, n_k, Type::seen);
  if (keys.size() == 0) return first_other(row, 0, n_k, Type::hidden) < n_k ? std::nullopt : std::optional(Range{});
  return first_other(row, keys.end, n_k, Type::hidden_beside_seen) < n_k ? std::nullopt : std::optional(keys);
}

/// Adds one query more.
void append(std::vector<Stretch>& list, Range keys) {
  if (!list.empty()) {
    Stretch& last = list.back();
    const auto step = [&](index_t from, index_t to) { return (to - from) / last.queries; };
    if (last.queries == 1) last.steps = {step(last.keys.begin, keys.begin), step(last.keys.end, keys.end)};
    const auto known = [](index_t by) { return by == 0 || by == 1; };
    const Range next{last.keys.begin + last.queries * last.steps.begin, last.keys.end + last.queries * last.steps.end};
    if (known(last.steps.begin) && known(last.steps.end) && next == keys) {
      ++last.queries;
      return;
    }
    if (last.queries == 1) last.steps = {};
  }
  list.push_back({1, keys, {}});
}

/// Beyond this many a plan takes longer than it saves, and the list too much memory.
index_t most_stretches(index_t batches, index_t n_q) { return 16 * batches + n_q / 16; }

template <class Type>
std::optional<Intervals> read(const Tensor& bias, index_t n_q, index_t n_k) {
  const auto* words = static_cast<const typename Type::Bits*>(bias.data);
  const bool one_row = bias.shape[2] == 1 || bias.strides[2] == 0;
  const index_t batches = bias.strides[0] == 0 ? 1 : bias.shape[0];
  index_t left = most_stretches(batches, n_q);
  Intervals all;
  for (index_t b = 0; b < batches; ++b) {
    std::vector<Stretch> list;
    for (index_t i = 0; i < (one_row ? 1 : n_q); ++i) {
      const auto* row = words + b * bias.strides[0] + i * bias.strides[2];
      auto keys = interval_in<Type>(row, bias.shape[3]);
      if (keys && bias.shape[3] == 1 && keys->size() == 1) keys->end = n_k;
      if (!keys) return std::nullopt;
      append(list, *keys);
      if (std::ssize(list) > left) return std::nullopt;
    }
    left -= std::ssize(list);
    if (one_row) list.front().queries = n_q;
    all.push_back(std::move(list));
  }
  if (std::ranges::all_of(all, [&](const auto& list) { return list == all.front(); })) all.resize(1);
  return all;
}

std::vector<Range> queries_of(const std::vector<Stretch>& list) {
  std::vector<Range> keys;
  for (const Stretch& s : list)
    for (index_t i = 0; i < s.queries; ++i)
      keys.push_back({s.keys.begin + i * s.steps.begin, s.keys.end + i * s.steps.end});
  return keys;
}

}  // namespace

std::optional<Intervals> intervals_of(const Tensor& bias, index_t n_q, index_t n_k) {
  const bool one_head = bias.shape[1] == 1 || bias.strides[1] == 0;
  if (!one_head || (bias.shape[3] > 1 && bias.strides[3] != 1)) return std::nullopt;
  switch (bias.dtype) {
    case DType::boolean:
      return read<Bool>(bias, n_q, n_k);
    case DType::f64:
      return read<Float<std::uint64_t, 0xfff0000000000000U>>(bias, n_q, n_k);
    case DType::f32:
      return read<Float<std::uint32_t, 0xff800000U>>(bias, n_q, n_k);
    case DType::f16:  // scores may be 65504 apart
      return read<Float<std::uint16_t, 0xfc00U, false>>(bias, n_q, n_k);
    case DType::bf16:
      return read<Float<std::uint16_t, 0xff80U>>(bias, n_q, n_k);
    case DType::int8:
      return std::nullopt;  // a run refuses it
  }
  return std::nullopt;
}

std::optional<PaddedMask> padded_mask_of(const Intervals& intervals, index_t n_q, index_t n_k) {
  // Edges and lengths as some queries show them; then all are compared.
  PaddedMask found;
  std::vector<std::vector<Range>> all;
  for (const auto& list : intervals) {
    const auto& keys = all.emplace_back(queries_of(list));
    index_t queries = 0, length = 0;
    for (index_t i = 0; i < n_q; ++i) {
      const Range& seen = keys[static_cast<std::size_t>(i)];
      if (seen.size() > 0) queries = i + 1;
      length = std::max(length, seen.end);
      if (seen.begin > 0) found.mask.lo = seen.begin - i;
    }
    for (index_t i = 0; i < queries; ++i)
      if (const Range& seen = keys[static_cast<std::size_t>(i)]; seen.size() > 0 && seen.end < length)
        found.mask.hi = seen.end - i;
    found.queries.push_back(queries);
    found.keys.push_back(length);
    found.mask.prefix = std::max(found.mask.prefix, keys.front().end);
  }
  if (found.mask.hi == Mask::kFar || found.mask.prefix <= found.mask.hi) found.mask.prefix = 0;
  const auto is = [&](const PaddedMask& mask) {
    for (std::size_t b = 0; b < all.size(); ++b)
      for (index_t i = 0; i < n_q; ++i) {
        Range keys = mask.mask.keys(i, n_k);
        if (!mask.keys.empty()) keys = intersection(keys, {0, mask.keys[b]});
        const bool none = keys.size() == 0 || (!mask.queries.empty() && i >= mask.queries[b]);
        if ((none ? Range{} : keys) != all[b][static_cast<std::size_t>(i)]) return false;
      }
    return true;
  };
  // Lengths that hide nothing are left out.
  for (const bool queries : {false, true})
    for (const bool keys : {false, true}) {
      PaddedMask mask{found.mask, queries ? found.queries : std::vector<index_t>(),
                      keys ? found.keys : std::vector<index_t>()};
      if (is(mask)) return mask;
    }
  return std::nullopt;
}

RunLists lists_of(const std::vector<Stretch>& list) {
  RunLists lists;
  for (const Range& keys : queries_of(list)) lists.append(1, {keys});
  return lists;
}

}  // namespace redblue::python
