#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "intervals.hpp"
#include "module.hpp"
#include "pattern.hpp"
#include "redblue/problem.hpp"

namespace redblue::python {

namespace {

/// For each batch: the number of its stretches, then the stretches.
nb::bytes packed(const Intervals& intervals) {
  std::vector<index_t> numbers;
  for (const auto& list : intervals) {
    numbers.push_back(std::ssize(list));
    for (const Stretch& s : list)
      numbers.insert(numbers.end(), {s.queries, s.keys.begin, s.keys.end, s.steps.begin, s.steps.end});
  }
  return nb::bytes(numbers.data(), numbers.size() * sizeof(index_t));
}
Intervals unpacked(const nb::bytes& state) {
  std::vector<index_t> numbers(state.size() / sizeof(index_t));
  std::memcpy(numbers.data(), state.data(), numbers.size() * sizeof(index_t));
  Intervals intervals;
  for (auto at = numbers.begin(); at != numbers.end();) {
    std::vector<Stretch> list(static_cast<std::size_t>(*at++));
    for (Stretch& s : list) {
      s = {at[0], {at[1], at[2]}, {at[3], at[4]}};
      at += 5;
    }
    intervals.push_back(std::move(list));
  }
  return intervals;
}

nb::object edge(index_t value, index_t none) { return value == none ? nb::none() : nb::object(nb::int_(value)); }

nb::tuple numbers(const std::vector<index_t>& list) {
  nb::list all;
  for (const index_t x : list) all.append(x);
  return nb::tuple(all);
}

index_t pairs_of(const Intervals& intervals) {
  index_t pairs = 0;
  for (const auto& list : intervals)
    for (const Stretch& s : list)
      pairs += s.queries * s.keys.size() + s.queries * (s.queries - 1) / 2 * (s.steps.end - s.steps.begin);
  return pairs;
}

nb::object intervals(nb::handle bias, index_t n_q, index_t n_k) {
  Buffers buffers;
  const Tensor tensor = tensor_of(bias, Form::heads_first, SlowArray::bias, false, buffers);
  std::optional<Intervals> found;
  {
    const nb::gil_scoped_release unlocked;
    found = intervals_of(tensor, n_q, n_k);
  }
  return found ? nb::object(packed(*found)) : nb::none();
}

nb::object mask(const nb::bytes& state, index_t n_q, index_t n_k) {
  const Intervals intervals = unpacked(state);
  nb::dict found;
  found["batches"] = intervals.size();
  found["pairs"] = pairs_of(intervals);
  if (const auto mask = padded_mask_of(intervals, n_q, n_k)) {
    found["lo"] = edge(mask->mask.lo, -Mask::kFar);
    found["hi"] = edge(mask->mask.hi, Mask::kFar);
    found["prefix"] = mask->mask.prefix;
    found["seqused_q"] = numbers(mask->queries);
    found["seqused_k"] = numbers(mask->keys);
    return found;
  }
  nb::list patterns;
  std::size_t parts = 0;
  for (const auto& list : intervals) {
    auto rows = std::make_shared<const RunLists>(lists_of(list));
    const std::vector<Sequence> sequences = sequences_of(*rows, n_k, {});
    if (std::ranges::any_of(sequences, [](const Sequence& one) { return one.pattern != nullptr; })) return nb::none();
    parts += sequences.size();
    patterns.append(std::make_shared<const NamedPattern>(NamedPattern{std::move(rows), n_k}));
  }
  found["patterns"] = patterns;
  found["sequences"] = parts;
  return found;
}

}  // namespace

void add_recognition(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "intervals", &intervals, "bias"_a, "n_q"_a, "n_k"_a,
      "Which keys a bias shows to each query, as bytes that are equal where that is equal; None where it is no mask of "
      "intervals.");
  m.def("mask_of_intervals", &mask, "intervals"_a, "n_q"_a, "n_k"_a,
        "The same as a mask with lengths, or as patterns that are sequences of masks; None where it is neither.");
}

}  // namespace redblue::python
