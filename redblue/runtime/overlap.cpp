#include "redblue/runtime/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace redblue {

namespace {

using Run = std::pair<const std::byte*, const std::byte*>;  // first byte and one past the last

/// The runs of bytes that a tensor touches, sorted.
std::vector<Run> runs_of(const Tensor& t) {
  const auto size = static_cast<index_t>(size_of(t.dtype));
  const bool rows = t.strides[3] == 1;  // a row is one run, else every element is
  std::vector<Run> runs;
  for (index_t b = 0; b < t.shape[0]; ++b)
    for (index_t h = 0; h < t.shape[1]; ++h)
      for (index_t r = 0; r < t.shape[2]; ++r)
        for (index_t c = 0; c < (rows ? 1 : t.shape[3]); ++c) {
          const index_t at = b * t.strides[0] + h * t.strides[1] + r * t.strides[2] + c * t.strides[3];
          const auto* first = static_cast<const std::byte*>(t.data) + at * size;
          runs.emplace_back(first, first + (rows ? t.shape[3] : 1) * size);
        }
  std::sort(runs.begin(), runs.end(), [](const Run& x, const Run& y) { return std::less<>()(x.first, y.first); });
  return runs;
}

bool meet(const Run& x, const Run& y) { return std::less<>()(x.first, y.second) && std::less<>()(y.first, x.second); }

/// All that lies between the first byte of a tensor and the last.
Run extent_of(const Tensor& t) {
  index_t lowest = 0, highest = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const index_t last = (t.shape[i] - 1) * t.strides[i];
    (last < 0 ? lowest : highest) += last;
  }
  const auto size = static_cast<index_t>(size_of(t.dtype));
  const auto* data = static_cast<const std::byte*>(t.data);
  return {data + lowest * size, data + (highest + 1) * size};
}

/// Is each dimension stepped over in strides longer than all that the shorter ones reach? Then no two entries meet.
bool is_nested(const Tensor& t) {
  std::array<std::pair<index_t, index_t>, 4> dims;  // stride, size
  for (std::size_t i = 0; i < 4; ++i) dims[i] = {t.shape[i] == 1 ? 0 : std::abs(t.strides[i]), t.shape[i]};
  std::sort(dims.begin(), dims.end());
  index_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (size == 1) continue;
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

void require_own_memory(SlowArray name, const Tensor& t) {
  if (is_nested(t)) return;
  const std::vector<Run> runs = runs_of(t);
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (std::less<>()(runs[i].first, runs[i - 1].second))
      throw InvalidProblem(
          fmt::format("output {} overlaps itself: two of its entries share memory", tensor_name(name)));
}

void require_disjoint(SlowArray output, SlowArray other, const Tensors& tensors) {
  if (!meet(extent_of(tensors[output]), extent_of(tensors[other]))) return;
  const std::vector<Run> o = runs_of(tensors[output]), x = runs_of(tensors[other]);
  for (std::size_t i = 0, j = 0; i < o.size() && j < x.size();) {
    if (meet(o[i], x[j]))
      throw InvalidProblem(fmt::format("output {} overlaps {} in memory: give it memory of its own",
                                       tensor_name(output), tensor_name(other)));
    std::less<>()(o[i].second, x[j].second) ? ++i : ++j;
  }
}

void require_apart(std::span<const std::byte> workspace, SlowArray name, const Tensor& t) {
  // A caller may say "as much as there is": more than lies between the workspace and the end of the address space.
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(workspace.data());
  const std::size_t size = std::min(workspace.size(), std::numeric_limits<std::uintptr_t>::max() - begin);
  const Run all{workspace.data(), workspace.data() + size};
  if (workspace.empty() || !meet(extent_of(t), all)) return;
  const std::vector<Run> runs = runs_of(t);
  if (std::any_of(runs.begin(), runs.end(), [&](const Run& r) { return meet(r, all); }))
    throw InvalidProblem(
        fmt::format("the workspace overlaps {} in memory: give it memory of its own", tensor_name(name)));
}

}  // namespace

void require_no_overlap(const Tensors& tensors, const std::vector<SlowArray>& inputs,
                        const std::vector<SlowArray>& outputs, std::span<const std::byte> workspace) {
  const auto given = [&](SlowArray a) { return tensors[a].data != nullptr; };
  for (const SlowArray output : outputs) {
    if (!given(output)) continue;
    require_own_memory(output, tensors[output]);
    for (const SlowArray other : outputs) {
      if (other == output) break;
      if (given(other)) require_disjoint(output, other, tensors);
    }
    for (const SlowArray input : inputs)
      if (given(input)) require_disjoint(output, input, tensors);
  }
  if (workspace.empty()) return;
  for (const auto* list : {&inputs, &outputs})
    for (const SlowArray a : *list)
      if (given(a)) require_apart(workspace, a, tensors[a]);
}

}  // namespace redblue
