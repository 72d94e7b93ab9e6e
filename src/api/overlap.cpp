#include "overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
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

void require_own_memory(std::string_view name, const std::vector<Run>& runs) {
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (std::less<>()(runs[i].first, runs[i - 1].second))
      throw InvalidProblem(fmt::format("output {} overlaps itself: two of its entries share memory", name));
}

void require_disjoint(std::string_view output, const std::vector<Run>& o, std::string_view other,
                      const std::vector<Run>& x) {
  for (std::size_t i = 0, j = 0; i < o.size() && j < x.size();) {
    if (std::less<>()(o[i].first, x[j].second) && std::less<>()(x[j].first, o[i].second))
      throw InvalidProblem(fmt::format("output {} overlaps {} in memory: give it memory of its own", output, other));
    std::less<>()(o[i].second, x[j].second) ? ++i : ++j;
  }
}

}  // namespace

void require_no_overlap(const std::vector<NamedTensor>& inputs, const std::vector<NamedTensor>& outputs) {
  std::vector<std::vector<Run>> in, out;
  for (const NamedTensor& t : inputs) in.push_back(runs_of(t.tensor));
  for (const NamedTensor& t : outputs) out.push_back(runs_of(t.tensor));
  for (std::size_t i = 0; i < out.size(); ++i) {
    require_own_memory(outputs[i].name, out[i]);
    for (std::size_t j = 0; j < i; ++j) require_disjoint(outputs[i].name, out[i], outputs[j].name, out[j]);
    for (std::size_t j = 0; j < in.size(); ++j) require_disjoint(outputs[i].name, out[i], inputs[j].name, in[j]);
  }
}

}  // namespace redblue
